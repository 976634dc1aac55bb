// npy_refusal_test.cpp: .npy files that are not: each gives an error that names the file and says what is allowed.
#include <gtest/gtest.h>

#include "io/npy.h"
#include "page_end.h"
#include "raw_file.h"

namespace flashtile::tests {
namespace {

void expect_refused(const std::string& content, const std::string& message) {
    SCOPED_TRACE(testing::PrintToString(content.substr(0, 200)));
    const PageEnd file(content);
    try {
        io::parse_npy(file.bytes(), "a.npy");
        ADD_FAILURE() << "accepted, not refused with: " << message;
    } catch (const io::FileError& error) {
        EXPECT_EQ(error.what(), "a.npy: " + message);
    }
}

void expect_header_refused(const std::string& header, const std::string& message) {
    expect_refused(npy_file(1, header, bytes_of(1.0f, 2.0f)), message);
}

const std::string good_header = npy_header("<f4", "(2,)");

TEST(NpyRefusal, NotTheFormat) {
    const std::string message = "not a .npy file (it does not start with \\x93NUMPY)";
    for (const char* content : {"", "\x93", "\x93NUMP", "NUMPY\1\0", "PK\3\4 an npz is a zip file", "0.5, 1.5\n"})
        expect_refused(content, message);
}

TEST(NpyRefusal, Versions) {
    for (const int version : {0, 4, 127})
        expect_refused(npy_file(version, good_header, bytes_of(1.0f, 2.0f)),
                       ".npy version is " + std::to_string(version) + ".0, allowed is 1, 2 or 3");
}

TEST(NpyRefusal, CutShortAnywhere) {
    for (const int version : {1, 2}) {
        const std::string whole = npy_file(version, good_header, bytes_of(1.0f, 2.0f));
        for (std::size_t size = 6; size < whole.size(); ++size) {
            const PageEnd file(whole.substr(0, size));
            try {
                io::parse_npy(file.bytes(), "a.npy");
                ADD_FAILURE() << size << " bytes of " << whole.size() << " were accepted";
            } catch (const io::FileError& error) {
                EXPECT_TRUE(std::string(error.what()).starts_with("a.npy: truncated .npy: ")) << error.what();
            }
        }
    }
    expect_refused(npy_file(1, good_header, bytes_of(1.0f)),
                   "truncated .npy: shape (2,) of fp32 takes 8 bytes, the file has 4");
}

TEST(NpyRefusal, HeaderPastTheEnd) {
    expect_refused(std::string("\x93NUMPY\1\0\xff\xff{}", 12),
                   "truncated .npy: the header should have 65535 bytes, the file has 2 more");
    expect_refused(std::string("\x93NUMPY\2\0\xff\xff\xff\xff{}", 14),
                   "truncated .npy: the header should have 4294967295 bytes, the file has 2 more");
}

TEST(NpyRefusal, MoreValuesThanTheShape) {
    expect_refused(npy_file(1, good_header, bytes_of(1.0f, 2.0f, 3.0f)),
                   "malformed .npy: shape (2,) of fp32 takes 8 bytes, the file has 12");
    expect_refused(npy_file(1, npy_header("<f4", "(2, 0)"), bytes_of(1.0f)),
                   "malformed .npy: shape (2, 0) of fp32 takes 0 bytes, the file has 4");
}

TEST(NpyRefusal, HeadersThatAreNoDictionary) {
    const std::string no_brace = "malformed .npy: the header has no '{' where one must stand";
    for (const char* header : {"", "   \n", "[1, 2]", "None", "'descr'", "\xff\xfe"})
        expect_header_refused(header, no_brace);
    expect_header_refused("{", "malformed .npy: the header has no string where one must stand");
    expect_header_refused("{1: 2}", "malformed .npy: the header has no string where one must stand");
    expect_header_refused("{'descr", "malformed .npy: a string in the header does not end");
    expect_header_refused("{'descr\"", "malformed .npy: a string in the header does not end");
    expect_header_refused("{'descr' '<f4'}", "malformed .npy: the header has no ':' where one must stand");
    expect_header_refused("{'descr': '<f4' 'shape': (2,)}",
                          "malformed .npy: the header has no '}' where one must stand");
    expect_header_refused("{'descr': '<f4', ", "malformed .npy: the header has no string where one must stand");
    expect_header_refused(good_header + "{}", "malformed .npy: the header goes on after its closing brace");
    expect_header_refused(good_header + '\0', "malformed .npy: the header goes on after its closing brace");
}

TEST(NpyRefusal, KeysMissingTwiceOrUnknown) {
    const std::string lacks = "malformed .npy: the header lacks 'descr', 'fortran_order' or 'shape'";
    expect_header_refused("{}", lacks);
    expect_header_refused("{'descr': '<f4', 'fortran_order': False}", lacks);
    expect_header_refused("{'descr': '<f4', 'shape': (2,)}", lacks);
    expect_header_refused("{'fortran_order': False, 'shape': (2,)}", lacks);
    expect_header_refused("{'descr': '<f4', 'descr': '<f4'}", "malformed .npy: the header has 'descr' twice");
    expect_header_refused("{'shape': (2,), 'shape': (1,)}", "malformed .npy: the header has 'shape' twice");
    expect_header_refused("{'fortran_order': False, 'fortran_order': True}",
                          "malformed .npy: the header has 'fortran_order' twice");
    expect_header_refused("{'colour': 'red'}",
                          "malformed .npy: the header has a key other than 'descr', 'fortran_order' and 'shape'");
}

TEST(NpyRefusal, Orders) {
    expect_refused(npy_file(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2)}", bytes_of(1.0f, 2.0f)),
                   "the array is in Fortran order, allowed is C order: save it as numpy.ascontiguousarray(array)");
    for (const char* order : {"true", "0", "'False'", "None", ""})
        expect_header_refused("{'fortran_order': " + std::string(order) + "}",
                              "malformed .npy: 'fortran_order' is neither True nor False");
    expect_header_refused("{'fortran_order': Falsehood}", "malformed .npy: the header has no '}' where one must stand");
}

TEST(NpyRefusal, Types) {
    const std::string allowed = "', allowed is fp64, fp32, fp16, bf16, bool, int64, int32 or uint8";
    for (const char* descr : {"<c8", "|O", "<U3", "<f16", "|S4", "<M8[ns]", "", "f4", "<f4 "})
        expect_refused(npy_file(1, npy_header(descr, "(2,)"), bytes_of(1.0f, 2.0f)),
                       "dtype is '" + std::string(descr) + allowed);
    expect_refused(npy_file(1, npy_header(">f4", "(2,)"), bytes_of(1.0f, 2.0f)),
                   "dtype is '>f4', big-endian, allowed is little-endian: save it as array.astype('<f4')");
    expect_header_refused("{'descr': [('x', '<f4'), ('y', '<f4')], 'fortran_order': False, 'shape': (1,)}",
                          "malformed .npy: it holds records (a structured dtype), allowed are plain numbers");
    // What a terminal would obey is not shown as it is, nor without end.
    expect_refused(npy_file(1, npy_header("\x1b[2J\xff", "(2,)"), ""), "dtype is '?[2J?" + allowed);
    expect_refused(npy_file(1, npy_header(std::string(1000, 'x'), "(2,)"), ""),
                   "dtype is '" + std::string(40, 'x') + allowed);
}

TEST(NpyRefusal, Shapes) {
    const std::string no_size = "malformed .npy: a size in the shape is not a number from 0 to 2^63 - 1";
    for (const char* shape : {"(-1,)", "(9223372036854775808,)", "(99999999999999999999999999,)", "(x,)", "(,)",
                              "(+2,)", "((2,),)", "(1,,2)", "("})
        expect_refused(npy_file(1, npy_header("<f4", shape), bytes_of(1.0f, 2.0f)), no_size);
    for (const char* shape : {"2", "[2]", "'(2,)'"})
        expect_refused(npy_file(1, npy_header("<f4", shape), bytes_of(1.0f, 2.0f)),
                       "malformed .npy: the header has no '(' where one must stand");
    for (const char* shape : {"(2", "(2.0,)", "(0x2,)", "(2L,)"})
        expect_header_refused("{'shape': " + std::string(shape),
                              "malformed .npy: the header has no ')' where one must stand");
}

TEST(NpyRefusal, ShapesWhoseProductOverflows) {
    for (const char* shape : {"(2305843009213693952,)", "(4294967296, 4294967296)", "(9223372036854775807, 2)",
                              "(9223372036854775807, 0, 2)", "(65536, 65536, 65536, 65536)"})
        expect_refused(npy_file(1, npy_header("<f4", shape), ""),
                       "shape " + std::string(shape) + " takes more than 63 bits of bytes");
    // Far more than there is, and yet it fits.
    expect_refused(npy_file(1, npy_header("<f4", "(2305843009213693951,)"), "abcd"),
                   "truncated .npy: shape (2305843009213693951,) of fp32 takes 9223372036854775804 bytes, "
                   "the file has 4");
}

TEST(NpyRefusal, TooManyDimensions) {
    std::string shape = "(";
    for (int n = 0; n < 65; ++n) shape += "1,";
    expect_refused(npy_file(1, npy_header("<f4", shape + ")"), bytes_of(1.0f)),
                   "malformed .npy: the shape has more than 64 dimensions");
    // As many as a long header holds.
    expect_refused(npy_file(2, npy_header("<f4", "(" + std::string(1 << 20, '1') + ")"), bytes_of(1.0f)),
                   "malformed .npy: a size in the shape is not a number from 0 to 2^63 - 1");
    expect_header_refused(std::string(60000, '{'), "malformed .npy: the header has no string where one must stand");
}

TEST(NpyRefusal, ToWriteBf16) {
    try {
        io::npy_header(io::DType::bf16, std::vector<std::int64_t>{2}, "a.npy");
        ADD_FAILURE() << "accepted";
    } catch (const io::FileError& error) {
        EXPECT_STREQ(error.what(), "a.npy: NumPy has no bf16: write a .safetensors file, or use fp32");
    }
}

}  // namespace
}  // namespace flashtile::tests
