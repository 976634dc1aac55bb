// access_test.cpp: whether 32 bits hold the offsets, in bytes, of all elements that functions read, which lie at steps
// of the caller's choice.
#include <gtest/gtest.h>

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/plan/access.h"

namespace flashtile::gpu {
namespace {

// Dimensions as pairs of how many elements and the step between them.
bool near(const std::vector<std::pair<std::int64_t, std::int64_t>>& dimensions) {
    Operands x;
    functions::FunctionTensor& tensor = x.function_tensors[0];
    tensor.rank = static_cast<std::int32_t>(dimensions.size());
    for (std::size_t d = 0; d < dimensions.size(); ++d) std::tie(tensor.shape[d], tensor.stride[d]) = dimensions[d];
    return access_of(Problem{}, x).near_tensors;
}

constexpr std::int64_t kFarthest = ((std::int64_t{1} << 31) - 1) / 8;  // elements of 8 bytes are the widest

TEST(Access, TheFarthestElementCounts) {
    EXPECT_TRUE(near({{2, kFarthest}}));
    EXPECT_FALSE(near({{2, kFarthest + 1}}));
    EXPECT_TRUE(near({{kFarthest + 1, 1}}));
    EXPECT_FALSE(near({{kFarthest + 2, 1}}));
    EXPECT_TRUE(near({{3, kFarthest / 2}}));
    EXPECT_FALSE(near({{4, kFarthest / 2}}));
}

TEST(Access, DimensionsAddUp) {
    const std::int64_t third = kFarthest / 3;
    EXPECT_TRUE(near({{2, third}, {2, third}, {2, third}}));
    EXPECT_FALSE(near({{2, third}, {2, third}, {2, third}, {2, third}}));
    EXPECT_FALSE(near({{1 << 20, 1 << 20}, {1 << 20, 1 << 20}})) << "although each product has many bits";
}

TEST(Access, StepsBackCountAsSteps) {
    EXPECT_TRUE(near({{2, -kFarthest}}));
    EXPECT_FALSE(near({{2, -kFarthest - 1}}));
    EXPECT_FALSE(near({{2, kFarthest}, {2, -kFarthest}})) << "one dimension's steps do not make up for another's";
}

TEST(Access, AStepThatIsNeverTakenCountsNot) {
    EXPECT_TRUE(near({{1, std::int64_t{1} << 60}, {16, 1}}));
}

}  // namespace
}  // namespace flashtile::gpu
