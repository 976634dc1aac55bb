// streams_test.cpp: a call is submitted to its stream and waits for nothing else; several streams and threads at once
// do not disturb each other.
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "device/device_tensor.h"
#include "device/on_gpu.h"
#include "unit/run.h"

namespace flashtile::device_tests {
namespace {

using conformance::Case;
using conformance::ProblemData;
using unit::Outputs;

class Streams : public OnGpu {};

Case medium(int variant) {
    Case c;
    c.type = variant % 2 == 0 ? bf16 : fp16;
    c.batch = 2;
    c.heads = 4;
    c.kv_heads = 2;
    c.seqlen_q = 500 + variant;
    c.seqlen_k = 600;
    c.head_dim = c.head_dim_v = 64;
    c.causal = variant % 3 == 0;
    c.dropout = variant % 2 == 0 ? 0.1 : 0.0;
    c.deterministic = true;
    c.data_seed = static_cast<std::uint64_t>(variant) + 1;
    return c;
}

// Work that keeps a GPU busy for milliseconds a call.
struct Busy {
    Busy() {
        for (DeviceTensor* t : {&q, &k, &v}) t->fill_normal(1);
    }
    void submit(const gpu_resources::Stream& stream) const {
        flashtile::options o;
        o.stream = stream.handle();
        forward(o, q.view(), k.view(), v.view(), out.view());
    }
    const std::vector<std::int64_t> shape{1, 16384, 16, 128};
    DeviceTensor q{bf16, shape}, k{bf16, shape}, v{bf16, shape}, out{bf16, shape};
};

TEST_F(Streams, ACallReturnsBeforeItsWorkIsDone) {
    const Busy busy;
    const gpu_resources::Stream stream;
    const gpu_resources::Event start, stop;
    busy.submit(stream);  // loads the kernel
    stream.synchronize();
    const auto before = std::chrono::steady_clock::now();
    start.record(stream);
    for (int n = 0; n < 10; ++n) busy.submit(stream);
    stop.record(stream);
    const std::chrono::duration<float, std::milli> submitting = std::chrono::steady_clock::now() - before;
    stop.synchronize();
    EXPECT_LT(submitting.count(), stop.milliseconds_since(start) / 2);
}

// While the stream is still busy, a forward and a backward are submitted that need each other's results.
TEST_F(Streams, CallsOfAStreamRunInOrder) {
    const Busy busy;
    for (const int variant : {0, 1, 3}) {
        ProblemData data(medium(variant), kGpu);
        flashtile::options o = data.options(isa::automatic);
        const Outputs expected = unit::run(data, o);
        for (auto* t : data.outputs()) t->poison();
        data.upload();
        const gpu_resources::Stream stream;
        o.stream = stream.handle();
        busy.submit(stream);
        forward(o, data.q.view(), data.k.view(), data.v.view(), data.out.view(), data.lse.view());
        backward(o, data.q.view(), data.k.view(), data.v.view(), data.gradients());
        data.download();
        EXPECT_TRUE(unit::outputs_of(data) == expected) << variant;
    }
}

TEST_F(Streams, SeveralAtOnce) {
    constexpr int count = 4;
    std::vector<std::unique_ptr<ProblemData>> data;
    std::vector<std::unique_ptr<gpu_resources::Stream>> streams;
    std::vector<Outputs> expected;
    for (int n = 0; n < count; ++n) {
        data.push_back(std::make_unique<ProblemData>(medium(n), kGpu));
        expected.push_back(unit::run(*data.back(), data.back()->options(isa::automatic)));
        for (auto* t : data.back()->outputs()) t->poison();
        data.back()->upload();
        streams.push_back(std::make_unique<gpu_resources::Stream>());
    }
    for (int round = 0; round < 20; ++round)
        for (std::size_t n = 0; n < count; ++n) {
            ProblemData& d = *data[n];
            flashtile::options o = d.options(isa::automatic);
            o.stream = streams[n]->handle();
            forward(o, d.q.view(), d.k.view(), d.v.view(), d.out.view(), d.lse.view());
            backward(o, d.q.view(), d.k.view(), d.v.view(), d.gradients());
        }
    for (std::size_t n = 0; n < count; ++n) {
        data[n]->download();
        EXPECT_TRUE(unit::outputs_of(*data[n]) == expected[n]) << n;
    }
}

TEST_F(Streams, AThreadForEach) {
    std::vector<std::thread> threads;
    for (int n = 0; n < 4; ++n)
        threads.emplace_back([n] {
            ProblemData data(medium(n), kGpu);
            const gpu_resources::Stream stream;
            flashtile::options o = data.options(isa::automatic);
            o.stream = stream.handle();
            const Outputs first = unit::run(data, o);
            for (int round = 0; round < 10; ++round) EXPECT_TRUE(unit::run(data, o) == first) << n;
        });
    for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace flashtile::device_tests
