// repeat_test.cpp: the same call gives the same bits, run after run: forward always, backward where `deterministic`.
#include "device/on_gpu.h"
#include "unit/run.h"

namespace flashtile::device_tests {
namespace {

using conformance::Case;
using conformance::ProblemData;

class Repeat : public OnGpu {};

struct Variant {
    const char* name;
    void (*apply)(Case&);
};

constexpr Variant kVariants[] = {
    {"plain", [](Case&) {}},
    {"causal", [](Case& c) { c.causal = true; }},
    {"window",
     [](Case& c) {
         c.window = {200, 50};
     }},
    {"dropout", [](Case& c) { c.dropout = 0.1; }},
    {"bias of all heads",
     [](Case& c) {
         c.bias = {.present = true, .spans = {false, false, true, true}, .rank = 2};
     }},
    {"bias of keys",
     [](Case& c) {
         c.bias = {.present = true, .spans = {false, false, false, true}, .rank = 1};
     }},
    {"one kv head", [](Case& c) { c.kv_heads = 1; }},
    {"packed",
     [](Case& c) {
         c.lengths_q = {700, 1, 0, 333};
         c.lengths_k = {900, 40, 7, 333};
     }},
};

TEST_F(Repeat, GivesTheSameBits) {
    for (const Variant& variant : kVariants)
        for (const dtype type : unit::kTypes)
            for (const bool deterministic : {true, false}) {
                SCOPED_TRACE(std::string(variant.name) + ", dtype " + std::to_string(static_cast<int>(type)));
                Case c;
                c.type = type;
                c.heads = 8;
                c.kv_heads = 2;
                c.seqlen_q = 900;
                c.seqlen_k = 1100;
                c.head_dim = c.head_dim_v = 64;
                c.deterministic = deterministic;
                c.poison_unseen = false;
                variant.apply(c);
                ProblemData data(c, kGpu);
                const flashtile::options o = data.options(isa::automatic);
                const unit::Outputs first = unit::run(data, o);
                for (int n = 0; n < 5; ++n) {
                    const unit::Outputs again = unit::run(data, o);
                    EXPECT_EQ(again.out == first.out, true);
                    EXPECT_EQ(again.lse == first.lse, true);
                    if (!deterministic) continue;
                    EXPECT_EQ(again.dq == first.dq, true);
                    EXPECT_EQ(again.dk == first.dk, true);
                    EXPECT_EQ(again.dv == first.dv, true);
                    EXPECT_EQ(again.dbias == first.dbias, true);
                }
            }
}

}  // namespace
}  // namespace flashtile::device_tests
