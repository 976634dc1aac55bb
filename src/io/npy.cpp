// npy.cpp: see npy.h. The header is a Python dictionary of three entries, read by a parser for just that.
#include "io/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <string_view>

#include "io/output_file.h"

namespace flashtile::io {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::size_t alignment = 64;  // of the values: what NumPy writes
constexpr std::size_t max_rank = 64;   // NumPy's own

struct TypeName {
    std::string_view descr;
    DType dtype;
};
// The first name of a type is the one that is written.
constexpr std::array<TypeName, 10> type_names = {{{"<f8", DType::fp64},
                                                  {"<f4", DType::fp32},
                                                  {"<f2", DType::fp16},
                                                  {"bfloat16", DType::bf16},
                                                  {"|V2", DType::bf16},
                                                  {"<V2", DType::bf16},
                                                  {"|b1", DType::boolean},
                                                  {"<i8", DType::int64},
                                                  {"<i4", DType::int32},
                                                  {"|u1", DType::uint8}}};

class HeaderParser {
public:
    HeaderParser(std::string_view text, const std::string& file_name) : text_(text), file_name_(file_name) {}

    struct Header {
        std::string_view descr;
        bool fortran_order = false;
        std::vector<std::int64_t> shape;
    };

    Header parse() {
        Header header;
        bool has_descr = false, has_order = false, has_shape = false;
        const auto once = [&](bool& seen, std::string_view key) {
            if (seen) fail(fmt::format("the header has '{}' twice", key));
            seen = true;
        };
        expect('{');
        while (!accept('}')) {
            const std::string_view key = string();
            expect(':');
            if (key == "descr") {
                once(has_descr, key);
                header.descr = descr();
            } else if (key == "fortran_order") {
                once(has_order, key);
                header.fortran_order = boolean();
            } else if (key == "shape") {
                once(has_shape, key);
                header.shape = shape();
            } else {
                fail("the header has a key other than 'descr', 'fortran_order' and 'shape'");
            }
            if (!accept(',')) {
                expect('}');
                break;
            }
        }
        skip_space();
        if (!text_.empty()) fail("the header goes on after its closing brace");
        if (!has_descr || !has_order || !has_shape) fail("the header lacks 'descr', 'fortran_order' or 'shape'");
        return header;
    }

private:
    [[noreturn]] void fail(const std::string& what) const {
        throw FileError(fmt::format("{}: malformed .npy: {}", file_name_, what));
    }

    void skip_space() {
        const auto first = text_.find_first_not_of(" \t\r\n");
        text_.remove_prefix(std::min(first, text_.size()));
    }

    bool accept(char c) {
        skip_space();
        if (text_.empty() || text_.front() != c) return false;
        text_.remove_prefix(1);
        return true;
    }

    void expect(char c) {
        if (!accept(c)) fail(fmt::format("the header has no '{}' where one must stand", c));
    }

    bool accept_word(std::string_view word) {
        skip_space();
        if (!text_.starts_with(word)) return false;
        text_.remove_prefix(word.size());
        return true;
    }

    std::string_view string() {
        skip_space();
        const char quote = text_.empty() ? '\0' : text_.front();
        if (quote != '\'' && quote != '"') fail("the header has no string where one must stand");
        text_.remove_prefix(1);
        const auto end = text_.find(quote);
        if (end == std::string_view::npos) fail("a string in the header does not end");
        const std::string_view value = text_.substr(0, end);
        text_.remove_prefix(end + 1);
        return value;
    }

    std::string_view descr() {
        if (accept('[')) fail("it holds records (a structured dtype), allowed are plain numbers");
        return string();
    }

    bool boolean() {
        if (accept_word("True")) return true;
        if (!accept_word("False")) fail("'fortran_order' is neither True nor False");
        return false;
    }

    std::vector<std::int64_t> shape() {
        std::vector<std::int64_t> sizes;
        expect('(');
        while (!accept(')')) {
            sizes.push_back(size());
            if (sizes.size() > max_rank) fail(fmt::format("the shape has more than {} dimensions", max_rank));
            if (!accept(',')) {
                expect(')');
                break;
            }
        }
        return sizes;
    }

    std::int64_t size() {
        skip_space();
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
        if (error != std::errc() || value < 0) fail("a size in the shape is not a number from 0 to 2^63 - 1");
        text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
        return value;
    }

