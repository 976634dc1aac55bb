// result_files.h: a command's results in files, which are written together at its end.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "io/output_array.h"

namespace flashtile::cli {

class ResultFiles {
public:
    // Memory that becomes the file; nullptr without a file's name.
    void* add(const std::string& file, const char* tensor, io::DType dtype, const std::vector<std::int64_t>& shape) {
        return file.empty() ? nullptr : files_.emplace_back(file, tensor, dtype, shape).data();
    }

    // Little can go wrong once all are flushed.
    void commit() {
        for (io::OutputArray& file : files_) file.flush();
        for (io::OutputArray& file : files_) file.commit();
    }

private:
    std::deque<io::OutputArray> files_;
};

}  // namespace flashtile::cli
