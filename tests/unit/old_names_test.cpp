// old_names_test.cpp: the names that FLASHTILE_OLD_NAMES brings back.
#define FLASHTILE_OLD_NAMES
#include <flashtile/flashtile.hpp>

#include <gtest/gtest.h>

namespace ft = flashtile;

TEST(OldNames, MeanWhatTheNewOnesMean) {
    EXPECT_EQ(ft::int32, ft::dtype::int32);
    EXPECT_EQ(ft::int64, ft::dtype::int64);
    EXPECT_STREQ(ft::name(ft::isa::avx2), "avx2");
    EXPECT_TRUE(ft::available(ft::isa::portable));
    EXPECT_STREQ(ft::why_not(ft::isa::portable), "");
}
