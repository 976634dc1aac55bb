// whole_numbers.cpp: see whole_numbers.h.
#include "whole_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace flashtile::cli {
namespace {

std::int32_t in_32_bits(std::int64_t value, const std::string& title) {
    if (!std::in_range<std::int32_t>(value))
        throw std::invalid_argument(fmt::format("{} holds {}, allowed are numbers that fit 32 bits", title, value));
    return static_cast<std::int32_t>(value);
}

std::vector<std::int32_t> parse_list(const std::string& flag, const std::string& text) {
    std::vector<std::int32_t> values;
    const char* at = text.data();
    const char* const end = at + text.size();
    for (;; ++at) {
        std::int32_t value = 0;
        const auto [after, error] = std::from_chars(at, end, value);
        if (error != std::errc() || (after != end && *after != ','))
            throw std::invalid_argument(
                fmt::format("{} is {}, allowed are numbers that fit 32 bits, as 37,12, or FILE[:TENSOR]", flag, text));
        values.push_back(value);
        if ((at = after) == end) return values;
    }
}

}  // namespace

WholeNumbers::WholeNumbers(const std::string& flag, const std::string& text) : flag_(flag), text_(text) {
    if (text.find_first_not_of("-0123456789,") != std::string::npos) {
        file_.emplace(text);
        const io::Array& array = file_->array();
        if (array.dtype != io::DType::int32 && array.dtype != io::DType::int64)
            throw std::invalid_argument(
                fmt::format("{} holds {}, allowed is int32 or int64", title(), io::name(array.dtype)));
        if (array.shape.empty() || array.shape.size() > 2)
            throw std::invalid_argument(
                fmt::format("{} has shape {}, allowed are one or two dimensions", title(), io::to_string(array.shape)));
        shape_ = array.shape;
    } else {
        values_ = parse_list(flag, text);
        shape_ = {static_cast<std::int64_t>(values_.size())};
    }
}

WholeNumbers::WholeNumbers(const std::string& flag, std::int64_t count)
    : flag_(flag), text_("0, 1, .."), shape_{count}, values_(static_cast<std::size_t>(count)) {
    std::iota(values_.begin(), values_.end(), 0);
}

std::size_t WholeNumbers::memory() const {
    return (file_ ? file_->array().elements() : values_.size()) * sizeof(std::int32_t);
}

void WholeNumbers::fill() {
    if (!file_) return;
    const io::Array& array = file_->array();
    values_.resize(array.elements());
    if (array.dtype == io::DType::int32) {
        std::memcpy(values_.data(), array.data, array.bytes());
        return;
    }
    const auto* bytes = static_cast<const std::byte*>(array.data);  // as aligned as the file has it
    for (std::size_t n = 0; n < values_.size(); ++n) {
        std::int64_t value = 0;
        std::memcpy(&value, bytes + n * sizeof value, sizeof value);
        values_[n] = in_32_bits(value, title());
    }
}

flashtile::tensor WholeNumbers::view() const {
    return flashtile::view(values_.data(), dtype::int32, shape_);
}

std::int64_t WholeNumbers::longest_step() const {
    std::int64_t longest = 0;
    for (std::size_t n = 1; n < values_.size(); ++n)
        longest = std::max(longest, std::int64_t{values_[n]} - values_[n - 1]);
    return longest;
}

}  // namespace flashtile::cli
