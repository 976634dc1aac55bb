// methods.cpp: see methods.h.
#include "bench_cuda/methods.h"

#include <algorithm>
#include <flashtile/flashtile.hpp>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <utility>

namespace flashtile::cli::bench_cuda {
namespace {

using namespace gpu_baselines;

class Library final : public Attention {
public:
    // `more` is what the call has beside the shape.
    Library(const Shape& shape, Element element, const options& more = {})
        : shape_(shape), type_(element == Element::fp16 ? fp16 : bf16), options_(more) {}

    std::size_t extra_bytes() const override {
        return static_cast<std::size_t>(shape_.batch * shape_.heads * shape_.seqlen_q * 4) + workspace_.size();  // LSE
    }

    void forward(const Operands& x, const gpu_resources::Stream& stream) override {
        flashtile::forward(options_on(stream), rows(x.q, shape_.seqlen_q), rows(x.k, shape_.seqlen_k),
                           rows(x.v, shape_.seqlen_k), rows(x.out, shape_.seqlen_q), lse(x.lse));
    }

    void backward(const Operands& x, const gpu_resources::Stream& stream) override {
        const tensor q = rows(x.q, shape_.seqlen_q), k = rows(x.k, shape_.seqlen_k), v = rows(x.v, shape_.seqlen_k);
        const backward_args args{.out = rows(x.out, shape_.seqlen_q),
                                 .lse = lse(x.lse),
                                 .dout = rows(x.dout, shape_.seqlen_q),
                                 .dq = rows(x.dq, shape_.seqlen_q),
                                 .dk = rows(x.dk, shape_.seqlen_k),
                                 .dv = rows(x.dv, shape_.seqlen_k)};
        options o = options_on(stream);
        o.workspace_size = backward_workspace(o, q, k, v, args);
        if (workspace_.size() < o.workspace_size) workspace_ = gpu_resources::Buffer(o.workspace_size);
        o.workspace = workspace_.data();
        flashtile::backward(o, q, k, v, args);
    }

private:
    options options_on(const gpu_resources::Stream& stream) const {
        options o = options_;
        o.causal = shape_.causal;
        o.scale = shape_.scale;
        o.stream = stream.handle();
        return o;
    }
    tensor rows(const void* data, std::int64_t seqlen) const {
        return view(const_cast<void*>(data), type_, {shape_.batch, seqlen, shape_.heads, shape_.head_dim}, cuda(0));
    }
    tensor lse(void* data) const { return view(data, fp32, {shape_.batch, shape_.heads, shape_.seqlen_q}, cuda(0)); }

