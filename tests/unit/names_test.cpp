// names_test.cpp: a program may have these names itself and still take in the whole namespace. That this compiles is
// the test.
#include <gtest/gtest.h>

#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <string>

using int32 = std::int32_t;
using int64 = std::int64_t;
const std::string name = "the program's own";
bool available(int32 value) {
    return value != 0;
}
const char* why_not() {
    return "the program's own";
}

using namespace flashtile;

TEST(Names, LeaveThoseOfAProgramAlone) {
    const int64 wide = int64{1} << 40;
    EXPECT_EQ(wide >> 40, 1);
    EXPECT_TRUE(available(int32{1}));
    EXPECT_EQ(name, why_not());
    EXPECT_STREQ(isa_name(isa::portable), "portable");
    EXPECT_TRUE(isa_available(isa::portable));
    EXPECT_STREQ(isa_why_not(isa::portable), "");
}
