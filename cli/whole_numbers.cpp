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

template <class Number>
constexpr int kBits = 8 * sizeof(Number);

template <class Number>
std::vector<Number> parse_list(const std::string& flag, const std::string& text) {
    std::vector<Number> values;
    const char* at = text.data();
    const char* const end = at + text.size();
    for (;; ++at) {
        Number value = 0;
        const auto [after, error] = std::from_chars(at, end, value);
        if (error != std::errc() || (after != end && *after != ','))
            throw std::invalid_argument(
                fmt::format("{} is {}, allowed are numbers that fit {} bits, as 37,12, or FILE[:TENSOR]", flag, text,
                            kBits<Number>));
        values.push_back(value);
        if ((at = after) == end) return values;
    }
}

// Element n of a file's, which is as aligned as the file has it.
template <class Number>
Number element(const void* data, std::size_t n) {
    Number value = 0;
    std::memcpy(&value, static_cast<const std::byte*>(data) + n * sizeof value, sizeof value);
    return value;
}

template <class Number>
void read(std::vector<Number>& values, const io::Array& array, const std::string& title) {
    values.resize(array.elements());
    for (std::size_t n = 0; n < values.size(); ++n) {
        const std::int64_t value = array.dtype == io::DType::int32 ? element<std::int32_t>(array.data, n)
                                                                   : element<std::int64_t>(array.data, n);
        if (!std::in_range<Number>(value))
            throw std::invalid_argument(
                fmt::format("{} holds {}, allowed are numbers that fit {} bits", title, value, kBits<Number>));
        values[n] = static_cast<Number>(value);
    }
}

}  // namespace

WholeNumbers::WholeNumbers(const std::string& flag, const std::string& text, dtype type) : flag_(flag), text_(text) {
    if (type == dtype::int64) values_.emplace<std::vector<std::int64_t>>();
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
        std::visit(
            [&]<class Number>(std::vector<Number>& values) {
                values = parse_list<Number>(flag, text);
                shape_ = {static_cast<std::int64_t>(values.size())};
            },
            values_);
    }
}

WholeNumbers::WholeNumbers(const std::string& flag, std::int64_t count)
    : flag_(flag),
      text_("0, 1, .."),
      shape_{count},
      values_(std::vector<std::int32_t>(static_cast<std::size_t>(count))) {
    std::vector<std::int32_t>& values = std::get<0>(values_);
    std::iota(values.begin(), values.end(), 0);
}

std::size_t WholeNumbers::memory() const {
    return std::visit(
        [&]<class Number>(const std::vector<Number>& values) {
            return (file_ ? file_->array().elements() : values.size()) * sizeof(Number);
        },
        values_);
}

void WholeNumbers::fill() {
    if (file_) std::visit([&](auto& values) { read(values, file_->array(), title()); }, values_);
}

flashtile::tensor WholeNumbers::view() const {
    return std::visit(
        [&]<class Number>(const std::vector<Number>& values) {
            return flashtile::view(values.data(), sizeof(Number) == 8 ? dtype::int64 : dtype::int32, shape_);
        },
        values_);
}

std::int64_t WholeNumbers::longest_step() const {
    return std::visit(
        [](const auto& values) {
            std::int64_t longest = 0;
            for (std::size_t n = 1; n < values.size(); ++n)
                longest = std::max(longest, std::int64_t{values[n]} - values[n - 1]);
            return longest;
        },
        values_);
}

}  // namespace flashtile::cli
