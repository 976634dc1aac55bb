// tiles_test.cpp: every tile that `flashtile tune` may choose here, held against the oracle: whoever tunes should find
// none that is wrong.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "conformance/judge.h"
#include "conformance/share.h"
#include "device/on_gpu.h"

namespace flashtile::device_tests {
namespace {

using conformance::Case;

class Tiles : public OnGpu {
protected:
    void TearDown() override { forget_choices(false); }

    static nlohmann::json plan_of(const Case& c) {
        // Nothing is read there: the address says how tensors are aligned.
        const auto rows = [&](std::int64_t length, std::int64_t heads) {
            return view(reinterpret_cast<void*>(std::uintptr_t{256}), c.e4m3.present ? fp8_e4m3 : c.type,
                        {c.batch, length, heads, c.head_dim}, kGpu);
        };
        const tensor keys = rows(c.seqlen_k, c.kv_heads);
        return nlohmann::json::parse(plan_report({.causal = c.causal}, rows(c.seqlen_q, c.heads), keys, keys));
    }

    // Whether a pass's plan has the tile that was chosen.
    static bool taken(const nlohmann::json& pass) {
        return std::ranges::any_of(pass["kernels"],
                                   [](const auto& kernel) { return kernel["measured"].template get<bool>(); });
    }
};

TEST_F(Tiles, ThatMayBeChosenAreRight) {
    const conformance::Share share = conformance::share_of_list();
    std::size_t index = 0, judged = 0;
    for (const std::int64_t d : {64, 96, 128, 192, 256})
        for (const auto& [pass, e4m3] : {std::pair("forward", false), {"backward", false}, {"forward", true}}) {
            Case c;
            c.type = d % 128 == 0 || e4m3 ? bf16 : fp16;
            c.e4m3.present = e4m3;
            c.seqlen_q = 333;
            c.seqlen_k = 620;
            c.heads = 4;
            c.kv_heads = 2;
            c.head_dim = c.head_dim_v = d;
            c.causal = true;
            c.guard = conformance::Guard::page_before;  // aligned as Hopper's kernels want it
            const nlohmann::json list = plan_of(c)[pass]["alternatives"];
            for (const auto& each : list) {
                if (!share.has(index++)) continue;
                SCOPED_TRACE(each["choice"]);
                use_choice(each["choice"], false);
                EXPECT_TRUE(taken(plan_of(c)[pass]));
                const auto passes =
                    pass == std::string("forward") ? conformance::Passes::forward : conformance::Passes::both;
                const conformance::Verdict verdict = conformance::judge(c, conformance::cuda_target(), passes);
                EXPECT_TRUE(verdict.ok()) << verdict.to_string();
                ++judged;
            }
        }
    EXPECT_GT(judged, 0u);
}

}  // namespace
}  // namespace flashtile::device_tests
