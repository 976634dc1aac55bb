// serving_graphs_test.cpp: appending to a cache and merging, captured in a CUDA graph: a replay goes by the lengths,
// pages and numbers that lie in device memory then. The host reads none of them.
#include <vector>

#include "conformance/guarded_tensor.h"
#include "conformance/random_source.h"
#include "device/on_gpu.h"

namespace flashtile::device_tests {
namespace {

using conformance::Guard;
using conformance::GuardedTensor;

class ServingGraphs : public OnGpu {};

GuardedTensor on_gpu(dtype type, std::vector<std::int64_t> shape) {
    return {type, std::move(shape), {}, Guard::nan_bands, kGpu};
}

void draw(GuardedTensor& t, conformance::RandomSource& random) {
    for (std::size_t n = 0; n < t.size(); ++n) t.set(n, random.normal());
}

flashtile::options on(const gpu_resources::Stream& stream) {
    flashtile::options o;
    o.stream = stream.handle();
    return o;
}

// Two sequences, one new row each, on pages of 4 rows.
TEST_F(ServingGraphs, AppendsWhereAReplayFindsLengthsAndPages) {
    conformance::RandomSource random(5);
    constexpr std::size_t kRow = 2 * 64;  // heads of 64 columns
    GuardedTensor k = on_gpu(bf16, {2, 1, 2, 64}), v = on_gpu(bf16, {2, 1, 2, 64}),
                  k_cache = on_gpu(bf16, {6, 4, 2, 64}), v_cache = on_gpu(bf16, {6, 4, 2, 64}),
                  lengths = on_gpu(dtype::int32, {2}), table = on_gpu(dtype::int32, {2, 3});
    draw(k_cache, random), draw(v_cache, random);
    for (std::size_t n = 0; n < 2; ++n) lengths.set(n, 0);
    for (std::size_t n = 0; n < 6; ++n) table.set(n, -1);  // nothing has a place yet
    for (GuardedTensor* t : {&k, &v, &k_cache, &v_cache, &lengths, &table}) t->upload();

    const gpu_resources::Stream stream;
    const append_args args{.k = k.view(),
                           .v = v.view(),
                           .k_cache = k_cache.view(),
                           .v_cache = v_cache.view(),
                           .block_table = table.view(),
                           .cache_seqlens = lengths.view()};
    append_kv(on(stream), args);  // loads the kernel
    stream.synchronize();
    const gpu_resources::Graph graph(stream, [&] { append_kv(on(stream), args); });

    std::vector<double> expected_k = k_cache.values(), expected_v = v_cache.values();
    for (int replay = 0; replay < 6; ++replay) {
        draw(k, random), draw(v, random);
        for (std::size_t n = 0; n < 6; ++n)
            table.set(n, static_cast<double>((n + static_cast<std::size_t>(replay)) % 6));
        const std::size_t used[] = {static_cast<std::size_t>(replay * 2), static_cast<std::size_t>(11 - replay)};
        for (std::size_t b = 0; b < 2; ++b) {
            lengths.set(b, static_cast<double>(used[b]));
            const auto page = static_cast<std::size_t>(table.get(b * 3 + used[b] / 4));
            for (std::size_t c = 0; c < kRow; ++c) {
                expected_k[(page * 4 + used[b] % 4) * kRow + c] = k.get(b * kRow + c);
                expected_v[(page * 4 + used[b] % 4) * kRow + c] = v.get(b * kRow + c);
            }
        }
        for (GuardedTensor* t : {&k, &v, &lengths, &table}) t->upload();
        graph.launch(stream);
        k_cache.download(), v_cache.download();
        EXPECT_EQ(k_cache.values(), expected_k) << "replay " << replay;
        EXPECT_EQ(v_cache.values(), expected_v) << "replay " << replay;
    }
}

TEST_F(ServingGraphs, MergesWhatAReplayFinds) {
    conformance::RandomSource random(6);
    GuardedTensor outs = on_gpu(bf16, {3, 2, 5, 4, 64}), lses = on_gpu(fp32, {3, 2, 4, 5}),
                  out = on_gpu(bf16, {2, 5, 4, 64}), lse = on_gpu(fp32, {2, 4, 5}),
                  direct = on_gpu(bf16, {2, 5, 4, 64});
    draw(outs, random), draw(lses, random);
    for (GuardedTensor* t : {&outs, &lses, &out, &lse, &direct}) t->upload();
    const gpu_resources::Stream stream;
    merge(on(stream), outs.view(), lses.view(), out.view(), lse.view());
    stream.synchronize();
    const gpu_resources::Graph graph(stream,
                                     [&] { merge(on(stream), outs.view(), lses.view(), out.view(), lse.view()); });
    std::vector<double> previous;
    for (int replay = 0; replay < 3; ++replay) {
        draw(outs, random), draw(lses, random);
        outs.upload(), lses.upload();
        graph.launch(stream);
        stream.synchronize();
        merge(on(stream), outs.view(), lses.view(), direct.view());
        out.download(), direct.download();
        EXPECT_EQ(out.values(), direct.values()) << "replay " << replay;
        EXPECT_NE(out.values(), previous) << "replay " << replay;
        previous = out.values();
    }
}

}  // namespace
}  // namespace flashtile::device_tests
