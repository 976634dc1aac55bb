// lengths_test.cpp: lengths in device memory that lie. The host does not read them, so kernels clamp them: nothing
// outside the tensors is read or written, and `check_values` finds them with a synchronisation.
#include <cstring>
#include <limits>

#include "device/on_gpu.h"
#include "unit/run.h"

namespace flashtile::device_tests {
namespace {

using conformance::Case;
using conformance::ProblemData;

class LyingLengths : public OnGpu {};

Case packed(dtype type, bool wide) {
    Case c;
    c.type = type;
    c.heads = 4;
    c.kv_heads = 2;
    c.head_dim = c.head_dim_v = 40;
    c.lengths_q = {33, 150, 1, 64};
    c.lengths_k = {33, 170, 70, 64};
    c.causal = true;
    c.wide_lengths = wide;
    c.deterministic = true;
    c.poison_unseen = false;
    return c;
}

struct Lie {
    const char* argument;
    bool int64_only;
    void (*tell)(ProblemData&);
};

constexpr Lie kLies[] = {
    {"cu_seqlens_q", false, [](ProblemData& d) { d.cu_seqlens_q.set(2, 5); }},     // decreases
    {"cu_seqlens_q", false, [](ProblemData& d) { d.cu_seqlens_q.set(4, 400); }},   // past the end
    {"cu_seqlens_q", false, [](ProblemData& d) { d.cu_seqlens_q.set(0, -100); }},  // before the start
    {"cu_seqlens_q", false, [](ProblemData& d) { d.cu_seqlens_q.set(3, std::numeric_limits<std::int32_t>::max()); }},
    {"cu_seqlens_q", false, [](ProblemData& d) { d.cu_seqlens_q.set(1, std::numeric_limits<std::int32_t>::min()); }},
    {"cu_seqlens_k", false, [](ProblemData& d) { d.cu_seqlens_k.set(2, 5); }},
    {"cu_seqlens_k", false, [](ProblemData& d) { d.cu_seqlens_k.set(4, 100000); }},
    {"cu_seqlens_k", false, [](ProblemData& d) { d.cu_seqlens_k.set(0, -7); }},
    {"cu_seqlens_k", true, [](ProblemData& d) { d.cu_seqlens_k.set(3, 0x1p40); }},
    {"cu_seqlens_q", true, [](ProblemData& d) { d.cu_seqlens_q.set(2, -0x1p62); }},
};

TEST_F(LyingLengths, ReachNothingOutside) {
    for (const dtype type : unit::kTypes)
        for (const bool wide : {false, true})
            for (const Lie& lie : kLies) {
                if (lie.int64_only && !wide) continue;
                SCOPED_TRACE(std::string(lie.argument) + " no. " + std::to_string(&lie - kLies));
                ProblemData data(packed(type, wide), kGpu);
                lie.tell(data);
                for (auto& [name, input] : data.inputs()) input->remember();
                const flashtile::options o = data.options(isa::automatic);
                static_cast<void>(unit::run(data, o));
                for (auto* t : data.outputs()) EXPECT_TRUE(t->poison_intact());
                for (auto& [name, input] : data.inputs()) EXPECT_TRUE(input->unchanged()) << name;
            }
}

TEST_F(LyingLengths, OfUsedKeysToo) {
    for (const double lie : {-1.0, 1000.0, -0x1p31, 0x1p31 - 1})
        for (const bool in_packed : {false, true}) {
            Case c = packed(bf16, false);
            if (!in_packed) {
                c.lengths_q.clear();
                c.lengths_k.clear();
                c.batch = 4;
                c.seqlen_q = 33;
                c.seqlen_k = 70;
            }
            c.used_k = {3, 20, 60, 1};
            ProblemData data(c, kGpu);
            data.used_k.set(1, lie);
            data.used_k.remember();
            const flashtile::options o = data.options(isa::automatic);
            static_cast<void>(unit::run(data, o));
            for (auto* t : data.outputs()) EXPECT_TRUE(t->poison_intact());
            EXPECT_TRUE(data.used_k.unchanged());
        }
}

// Of diagonals and origins that are past their range nothing but scores depends.
TEST_F(LyingLengths, OfDiagonalsAndOriginsToo) {
    for (const double lie : {0x1p62, -0x1p62, 0x1p31, -1.0 - 0x1p31})
        for (const bool window : {false, true}) {
            SCOPED_TRACE(lie);
            Case c = packed(bf16, false);
            if (window) c.window.left = 20;
            c.dropout = 0.3;
            c.diagonals = {3, 0, -5, 40};
            c.origins_i = {7, 0, 16, 1};
            c.origins_j = {0, 1, 2, 3};
            ProblemData data(c, kGpu);
            data.diagonals.set(1, lie);
            data.origins_i.set(2, lie);
            data.origins_j.set(3, lie);
            for (auto& [name, input] : data.inputs()) input->remember();
            flashtile::options o = data.options(isa::automatic);
            static_cast<void>(unit::run(data, o));
            for (auto* t : data.outputs()) EXPECT_TRUE(t->poison_intact());
            for (auto& [name, input] : data.inputs()) EXPECT_TRUE(input->unchanged()) << name;
            o.check_values = true;
            try {
                data.forward(o);
                ADD_FAILURE() << "was not found";
            } catch (const error& e) {
                EXPECT_NE(std::strstr(e.what(), "diagonals[1] is "), nullptr) << e.what();
            }
        }
}

// The longest lengths are the caller's word too.
TEST_F(LyingLengths, OfTheLongest) {
    for (const std::int64_t longest : {1, 20, 100}) {
        ProblemData data(packed(fp16, false), kGpu);
        flashtile::options o = data.options(isa::automatic);
        o.max_seqlen_q = o.max_seqlen_k = longest;
        static_cast<void>(unit::run(data, o));
        for (auto* t : data.outputs()) EXPECT_TRUE(t->poison_intact());
    }
}

TEST_F(LyingLengths, AreFoundWhereAskedFor) {
    for (const bool wide : {false, true}) {
        ProblemData honest(packed(bf16, wide), kGpu);
        flashtile::options o = honest.options(isa::automatic);
        const unit::Outputs expected = unit::run(honest, o);
        o.check_values = true;
        EXPECT_TRUE(unit::run(honest, o) == expected);

        for (const Lie& lie : kLies) {
            if (lie.int64_only && !wide) continue;
            SCOPED_TRACE(std::string(lie.argument) + " no. " + std::to_string(&lie - kLies));
            ProblemData data(packed(bf16, wide), kGpu);
            lie.tell(data);
            flashtile::options checked = data.options(isa::automatic);
            checked.check_values = true;
            try {
                data.forward(checked);
                ADD_FAILURE() << "was not found";
            } catch (const error& e) {
                EXPECT_EQ(e.code(), status::invalid_argument);
                // a sequence that came out too long may also be called longer than max_seqlen_q or max_seqlen_k
                const std::string longest = std::string("max_seqlen_") + lie.argument[std::strlen(lie.argument) - 1];
                EXPECT_TRUE(std::strstr(e.what(), lie.argument) != nullptr ||
                            std::strstr(e.what(), longest.c_str()) != nullptr)
                    << e.what();
            }
            data.download();
            EXPECT_TRUE(data.out.poison_intact(std::vector<bool>(data.out.size(), false)));
            EXPECT_THROW(data.backward(checked), error);
        }
    }
}

}  // namespace
}  // namespace flashtile::device_tests
