// safetensors_test.cpp: .safetensors files that are as they should be, read and written.
#include "io/safetensors.h"

#include <gtest/gtest.h>

#include "cli/temporary_folder.h"
#include "page_end.h"
#include "raw_file.h"

namespace flashtile::tests {
namespace {

using io::DType;
using Shape = std::vector<std::int64_t>;

std::string values_of(const io::Array& array) {
    return {static_cast<const char*>(array.data), array.bytes()};
}

struct Type {
    const char* name;
    DType dtype;
    std::size_t size;
};
const std::vector<Type> types = {{"F64", DType::fp64, 8},  {"F32", DType::fp32, 4},     {"F16", DType::fp16, 2},
                                 {"BF16", DType::bf16, 2}, {"BOOL", DType::boolean, 1}, {"I64", DType::int64, 8},
                                 {"I32", DType::int32, 4}, {"U8", DType::uint8, 1}};

// Every type in one file, so that most start at no multiple of their size; the header's length is odd.
TEST(Safetensors, ReadsEveryType) {
    std::vector<std::string> entries = {R"( "__metadata__" : {"format":"pt","":"\u00e9\n"})"};
    std::string values;
    for (const auto& [name, dtype, size] : types) {
        const std::size_t begin = values.size();
        values += std::string("a0b1c2d3e4f5g6h7i8j9k0l1").substr(0, 3 * size);
        entries.push_back(entry(std::string("layer.0/") + name, name, "[3, 1]", begin, values.size()));
    }
    std::string header = header_of(entries);
    header.append(header.size() % 2 == 0 ? 1 : 2, ' ');
    const PageEnd file(safetensors_file(header, values));
    const auto content = io::parse_safetensors(file.bytes(), "file");
    ASSERT_EQ(content.tensors.size(), types.size());
    EXPECT_TRUE(content.unreadable.empty());
    for (const auto& [name, dtype, size] : types) {
        SCOPED_TRACE(name);
        const io::Array& array = content.tensors.at(std::string("layer.0/") + name);
        EXPECT_EQ(array.dtype, dtype);
        EXPECT_EQ(array.shape, (Shape{3, 1}));
        EXPECT_EQ(values_of(array), std::string("a0b1c2d3e4f5g6h7i8j9k0l1").substr(0, 3 * size));
    }
    EXPECT_EQ(content.metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"", "\xc3\xa9\n"}}));
}

// In the header's order or not; keys of an entry likewise; scalars, and sizes of 0 that share one offset.
TEST(Safetensors, ReadsAnyOrder) {
    const std::string header =
        header_of({entry("last", "F32", "[2]", 4, 12), entry("scalar", "F32", "[]", 0, 4),
                   R"("empty":{"data_offsets":[4,4],"shape":[2,0],"dtype":"F32"})", entry("end", "U8", "[0]", 12, 12)});
    const PageEnd file(safetensors_file(header, bytes_of(1.0f, 2.0f, 3.0f)));
    const auto content = io::parse_safetensors(file.bytes(), "file");
    ASSERT_EQ(content.tensors.size(), 4U);
    EXPECT_EQ(values_of(content.tensors.at("scalar")), bytes_of(1.0f));
    EXPECT_EQ(content.tensors.at("scalar").shape, Shape{});
    EXPECT_EQ(values_of(content.tensors.at("last")), bytes_of(2.0f, 3.0f));
    EXPECT_EQ(content.tensors.at("empty").shape, (Shape{2, 0}));
    EXPECT_EQ(values_of(content.tensors.at("empty")), "");
}

TEST(Safetensors, ReadsAFileOfNoTensors) {
    for (const char* header : {"{}", R"({"__metadata__":{}})", " \n{ } "}) {
        const PageEnd file(safetensors_file(header, ""));
        EXPECT_TRUE(io::parse_safetensors(file.bytes(), "file").tensors.empty()) << header;
    }
}

TEST(Safetensors, ReadsE4m3) {
    const PageEnd file(safetensors_file(header_of({entry("k", "F8_E4M3", "[2,3]", 0, 6)}), "abcdef"));
    const auto content = io::parse_safetensors(file.bytes(), "file");
    EXPECT_EQ(content.tensors.at("k").dtype, DType::e4m3);
    EXPECT_EQ(content.tensors.at("k").shape, (Shape{2, 3}));
    EXPECT_EQ(values_of(content.tensors.at("k")), "abcdef");
}

// A tensor of a type that flashtile has no use for keeps nobody from the others.
TEST(Safetensors, LeavesTypesThatItDoesNotKnow) {
    const TemporaryFolder folder;
    const std::string header = header_of({entry("scale", "F8_E5M2", "[4]", 0, 4), entry("q", "F32", "[1]", 4, 8)});
    write(folder.file("a.safetensors"), safetensors_file(header, "abcd" + bytes_of(1.0f)));
    const io::SafetensorsFile file(folder.file("a.safetensors"));
    EXPECT_EQ(values_of(file.at("q")), bytes_of(1.0f));
    EXPECT_FALSE(file.contains("scale"));
    try {
        file.at("scale");
        ADD_FAILURE() << "found";
    } catch (const io::FileError& error) {
        EXPECT_EQ(error.what(), folder.file("a.safetensors") +
                                    ": tensor \"scale\" is of type \"F8_E5M2\", "
                                    "allowed is F64, F32, F16, BF16, F8_E4M3, BOOL, I64, I32, U8");
    }
}

// The whole file as the format's description has it; values start at a multiple of 64.
TEST(Safetensors, WritesTheFormat) {
    const TemporaryFolder folder;
    const auto out = bytes_of(1.0f, 2.0f);
    const auto lse = bytes_of(std::uint16_t{0x3f80});
    io::write_safetensors(folder.file("a.safetensors"),
                          {{"out", {DType::fp32, {1, 2}, out.data()}}, {"lse", {DType::bf16, {1}, lse.data()}}});
    std::string header = R"({"out":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                         R"("lse":{"dtype":"BF16","shape":[1],"data_offsets":[8,10]}})";
    header.append(120 - header.size(), ' ');
    EXPECT_EQ(content(folder.file("a.safetensors")), safetensors_file(header, out + lse));
    EXPECT_EQ(folder.names(), std::set<std::string>{"a.safetensors"});
}

TEST(Safetensors, ReadsWhatItWrites) {
    const TemporaryFolder folder;
    const std::string values = "a0b1c2d3e4f5g6h7";
    io::NamedArrays tensors = {{"", {DType::boolean, {}, values.data()}},
                               {"quote\" \xc3\xa9\n", {DType::uint8, {0, 5}, nullptr}}};
    for (const Type& type : types) tensors.push_back({type.name, {type.dtype, {2, 1}, values.data()}});
    io::write_safetensors(folder.file("a.safetensors"), tensors);
    const io::SafetensorsFile file(folder.file("a.safetensors"));
    ASSERT_EQ(file.tensors().size(), tensors.size());
    for (const auto& [name, array] : tensors) {
        SCOPED_TRACE(name);
        EXPECT_EQ(file.at(name).dtype, array.dtype);
        EXPECT_EQ(file.at(name).shape, array.shape);
        EXPECT_EQ(values_of(file.at(name)), values.substr(0, array.bytes()));
    }
}

}  // namespace
}  // namespace flashtile::tests
