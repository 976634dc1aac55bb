// result_file.cpp: see result_file.h.
#include "bench/result_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>

#include "io/array.h"
#include "io/output_file.h"

namespace flashtile::cli::bench {

void require_writable(const char* option, const std::string& path) {
    try {
        const io::OutputFile nothing(path, 0);
    } catch (const io::FileError& error) {
        throw std::runtime_error(fmt::format("{} is {}, which cannot be written: {}", option, path, error.what()));
    }
}

void write_json(const std::string& path, const nlohmann::json& result) {
    const std::string text = result.dump(1) + '\n';
    io::OutputFile file(path, text.size());
    std::ranges::copy(std::as_bytes(std::span(text)), file.bytes().begin());
    file.flush();
    file.commit();
}

}  // namespace flashtile::cli::bench
