// baselines_test.cpp: the baselines on a GPU, and our own general kernels as the baselines launch them, held against
// dense attention in fp64 with the bounds that the library's own kernels have.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "baselines/cuda/attention.h"
#include "conformance/problem_data.h"
#include "conformance/reference.h"
#include "device/on_gpu.h"

namespace flashtile::gpu_baselines {
namespace {

using conformance::Case;
using conformance::Expected;
using conformance::GuardedTensor;

struct Trial {
    std::string name;
    std::function<std::unique_ptr<Attention>(const Shape&, Element)> make{};
    dtype type;
    std::int64_t head_dim;
    bool causal;
    std::int64_t seqlen_q = 150, seqlen_k = 150;
};

// "flash_attention_1_all_of_fp16_64"
std::string name_of(const testing::TestParamInfo<Trial>& info) {
    const Trial& t = info.param;
    return t.name + (t.type == fp16 ? "_fp16_" : "_bf16_") + std::to_string(t.head_dim) +
           (t.causal ? "_causal_" : "_full_") + std::to_string(t.seqlen_q) + "x" + std::to_string(t.seqlen_k);
}

Case case_of(const Trial& t) {
    Case c;
    c.name = t.name;
    c.type = t.type;
    c.batch = 2;
    c.heads = c.kv_heads = 2;
    c.seqlen_q = t.seqlen_q;
    c.seqlen_k = t.seqlen_k;
    c.head_dim = c.head_dim_v = t.head_dim;
    c.causal = t.causal;
    c.guard = conformance::Guard::page_before;  // as aligned as an allocation is
    return c;
}

void expect_near(const char* name, const GuardedTensor& tensor, const std::vector<double>& values,
                 const Expected& expected) {
    const oracle::Error error = oracle::error_of(conformance::only(values, expected.owned), expected.exact);
    EXPECT_LE(error.max, expected.allowed.max) << name;
    EXPECT_LE(error.rms, expected.allowed.rms) << name;
    EXPECT_TRUE(tensor.poison_intact(expected.owned)) << "something was written outside " << name;
}

class Baselines : public device_tests::OnGpu, public testing::WithParamInterface<Trial> {};

TEST_P(Baselines, AreRight) {
    const Case c = case_of(GetParam());
    conformance::ProblemData data(c, device_tests::kGpu);
    const conformance::Reference reference(c, oracle::Pass::forward_and_backward);
    const Shape shape{.batch = c.batch,
                      .seqlen_q = c.seqlen_q,
                      .seqlen_k = c.seqlen_k,
                      .heads = c.heads,
                      .kv_heads = c.kv_heads,
                      .head_dim = c.head_dim,
                      .causal = GetParam().causal,
                      .scale = static_cast<float>(data.reference.scale)};
    const auto at = [](const GuardedTensor& tensor) { return tensor.view().raw().data; };
    const Operands operands{.q = at(data.q),
                            .k = at(data.k),
                            .v = at(data.v),
                            .out = at(data.out),
                            .lse = at(data.lse),
                            .dout = at(data.dout),
                            .dq = at(data.dq),
                            .dk = at(data.dk),
                            .dv = at(data.dv)};
    const auto attention = GetParam().make(shape, c.type == fp16 ? Element::fp16 : Element::bf16);

    data.upload();
    const gpu_resources::Stream stream;
    attention->forward(operands, stream);
    attention->backward(operands, stream);
    stream.synchronize();
    data.download();
    expect_near("out", data.out, data.out.values(), reference.out);
    if (GetParam().name != "standard") {
        const oracle::Error error = oracle::error_of(data.lse_by_row(), reference.lse.exact);
        EXPECT_LE(error.max, reference.lse.allowed.max) << "lse";
    }
    expect_near("dq", data.dq, data.dq.values(), reference.dq);
    expect_near("dk", data.dk, data.dk.values(), reference.dk);
    expect_near("dv", data.dv, data.dv.values(), reference.dv);
}

std::vector<Trial> trials() {
    std::vector<Trial> list;
    const auto add = [&](const std::string& name, const auto& make) {
        list.push_back({name, make, bf16, 64, true});
        list.push_back({name, make, fp16, 64, false, 70, 333});
        list.push_back({name, make, fp16, 128, true, 200, 130});  // some queries see no key
        list.push_back({name, make, bf16, 128, false, 129, 1});
        list.push_back({name, make, bf16, 96, true, 65, 257});
    };
    add("standard", [](const Shape& s, Element e) { return make_standard(s, e, Passes::both); });
    add("general", [](const Shape& s, Element e) {
        return make_general(s, e, Passes::both, general_tiles(s.head_dim, gpu::device(device_tests::kGpu.id).facts()),
                            true);
    });
    for (int n = 0; n < 8; ++n) {
        const WorkPartition ways{(n & 1) != 0, (n & 2) != 0, (n & 4) != 0};
        const std::string name = std::string("flash_attention_1") + (ways.deferred ? "_deferred" : "") +
                                 (ways.over_sequence ? "_over_sequence" : "") +
                                 (ways.split_queries ? "_split_queries" : "");
        const auto with = [=](auto choice) {
            return [=](const Shape& s, Element e) {
                const TileChoices choices =
                    flash_attention_1_tiles(s.head_dim, ways, gpu::device(device_tests::kGpu.id).facts());
                return make_flash_attention_1(s, e, Passes::both, ways,
                                              {choice(choices.forward), choice(choices.backward)});
            };
        };
        add(name, with([](const auto& tiles) { return tiles.front(); }));
        const auto last = with([](const auto& tiles) { return tiles.back(); });
        list.push_back({name + "_last_tile", last, fp16, 128, true, 200, 130});
        list.push_back({name + "_last_tile", last, bf16, 64, false, 70, 333});
    }
    return list;
}

INSTANTIATE_TEST_SUITE_P(Both, Baselines, testing::ValuesIn(trials()), name_of);

}  // namespace
}  // namespace flashtile::gpu_baselines