    std::string_view text_;
    const std::string& file_name_;
};

// A value from the file as it may be shown on a terminal.
std::string printable(std::string_view text) {
    std::string result(text.substr(0, 40));
    std::ranges::replace_if(
        result, [](char c) { return c < ' ' || c > '~'; }, '?');
    return result;
}

DType parse_descr(std::string_view descr, const std::string& file_name) {
    for (const auto& [known, dtype] : type_names)
        if (descr == known) return dtype;
    if (descr.starts_with('>'))
        throw FileError(
            fmt::format("{}: dtype is '{}', big-endian, allowed is little-endian: save it as array.astype('<{}')",
                        file_name, printable(descr), printable(descr.substr(1))));
    throw FileError(fmt::format("{}: dtype is '{}', allowed is fp64, fp32, fp16, bf16, bool, int64, int32 or uint8",
                                file_name, printable(descr)));
}

}  // namespace

Array parse_npy(std::span<const std::byte> file, const std::string& file_name) {
    const auto fail = [&](const std::string& what) { throw FileError(fmt::format("{}: {}", file_name, what)); };
    const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
    if (!text.starts_with(magic)) fail("not a .npy file (it does not start with \\x93NUMPY)");
    if (file.size() < 10) fail(fmt::format("truncated .npy: {} bytes hold no header", file.size()));
    const auto byte = [&](std::size_t n) { return std::to_integer<std::size_t>(file[n]); };
    if (byte(6) < 1 || byte(6) > 3) fail(fmt::format(".npy version is {}.{}, allowed is 1, 2 or 3", byte(6), byte(7)));
    const std::size_t length_size = byte(6) == 1 ? 2 : 4;
    const std::size_t begin = 8 + length_size;
    if (file.size() < begin) fail(fmt::format("truncated .npy: {} bytes hold no header", file.size()));
    std::size_t length = 0;
    for (std::size_t n = 0; n < length_size; ++n) length |= byte(8 + n) << (8 * n);
    if (length > file.size() - begin)
        fail(fmt::format("truncated .npy: the header should have {} bytes, the file has {} more", length,
                         file.size() - begin));

    const auto header = HeaderParser(text.substr(begin, length), file_name).parse();
    Array array{parse_descr(header.descr, file_name), header.shape, file.data() + begin + length};
    if (header.fortran_order && header.shape.size() > 1)
        fail("the array is in Fortran order, allowed is C order: save it as numpy.ascontiguousarray(array)");
    const auto expected = checked_bytes(array.shape, size_of(array.dtype));
    if (!expected) fail(fmt::format("shape {} takes more than 63 bits of bytes", to_string(array.shape)));
    const std::size_t present = file.size() - begin - length;
    if (present != *expected)
        fail(fmt::format("{} .npy: shape {} of {} takes {} bytes, the file has {}",
                         present < *expected ? "truncated" : "malformed", to_string(array.shape), name(array.dtype),
                         *expected, present));
    return array;
}

NpyFile::NpyFile(const std::filesystem::path& path) : file_(path), array_(parse_npy(file_.bytes(), path.string())) {}

std::string npy_header(DType dtype, std::span<const std::int64_t> shape, const std::string& file_name) {
    if (dtype == DType::bf16)
        throw FileError(fmt::format("{}: NumPy has no bf16: write a .safetensors file, or use fp32", file_name));
    if (dtype == DType::e4m3)
        throw FileError(fmt::format("{}: NumPy has no e4m3: write a .safetensors file", file_name));
    const auto* type = std::ranges::find(type_names, dtype, &TypeName::dtype);
    std::string text =
        fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", type->descr, to_string(shape));
    constexpr std::size_t begin = 10;
    // Padded with spaces, and ended by a newline.
    text.append((alignment - (begin + text.size() + 1) % alignment) % alignment, ' ');
    text += '\n';
    std::string header(magic);
    header += '\1';
    header += '\0';
    header += static_cast<char>(text.size() & 0xff);
    header += static_cast<char>(text.size() >> 8);
    return header + text;
}

void write_npy(const std::filesystem::path& path, const Array& array) {
    const std::string header = npy_header(array.dtype, array.shape, path.string());
    OutputFile file(path, header.size() + array.bytes());
    std::memcpy(file.bytes().data(), header.data(), header.size());
    if (array.bytes() != 0) std::memcpy(file.bytes().data() + header.size(), array.data, array.bytes());
    file.flush();
    file.commit();
}

}  // namespace flashtile::io
