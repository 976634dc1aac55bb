// methods.cpp: see methods.h.
#include "bench_cuda/methods.h"

#include <flashtile/flashtile.hpp>

namespace flashtile::cli::bench_cuda {
namespace {

using namespace gpu_baselines;

class Library final : public Attention {
public:
    Library(const Shape& shape, Element element) : shape_(shape), type_(element == Element::fp16 ? fp16 : bf16) {}

    std::size_t extra_bytes() const override {
        return static_cast<std::size_t>(shape_.batch * shape_.heads * shape_.seqlen_q * 4);  // LSE
    }

    void forward(const Operands& x, const gpu_resources::Stream& stream) override {
        flashtile::forward(options_on(stream), rows(x.q, shape_.seqlen_q), rows(x.k, shape_.seqlen_k),
                           rows(x.v, shape_.seqlen_k), rows(x.out, shape_.seqlen_q), lse(x.lse));
    }

private:
    options options_on(const gpu_resources::Stream& stream) const {
        options o{.causal = shape_.causal, .scale = shape_.scale};
        o.stream = stream.handle();
        return o;
    }
    tensor rows(const void* data, std::int64_t seqlen) const {
        return view(const_cast<void*>(data), type_, {shape_.batch, seqlen, shape_.heads, shape_.head_dim}, cuda(0));
    }
    tensor lse(void* data) const { return view(data, fp32, {shape_.batch, shape_.heads, shape_.seqlen_q}, cuda(0)); }

    Shape shape_;
    dtype type_;
};

}  // namespace

std::string name_of(WorkPartition ways) {
    return std::string("fa1") + (ways.deferred ? "+3.1" : "") + (ways.over_sequence ? "+3.2" : "") +
           (ways.split_queries ? "+3.3" : "");
}

std::vector<Method> methods_for(const Shape& shape, Element element) {
    std::vector<Method> list;
    list.push_back({kStandard, [=] { return make_standard(shape, element); }, standard_texts(shape, element)});
    const auto add_fa1 = [&](const std::string& name, WorkPartition ways, const gpu::Tile& tile) {
        list.push_back({name, [=] { return make_flash_attention_1(shape, element, ways, tile); },
                        flash_attention_1_texts(shape, element, ways, tile)});
    };
    const int shared_memory = gpu::device(0).facts().shared_memory_per_block;
    for (int n = 0; n < 8; ++n) {
        // one switch after the other first
        constexpr int kOrder[] = {0, 1, 2, 4, 3, 5, 6, 7};
        const WorkPartition ways{(kOrder[n] & 1) != 0, (kOrder[n] & 2) != 0, (kOrder[n] & 4) != 0};
        add_fa1(name_of(ways), ways, flash_attention_1_tile(shape.head_dim, ways, shared_memory));
    }
    const gpu::Tile general = general_tile(shape.head_dim);
    add_fa1(kAtGeneralTile, kAllWays, general);
    for (const bool exact : {true, false})
        list.push_back({exact ? kGeneralExact : kGeneral, [=] { return make_general(shape, element, general, exact); },
                        general_texts(shape, element, general, exact)});
    list.push_back({kLibrary, [=] { return std::make_unique<Library>(shape, element); }, {}});
    return list;
}

}  // namespace flashtile::cli::bench_cuda
