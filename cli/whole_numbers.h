// whole_numbers.h: a flag's whole numbers, one for each sequence or each page: written out as 37,12 or kept in a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "io/input_array.h"

namespace flashtile::cli {

class WholeNumbers {
public:
    // `text`: numbers with commas between them, or FILE[:TENSOR] of int32 or int64. `type`: which the library takes.
    WholeNumbers(const std::string& flag, const std::string& text, dtype type = dtype::int32);
    // 0, 1, .. count - 1
    WholeNumbers(const std::string& flag, std::int64_t count);

    const std::string& flag() const { return flag_; }
    std::string title() const { return flag_ + " (" + (file_ ? file_->file() : text_) + ")"; }
    const io::InputArray* file() const { return file_ ? &*file_ : nullptr; }

    std::size_t memory() const;
    // Takes the memory and reads the file. Throws std::invalid_argument where a number does not fit the type.
    void fill();
    // Once it is filled.
    flashtile::tensor view() const;
    std::int64_t longest_step() const;  // from a number to the one after it; 0 where there is none

private:
    std::string flag_, text_;
    std::optional<io::InputArray> file_;
    std::vector<std::int64_t> shape_;
    std::variant<std::vector<std::int32_t>, std::vector<std::int64_t>> values_;
};

}  // namespace flashtile::cli
