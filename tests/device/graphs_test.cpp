// graphs_test.cpp: forward and backward captured in a CUDA graph give, at every replay, what direct calls give: on the
// numbers that lie in memory then, with the dropout that the seed in device memory then draws.
#include <array>
#include <cstring>

#include "device/on_gpu.h"
#include "unit/run.h"

namespace flashtile::device_tests {
namespace {

using conformance::Case;
using conformance::GuardedTensor;
using conformance::ProblemData;
using unit::Outputs;

class Graphs : public OnGpu {};

Case small(dtype type) {
    Case c;
    c.type = type;
    c.batch = 2;
    c.heads = 4;
    c.kv_heads = 2;
    c.seqlen_q = 200;
    c.seqlen_k = 230;
    c.head_dim = c.head_dim_v = 64;
    c.causal = true;
    c.dropout = 0.25;
    c.deterministic = true;
    c.bias = {.present = true, .spans = {false, true, true, true}};
    return c;
}

class Seeds {
public:
    void set(std::uint64_t seed, std::uint64_t offset) {
        const std::array values{seed, offset};
        memory_.upload(std::as_bytes(std::span(values)));
    }
    const std::uint64_t* seed() const { return static_cast<const std::uint64_t*>(memory_.data()); }
    const std::uint64_t* offset() const { return seed() + 1; }

private:
    gpu_resources::Buffer memory_{2 * sizeof(std::uint64_t)};
};

void submit(const ProblemData& data, const flashtile::options& o, GuardedTensor* workspace) {
    flashtile::options with = o;
    if (workspace != nullptr) {
        with.workspace = workspace->view().raw().data;
        with.workspace_size = workspace->size();
    }
    forward(with, data.q.view(), data.k.view(), data.v.view(), data.out.view(), data.lse.view());
    backward(with, data.q.view(), data.k.view(), data.v.view(), data.gradients());
}

GuardedTensor workspace_for(const ProblemData& data, const flashtile::options& o) {
    const std::size_t bytes =
        std::max(forward_workspace(o, data.q.view(), data.k.view(), data.v.view(), data.out.view(), data.lse.view()),
                 backward_workspace(o, data.q.view(), data.k.view(), data.v.view(), data.gradients()));
    return {boolean, {static_cast<std::int64_t>(bytes)}, {}, conformance::Guard::page_before, kGpu};
}

TEST_F(Graphs, ReplaysDrawAfresh) {
    for (const dtype type : unit::kTypes)
        for (const bool own_workspace : {false, true}) {
            ProblemData data(small(type), kGpu);
            Seeds seeds;
            seeds.set(0, 0);
            const gpu_resources::Stream stream;
            flashtile::options direct = data.options(isa::automatic);
            flashtile::options captured = direct;
            captured.stream = stream.handle();
            captured.seed = captured.offset = 99;  // must not be looked at
            captured.seed_ptr = seeds.seed();
            captured.offset_ptr = seeds.offset();
            GuardedTensor workspace = workspace_for(data, captured);
            data.upload();
            submit(data, captured, own_workspace ? &workspace : nullptr);  // loads the kernels
            stream.synchronize();
            const gpu_resources::Graph graph(stream,
                                             [&] { submit(data, captured, own_workspace ? &workspace : nullptr); });

            Outputs previous;
            for (std::uint64_t replay = 1; replay <= 4; ++replay) {
                direct.seed = replay / 2 * 0x123456789ABCDEFu;  // the same seed at 2 and 3, with other numbers in q
                direct.offset = replay / 2 << 33;
                if (replay == 3)
                    for (std::size_t n = 0; n < data.q.size(); ++n) data.q.set(n, -data.q.get(n));
                const Outputs expected = unit::run(data, direct);
                for (auto* t : data.outputs()) t->poison();
                workspace.poison();
                workspace.upload();
                data.upload();
                seeds.set(direct.seed, direct.offset);
                graph.launch(stream);
                data.download();
                workspace.download();
                const Outputs got = unit::outputs_of(data);
                EXPECT_TRUE(got == expected) << "replay " << replay;
                EXPECT_TRUE(workspace.poison_intact());
                for (auto* t : data.outputs()) EXPECT_TRUE(t->poison_intact());
                EXPECT_FALSE(got == previous) << "replay " << replay;
                previous = got;
            }
        }
}

// A config that nothing has asked for yet, first met during a capture.
TEST_F(Graphs, AFirstCallMayBeCapturedOrSaysWhatToDo) {
    Case c = small(bf16);
    c.head_dim = c.head_dim_v = 88;
    c.softcap = 3.0f;
    ProblemData data(c, kGpu);
    const gpu_resources::Stream stream;
    flashtile::options o = data.options(isa::automatic);
    o.stream = stream.handle();
    data.upload();
    try {
        const gpu_resources::Graph graph(stream, [&] { submit(data, o, nullptr); });
        graph.launch(stream);
        data.download();
        const Outputs got = unit::outputs_of(data);
        EXPECT_TRUE(got == unit::run(data, data.options(isa::automatic)));
    } catch (const std::exception& e) {
        EXPECT_NE(std::strstr(e.what(), "prepare"), nullptr) << e.what();
    }
}

}  // namespace
}  // namespace flashtile::device_tests