    Shape shape_;
    dtype type_;
    options options_;
    gpu_resources::Buffer workspace_;
};

Passes passes_for(Pass pass) {
    return pass == Pass::forward ? Passes::forward : Passes::both;
}

// "64x128"
std::vector<std::string> names_of(const std::vector<gpu::Tile>& tiles) {
    std::vector<std::string> names;
    names.reserve(tiles.size());
    for (const gpu::Tile& tile : tiles) names.push_back(std::to_string(tile.Br) + "x" + std::to_string(tile.Bc));
    return names;
}

Method standard(const Shape& shape, Element element) {
    return {kStandard,
            [=](Pass pass, std::size_t) { return make_standard(shape, element, passes_for(pass)); },
            {""},
            {""},
            standard_texts(shape, element, Passes::both)};
}

}  // namespace

std::string name_of(WorkPartition ways) {
    return std::string("fa1") + (ways.deferred ? "+3.1" : "") + (ways.over_sequence ? "+3.2" : "") +
           (ways.split_queries ? "+3.3" : "");
}

std::vector<Method> methods_for(const Shape& shape, Element element) {
    const gpu::DeviceFacts& device = gpu::device(0).facts();
    std::vector<Method> list = {standard(shape, element)};
    const auto add_fa1 = [&](const std::string& name, WorkPartition ways, const TileChoices& choices) {
        Method method{name, {}, names_of(choices.forward), names_of(choices.backward), {}};
        method.make = [=](Pass pass, std::size_t n) {
            const bool forward = pass == Pass::forward;
            const Tiles tiles{choices.forward[forward ? n : 0], choices.backward[forward ? 0 : n]};
            return make_flash_attention_1(shape, element, passes_for(pass), ways, tiles);
        };
        for (const gpu::Tile& forward : choices.forward)
            for (const gpu::Tile& backward : choices.backward) {
                const auto texts = flash_attention_1_texts(shape, element, Passes::both, ways, {forward, backward});
                method.texts.insert(method.texts.end(), texts.begin(), texts.end());
            }
        list.push_back(method);
    };
    constexpr int kOrder[] = {0, 1, 2, 4, 3, 5, 6, 7};  // one switch after the other first
    for (const int on : kOrder) {
        const WorkPartition ways{(on & 1) != 0, (on & 2) != 0, (on & 4) != 0};
        add_fa1(name_of(ways), ways, flash_attention_1_tiles(shape.head_dim, ways, device));
    }
    const Tiles general = general_tiles(shape.head_dim, device);
    const TileChoices of_general{{general.forward}, {general.backward}};
    add_fa1(kAtGeneralTile, kAllWays, of_general);
    for (const bool exact : {true, false})
        list.push_back(
            {exact ? kGeneralExact : kGeneral,
             [=](Pass pass, std::size_t) { return make_general(shape, element, passes_for(pass), general, exact); },
             names_of(of_general.forward), names_of(of_general.backward),
             general_texts(shape, element, Passes::both, general, exact)});
    list.push_back(
        {kLibrary, [=](Pass, std::size_t) { return std::make_unique<Library>(shape, element); }, {""}, {""}, {}});
    return list;
}

std::vector<Method> paper_methods(const Shape& shape, Element element) {
    std::vector<Method> list = methods_for(shape, element);
    std::erase_if(list, [](const Method& method) {
        const std::string wanted[] = {kStandard, name_of(WorkPartition{}), kGeneral, kLibrary};
        return std::ranges::count(wanted, method.name) == 0;
    });
    return list;
}

std::string name_of(Blocks blocks) {
    return std::string(kGeneral) + " " + std::to_string(blocks.Br) + "x" + std::to_string(blocks.Bc);
}

Blocks planned_blocks(const Shape& shape, Element element, Pass pass) {
    alignas(64) static std::byte memory[64];  // an address: a plan reads no tensor
    const tensor t = view(memory, element == Element::fp16 ? fp16 : bf16,
                          {shape.batch, shape.seqlen_q, shape.heads, shape.head_dim}, cuda(0));
    const auto plan = nlohmann::json::parse(plan_report({.causal = shape.causal}, t, t, t));
    for (const auto& kernel : plan.at(name_of(pass)).at("kernels"))
        if (pass == Pass::forward || kernel.at("kernel").get<std::string>().starts_with("backward_sm"))
            return {kernel.at("Br"), kernel.at("Bc")};
    throw std::logic_error("the library's plan has no kernel that it is about");
}

std::vector<Method> block_methods(const Shape& shape, Element element, const std::vector<Blocks>& sizes) {
    constexpr int kMostWarps = 8;
    const Tiles general = general_tiles(shape.head_dim, gpu::device(0).facts());
    std::vector<Method> list = {standard(shape, element)};
    for (const Blocks size : sizes) {
        std::vector<gpu::Tile> tiles;
        std::vector<std::string> names;
        for (const int queries : {32, 16})  // of a warp
            if (const int warps = size.Br / queries; warps >= 1 && warps <= kMostWarps) {
                tiles.push_back({128, size.Br, size.Bc, warps, 2, 1, "one of Br x Bc"});
                names.push_back(std::to_string(queries) + " queries a warp");
            }
        Method method{name_of(size), {}, names, {}, {}};
        method.make = [=](Pass, std::size_t n) {
            return make_general(shape, element, Passes::forward, {tiles.at(n), general.backward}, false);
        };
        for (const gpu::Tile& tile : tiles) {
            const auto texts = general_texts(shape, element, Passes::forward, {tile, general.backward}, false);
            method.texts.insert(method.texts.end(), texts.begin(), texts.end());
        }
        list.push_back(std::move(method));
    }
    return list;
}

SeenBlocks::SeenBlocks(const BlockPattern& pattern, std::int64_t seqlen) {
    std::vector<std::uint8_t> places(static_cast<std::size_t>(seqlen * seqlen));
    for (std::int64_t i = 0; i < seqlen; ++i)
        for (std::int64_t j = 0; j < seqlen; ++j)
            places[static_cast<std::size_t>(i * seqlen + j)] =
                pattern
                    .seen[static_cast<std::size_t>(i / BlockPattern::rows * pattern.blocks + j / BlockPattern::rows)];
    const auto upload = [](gpu_resources::Buffer& to, const auto& from) {
        const auto bytes = std::as_bytes(std::span(from));
        to = gpu_resources::Buffer(bytes.size());
        to.upload(bytes);
    };
    upload(places_, places);
    upload(counts_, pattern.counts);
    upload(indices_, pattern.indices);
    mask.mask = view(places_.data(), boolean, {1, 1, seqlen, seqlen}, cuda(0));
    lists.block_lists = pattern.lists(counts_.data(), indices_.data(), cuda(0));
}

std::vector<Method> block_sparse_methods(const Shape& shape, Element element, const SeenBlocks& seen) {
    const auto with = [&](const char* name, const options& more) {
        return Method{
            name, [=](Pass, std::size_t) { return std::make_unique<Library>(shape, element, more); }, {""}, {""}, {}};
    };
    return {with(kBlocksAsMask, seen.mask), with(kLibrary, seen.lists)};
}

}  // namespace flashtile::cli::bench_cuda
