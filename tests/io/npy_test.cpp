// npy_test.cpp: .npy files that are as they should be, read and written.
#include "io/npy.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cli/temporary_folder.h"
#include "page_end.h"
#include "raw_file.h"

namespace flashtile::tests {
namespace {

using io::DType;

std::string values_of(const io::Array& array) {
    return {static_cast<const char*>(array.data), array.bytes()};
}

struct TypeCase {
    const char* descr;
    DType dtype;
    std::size_t size;
};

void PrintTo(const TypeCase& c, std::ostream* stream) {
    *stream << c.descr;
}

class NpyType : public testing::TestWithParam<TypeCase> {};

// Two values in each version of the format.
TEST_P(NpyType, IsRead) {
    const auto [descr, dtype, size] = GetParam();
    const std::string values = std::string("a0b1c2d3e4f5g6h7").substr(0, 2 * size);
    for (const int version : {1, 2, 3}) {
        SCOPED_TRACE(version);
        const PageEnd file(npy_file(version, npy_header(descr, "(2,)"), values));
        const io::Array array = io::parse_npy(file.bytes(), "file");
        EXPECT_EQ(array.dtype, dtype);
        EXPECT_EQ(array.shape, std::vector<std::int64_t>{2});
        EXPECT_EQ(values_of(array), values);
    }
}

// NumPy has no bf16, and a name of it is read only.
TEST_P(NpyType, IsWrittenAsNumPyWritesIt) {
    const auto [descr, dtype, size] = GetParam();
    const std::string values = std::string("a0b1c2d3e4f5g6h7a0b1c2d3e4f5g6h7a0b1c2d3e4f5g6h7").substr(0, 6 * size);
    const TemporaryFolder folder;
    const io::Array array{dtype, {2, 3}, values.data()};
    if (dtype == DType::bf16) {
        EXPECT_THROW(io::write_npy(folder.file("a.npy"), array), io::FileError);
        EXPECT_TRUE(folder.names().empty());
        return;
    }
    io::write_npy(folder.file("a.npy"), array);
    // What numpy.save wrote: spaces and a newline up to byte 128, where the values start.
    std::string expected = "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': (2, 3), }";
    expected.append(117 - expected.size(), ' ');
    EXPECT_EQ(content(folder.file("a.npy")), std::string("\x93NUMPY\x01\x00\x76\x00", 10) + expected + '\n' + values);
    EXPECT_EQ(folder.names(), std::set<std::string>{"a.npy"});
    const io::NpyFile file(folder.file("a.npy"));
    EXPECT_EQ(file.array().dtype, dtype);
    EXPECT_EQ(file.array().shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(values_of(file.array()), values);
}

INSTANTIATE_TEST_SUITE_P(Each, NpyType,
                         testing::Values(TypeCase{"<f8", DType::fp64, 8}, TypeCase{"<f4", DType::fp32, 4},
                                         TypeCase{"<f2", DType::fp16, 2}, TypeCase{"bfloat16", DType::bf16, 2},
                                         TypeCase{"|V2", DType::bf16, 2}, TypeCase{"<V2", DType::bf16, 2},
                                         TypeCase{"|b1", DType::boolean, 1}, TypeCase{"<i8", DType::int64, 8},
                                         TypeCase{"<i4", DType::int32, 4}, TypeCase{"|u1", DType::uint8, 1}));

struct ShapeCase {
    std::string text;
    std::vector<std::int64_t> shape;
};

TEST(Npy, ReadsShapes) {
    const std::vector<ShapeCase> cases = {{"()", {}},           {"(1,)", {1}}, {"(1, 1)", {1, 1}},
                                          {"( 1 ,1,)", {1, 1}}, {"(0,)", {0}}, {"(3, 0, 2)", {3, 0, 2}}};
    for (const auto& [text, shape] : cases) {
        SCOPED_TRACE(text);
        const std::string values = std::ranges::count(shape, 0) != 0 ? "" : bytes_of(1.5f);
        const PageEnd file(npy_file(1, npy_header("<f4", text), values));
        EXPECT_EQ(io::parse_npy(file.bytes(), "file").shape, shape);
        EXPECT_EQ(values_of(io::parse_npy(file.bytes(), "file")), values);
    }
}

// Any order of the keys, either quote, no trailing comma, no padding; and one dimension is the same in either order.
TEST(Npy, ReadsAnyWayToWriteTheHeader) {
    for (const char* header : {"{'shape': (2,), 'fortran_order': False, 'descr': '<f4'}",
                               R"({"descr":"<f4","fortran_order":False,"shape":(2,)})",
                               "\t{ 'descr' : '<f4' , 'fortran_order' : True , 'shape' : ( 2 , ) , } \r\n\n"}) {
        SCOPED_TRACE(header);
        const PageEnd file(npy_file(1, header, bytes_of(1.0f, 2.0f)));
        EXPECT_EQ(values_of(io::parse_npy(file.bytes(), "file")), bytes_of(1.0f, 2.0f));
    }
}

TEST(Npy, WritesShapes) {
    const TemporaryFolder folder;
    const float value = 2.5f;
    for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{
             {}, {1}, {0}, {2, 0}, {1, 1, 1, 1, 1, 1}, std::vector<std::int64_t>(64, 1)}) {
        io::write_npy(folder.file("a.npy"), {DType::fp32, shape, &value});
        const io::NpyFile file(folder.file("a.npy"));
        EXPECT_EQ(file.array().shape, shape);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.array().data) % 64, 0U);
        EXPECT_EQ(values_of(file.array()), std::ranges::count(shape, 0) != 0 ? "" : bytes_of(value));
    }
}

}  // namespace
}  // namespace flashtile::tests
