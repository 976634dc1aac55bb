// xla_call_test.cpp: what XLA's handlers make of names and buffers (src/xla/call.h), on a GPU: the bits of the same
// call through the C++ header, submitted to a stream with a workspace that is given, and captured in a graph.
#include "xla/call.h"

#include <flashtile/flashtile.hpp>
#include <string_view>
#include <vector>

#include "conformance/guarded_tensor.h"
#include "conformance/random_source.h"
#include "device/on_gpu.h"

namespace flashtile::device_tests {
namespace {

using conformance::Guard;
using conformance::GuardedTensor;

class XlaCall : public OnGpu {};

GuardedTensor on_gpu(dtype type, std::vector<std::int64_t> shape) {
    return {type, std::move(shape), {}, Guard::nan_bands, kGpu};
}

xla::Buffer buffer(const GuardedTensor& t) {
    const flashtile_tensor view = t.view().raw();
    return {view.data, view.dtype, t.shape()};
}

// What a call leaves in its results.
std::vector<double> values(std::vector<GuardedTensor*> results) {
    std::vector<double> all;
    for (GuardedTensor* const t : results) {
        t->download();
        const std::vector<double> own = t->values();
        all.insert(all.end(), own.begin(), own.end());
        t->poison();
        t->upload();
    }
    return all;
}

void run(xla::Call& call) {
    ASSERT_EQ(call.run(), FLASHTILE_OK) << flashtile_last_error();
}

// Runs a call, with as much workspace as it asks for, captured in a graph.
void run_captured(xla::Call& call, const gpu_resources::Stream& stream) {
    std::size_t bytes = 0;
    ASSERT_EQ(call.workspace_size(bytes), FLASHTILE_OK) << flashtile_last_error();
    const gpu_resources::Buffer workspace(bytes + 1);
    if (bytes > 0) call.use_workspace(workspace.data(), bytes);
    run(call);  // loads the kernels
    stream.synchronize();
    const gpu_resources::Graph graph(stream, [&] { run(call); });
    graph.launch(stream);
    stream.synchronize();
}

TEST_F(XlaCall, HasTheBitsOfTheCallItself) {
    conformance::RandomSource random(11);
    GuardedTensor q = on_gpu(bf16, {2, 19, 4, 64}), k = on_gpu(bf16, {2, 35, 2, 64}), v = on_gpu(bf16, {2, 35, 2, 64}),
                  bias = on_gpu(fp32, {4, 19, 35}), out = on_gpu(bf16, {2, 19, 4, 64}), lse = on_gpu(fp32, {2, 4, 19}),
                  dout = on_gpu(bf16, {2, 19, 4, 64}), dq = on_gpu(bf16, {2, 19, 4, 64}),
                  dk = on_gpu(bf16, {2, 35, 2, 64}), dv = on_gpu(bf16, {2, 35, 2, 64}),
                  dbias = on_gpu(fp32, {4, 19, 35});
    for (GuardedTensor* const t : {&q, &k, &v, &bias, &dout}) {
        for (std::size_t n = 0; n < t->size(); ++n) t->set(n, random.normal());
        t->upload();
    }
    for (GuardedTensor* const t : {&out, &lse, &dq, &dk, &dv, &dbias}) t->upload();
    const std::uint64_t words[] = {(std::uint64_t{5} << 32) + 7, 11};  // seed and offset
    gpu_resources::Buffer in_memory(sizeof words);
    in_memory.upload(std::as_bytes(std::span(words)));
    const auto word = [&](std::ptrdiff_t n) {
        static const std::int64_t two = 2;
        return xla::Buffer{static_cast<std::uint64_t*>(in_memory.data()) + n, 0, {&two, 1}};
    };

    options o{.causal = true};
    o.softcap = 3.0F;
    o.dropout = 0.25;
    o.deterministic = true;
    o.seed = words[0];
    o.offset = words[1];
    o.bias = bias.view();
    forward(o, q.view(), k.view(), v.view(), out.view(), lse.view());
    backward(o, q.view(), k.view(), v.view(),
             {.out = out.view(),
              .lse = lse.view(),
              .dout = dout.view(),
              .dq = dq.view(),
              .dk = dk.view(),
              .dv = dv.view(),
              .dbias = dbias.view()});
    const std::vector<double> gradients = values({&dq, &dk, &dv, &dbias}), results = values({&out, &lse});

    const gpu_resources::Stream stream;
    const xla::Place place{FLASHTILE_CUDA, kGpu.id, stream.handle()};
    const auto set_and_read = [&](xla::Call& call) {
        call.set("causal", std::int64_t{FLASHTILE_CAUSAL_BOTTOM_RIGHT});
        call.set("softcap", 3.0);
        call.set("dropout", 0.25);
        call.set("deterministic", std::int64_t{1});
        call.read("q", buffer(q));
        call.read("k", buffer(k));
        call.read("v", buffer(v));
        call.read("bias", buffer(bias));
        call.read("seed", word(0));
        call.read("offset", word(1));
    };
    xla::Call there(xla::Pass::forward, place);
    set_and_read(there);
    there.write("out", buffer(out));
    there.write("lse", buffer(lse));
    run_captured(there, stream);

    xla::Call back(xla::Pass::backward, place);
    set_and_read(back);
    back.read("out", buffer(out));
    back.read("lse", buffer(lse));
    back.read("dout", buffer(dout));
    back.write("dq", buffer(dq));
    back.write("dk", buffer(dk));
    back.write("dv", buffer(dv));
    back.write("dbias", buffer(dbias));
    run_captured(back, stream);
    EXPECT_EQ(values({&dq, &dk, &dv, &dbias}), gradients);
    EXPECT_EQ(values({&out, &lse}), results);
}

}  // namespace
}  // namespace flashtile::device_tests
