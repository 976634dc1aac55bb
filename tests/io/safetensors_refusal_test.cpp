// safetensors_refusal_test.cpp: .safetensors files that are not: each gives an error that names the file and says what
// is allowed.
#include <gtest/gtest.h>

#include "io/safetensors.h"
#include "page_end.h"
#include "raw_file.h"

namespace flashtile::tests {
namespace {

void expect_refused(const std::string& content, const std::string& message) {
    SCOPED_TRACE(testing::PrintToString(content.substr(0, 200)));
    const PageEnd file(content);
    try {
        io::parse_safetensors(file.bytes(), "a.safetensors");
        ADD_FAILURE() << "accepted, not refused with: " << message;
    } catch (const io::FileError& error) {
        EXPECT_EQ(error.what(), "a.safetensors: " + message);
    }
}

// With eight bytes of values.
void expect_header_refused(const std::string& header, const std::string& problem) {
    expect_refused(safetensors_file(header, bytes_of(1.0f, 2.0f)), "malformed .safetensors: the header: " + problem);
}

void expect_tensors_refused(const std::vector<std::string>& entries, const std::string& problem) {
    expect_refused(safetensors_file(header_of(entries), bytes_of(1.0f, 2.0f)), problem);
}

const std::string good_header = header_of({entry("q", "F32", "[2]", 0, 8)});

TEST(SafetensorsRefusal, Lengths) {
    expect_refused("", "truncated .safetensors: 0 bytes hold no header");
    expect_refused("1234567", "truncated .safetensors: 7 bytes hold no header");
    expect_refused(bytes_of(std::uint64_t{3}) + "{}",
                   "truncated .safetensors: the header should have 3 bytes, the file has 2 more");
    expect_refused(bytes_of(std::uint64_t{100'000'000}) + "{}",
                   "truncated .safetensors: the header should have 100000000 bytes, the file has 2 more");
    const std::string too_long = "not a .safetensors file, or a malformed one: the header's length is ";
    expect_refused(bytes_of(std::uint64_t{100'000'001}) + "{}", too_long + "100000001, allowed is at most 100000000");
    // Added to the eight bytes before it, it would come to 2.
    expect_refused(bytes_of(UINT64_MAX - 5) + "{}", too_long + "18446744073709551610, allowed is at most 100000000");
    expect_refused(std::string("\x93NUMPY\1\0{}", 10), too_long + "379676406402707, allowed is at most 100000000");
}

TEST(SafetensorsRefusal, CutShortAnywhere) {
    const std::string whole = safetensors_file(good_header, bytes_of(1.0f, 2.0f));
    for (std::size_t size = 0; size < whole.size(); ++size) {
        const PageEnd file(whole.substr(0, size));
        try {
            io::parse_safetensors(file.bytes(), "a.safetensors");
            ADD_FAILURE() << size << " bytes of " << whole.size() << " were accepted";
        } catch (const io::FileError& error) {
            EXPECT_TRUE(std::string(error.what()).starts_with("a.safetensors: truncated .safetensors: "))
                << error.what();
        }
    }
}

TEST(SafetensorsRefusal, HeadersThatAreNotJson) {
    expect_header_refused("", "it is not JSON at byte 1");
    expect_header_refused("{", "it is not JSON at byte 2");
    expect_header_refused("{'q': 1}", "it is not JSON at byte 2");
    expect_header_refused("{}{}", "it is not JSON at byte 3");
    expect_header_refused(std::string("{}\0", 3), "it is not JSON at byte 3");
    expect_header_refused(good_header + std::string("\0 hidden", 8), "it is not JSON at byte 55");
    expect_header_refused("{\"\xff\":1}", "it is not JSON at byte 3");
    expect_header_refused(R"({"\ud800":1})", "it is not JSON at byte 9");
    expect_header_refused("{\"q\":{\"shape\":[1,]}}", "it is not JSON at byte 18");
    expect_header_refused("{\"q\":{\"shape\":[01]}}", "it is not JSON at byte 17");
}

TEST(SafetensorsRefusal, HeadersThatAreNoObject) {
    expect_header_refused("[]", "it is an array, allowed is an object");
    expect_header_refused("\"q\"", "it is a string, allowed is an object");
    expect_header_refused("7", "it is a number, allowed is an object");
    expect_header_refused("null", "it is null, allowed is an object");
    expect_header_refused(R"({"q":7})", "\"q\" has a number where none may stand");
    expect_header_refused(R"({"q":[]})", "\"q\" has an array where none may stand");
    expect_header_refused(R"({"q":null})", "\"q\" has null where none may stand");
    expect_header_refused(R"({"__metadata__":[]})", "\"__metadata__\" has an array where none may stand");
}

TEST(SafetensorsRefusal, Nesting) {
    for (const std::string start : {"", R"({"q":)", R"({"q":{"dtype":)", R"({"q":{"shape":[)", R"({"__metadata__":)"})
        for (const std::string deeper : {"[", R"({"q":)"}) {
            std::string header = start;
            for (int n = 0; n < 1'000'000; ++n) header += deeper;
            const PageEnd file(safetensors_file(header, ""));
            EXPECT_THROW(io::parse_safetensors(file.bytes(), "a.safetensors"), io::FileError) << start << deeper;
        }
}

TEST(SafetensorsRefusal, KeysMissingTwiceOrUnknown) {
    const std::string lacks = "tensor \"q\" lacks dtype, shape or data_offsets";
    expect_header_refused(R"({"q":{}})", lacks);
    expect_header_refused(R"({"q":{"dtype":"F32","shape":[2]}})", lacks);
    expect_header_refused(R"({"q":{"dtype":"F32","data_offsets":[0,8]}})", lacks);
    expect_header_refused(R"({"q":{"shape":[2],"data_offsets":[0,8]}})", lacks);
    expect_header_refused(R"({"q":{"dtype":"F32","dtype":"F32"}})", "tensor \"q\" has dtype twice");
    expect_header_refused(R"({"q":{"shape":[2],"shape":[2]}})", "tensor \"q\" has shape twice");
    expect_header_refused(R"({"q":{"strides":[1]}})", "tensor \"q\" has the unknown key \"strides\"");
    const std::string q = entry("q", "F32", "[1]", 0, 4);
    expect_header_refused(header_of({q, q}), "the name \"q\" stands twice");
    expect_header_refused(R"({"__metadata__":{},"__metadata__":{}})", "the name \"__metadata__\" stands twice");
    expect_header_refused(R"({"__metadata__":{"a":"1","a":"2"}})", "__metadata__ has \"a\" twice");
}

TEST(SafetensorsRefusal, ValuesOfTheWrongKind) {
    expect_header_refused(R"({"q":{"dtype":4}})", "\"q\" has a number where none may stand");
    expect_header_refused(R"({"q":{"shape":2}})", "\"q\" has a number where none may stand");
    expect_header_refused(R"({"q":{"shape":"2"}})", "\"q\" has a string where none may stand");
    expect_header_refused(R"({"q":{"shape":[[2]]}})", "\"q\" has an array where none may stand");
    expect_header_refused(R"({"q":{"shape":[true]}})", "\"q\" has true or false where none may stand");
    expect_header_refused(R"({"q":{"shape":[2.0]}})", "\"q\" has a fraction where none may stand");
    expect_header_refused(R"({"q":{"data_offsets":{"begin":0}}})", "\"q\" has an object where none may stand");
    expect_header_refused(R"({"q":{"data_offsets":[0,8.5]}})", "\"q\" has a fraction where none may stand");
    expect_header_refused(R"({"__metadata__":{"a":1}})", "\"__metadata__\" has a number where none may stand");
}

TEST(SafetensorsRefusal, Shapes) {
    expect_header_refused(R"({"q":{"shape":[-1]}})", "\"q\" has a negative number where none may stand");
    expect_header_refused(R"({"q":{"shape":[9223372036854775808]}})", "tensor \"q\": a size is 9223372036854775808");
    // Past 64 bits JSON's numbers become floating point.
    expect_header_refused(R"({"q":{"shape":[18446744073709551616]}})", "\"q\" has a fraction where none may stand");
    std::string ones = "1";
    for (int n = 0; n < 64; ++n) ones += ",1";
    expect_header_refused("{\"q\":{\"shape\":[" + ones + "]}}", "tensor \"q\" has more than 64 dimensions");
    for (const char* shape : {"(2305843009213693952,)", "(4294967296, 4294967296)", "(9223372036854775807, 2)",
                              "(9223372036854775807, 0)"}) {
        std::string json = "[" + std::string(shape).substr(1);
        json.resize(json.find_last_of("0123456789") + 1);
        expect_tensors_refused({entry("q", "F32", json + "]", 0, 8)},
                               "malformed .safetensors: tensor \"q\": shape " + std::string(shape) +
                                   " of F32 takes more than 2^63 bytes, data_offsets give 8");
    }
}

TEST(SafetensorsRefusal, OffsetsThatAreNotTheShapes) {
    expect_tensors_refused(
        {entry("q", "F32", "[1]", 0, 8)},
        "malformed .safetensors: tensor \"q\": shape (1,) of F32 takes 4 bytes, data_offsets give 8");
    expect_tensors_refused(
        {entry("q", "F64", "[2]", 0, 8)},
        "malformed .safetensors: tensor \"q\": shape (2,) of F64 takes 16 bytes, data_offsets give 8");
    expect_tensors_refused(
        {entry("q", "F32", "[0]", 0, 8)},
        "malformed .safetensors: tensor \"q\": shape (0,) of F32 takes 0 bytes, data_offsets give 8");
    expect_tensors_refused(
        {entry("q", "F32", "[2]", 0, 0), entry("k", "F32", "[2]", 0, 8)},
        "malformed .safetensors: tensor \"q\": shape (2,) of F32 takes 8 bytes, data_offsets give 0");
}

TEST(SafetensorsRefusal, OffsetsThatAreNoPair) {
    const std::string q = "tensor \"q\": data_offsets has ";
    expect_header_refused(R"({"q":{"data_offsets":[]}})", q + "0 numbers, allowed is 2");
    expect_header_refused(R"({"q":{"data_offsets":[0]}})", q + "1 numbers, allowed is 2");
    expect_header_refused(R"({"q":{"data_offsets":[0,4,8]}})", q + "3 numbers, allowed is 2");
    expect_header_refused(R"({"q":{"data_offsets":[0,4,8,12]}})", "\"q\" has a number where none may stand");
    expect_header_refused(R"({"q":{"data_offsets":[-8,0]}})", "\"q\" has a negative number where none may stand");
}

TEST(SafetensorsRefusal, OffsetsOutOfRangeOverlappingOrWithHoles) {
    const std::string q = "malformed .safetensors: tensor \"q\": data_offsets is ";
    const std::string k = entry("k", "F32", "[1]", 0, 4);
    expect_tensors_refused({entry("q", "F32", "[1]", 8, 4)}, q + "[8, 4], which ends before it begins");
    expect_tensors_refused({k, entry("q", "F32", "[2]", 4, 12)},
                           "truncated .safetensors: tensor \"q\": data_offsets is [4, 12], and the file holds 8 bytes "
                           "of values");
    expect_tensors_refused({entry("q", "U8", "[2]", UINT64_MAX - 1, UINT64_MAX)},
                           "truncated .safetensors: tensor \"q\": data_offsets is [18446744073709551614, "
                           "18446744073709551615], and the file holds 8 bytes of values");
    expect_tensors_refused({k, entry("q", "F32", "[1]", 3, 7)}, q + "[3, 7], which overlaps another tensor");
    expect_tensors_refused({k, entry("q", "F32", "[1]", 0, 4)}, q + "[0, 4], which overlaps another tensor");
    expect_tensors_refused({k, entry("q", "U8", "[3]", 5, 8)}, q + "[5, 8], which leaves a hole after byte 4");
    expect_tensors_refused({entry("q", "F32", "[1]", 4, 8)}, q + "[4, 8], which leaves a hole after byte 0");
    expect_tensors_refused({entry("q", "F32", "[1]", 0, 4)},
                           "malformed .safetensors: the tensors end at byte 4, and the file holds 8 bytes of values");
    expect_tensors_refused({},
                           "malformed .safetensors: the tensors end at byte 0, and the file holds 8 bytes of values");
    // A type that nobody here reads hides nothing either.
    expect_tensors_refused({k, entry("q", "F8_E5M2", "[4]", 0, 4)}, q + "[0, 4], which overlaps another tensor");
}

// What a terminal would obey is not shown as it is, nor without end.
TEST(SafetensorsRefusal, ShowsNamesSafely) {
    expect_header_refused(R"({"\u001b[2J":7})", R"("\u001b[2J" has a number where none may stand)");
    expect_header_refused("{\"\xc2\x9b\":7}", R"("\u009b" has a number where none may stand)");
    expect_header_refused("{\"" + std::string(100000, 'x') + "\":7}",
                          '"' + std::string(119, 'x') + "... has a number where none may stand");
}

}  // namespace
}  // namespace flashtile::tests
