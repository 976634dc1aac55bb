// aligned_test.cpp: the conformance list once more, in the 16-bit types, with tensors that start where a caller's do,
// at multiples of 16 bytes. The list's own bands of NaN leave them at multiples of 4, which TMA cannot read, so
// that Hopper's kernels would hardly run.
#include <string>

#include "conformance/case_list.h"
#include "conformance/judge.h"
#include "conformance/share.h"
#include "device/on_gpu.h"

namespace flashtile::device_tests {
namespace {

using conformance::Case;

// So many cases of the list, wherever it is entered, have some for Hopper's backward pass among them.
constexpr std::size_t kEnough = 40;

class Aligned : public OnGpu {};

TEST_F(Aligned, ConformanceList) {
    const conformance::Share share = conformance::share_of_list();
    std::size_t index = 0, judged = 0, by_hopper = 0;
    for (Case c : conformance::named_cases()) {
        if (c.type == fp32 || !conformance::is_asked_for(c.name) || !share.has(index++)) continue;
        c.guard = conformance::Guard::page_before;
        SCOPED_TRACE(c.name + " with aligned tensors: " + to_string(c));
        try {
            const conformance::Verdict verdict = conformance::judge(c, conformance::cuda_target());
            EXPECT_TRUE(verdict.ok()) << verdict.to_string();
            by_hopper += verdict.ran.ends_with("_sm90");
        } catch (const std::exception& e) {
            ADD_FAILURE() << e.what();
        }
        ++judged;
    }
    EXPECT_GT(judged, 0u);
    if (on_hopper() && judged >= kEnough) {
        EXPECT_GT(by_hopper, 0u) << "of " << judged << " cases";
    }
}

}  // namespace
}  // namespace flashtile::device_tests
