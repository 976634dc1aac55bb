// other_methods.cpp: the papers' other algorithms as methods of the benchmark.
#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>

#include "baselines/flash2.h"
#include "baselines/rabe_staats.h"
#include "bench/float_method.h"

namespace flashtile::cli::bench {
namespace {

// Elements of the fast memory that block sizes are chosen for: a quarter of a level-2 cache of 1 MiB, of which the
// blocks of backward take 2.5 times as much, and what OpenBLAS packs as much again.
constexpr std::int64_t M = 65536;

// The rule's blocks, unless others are forced on forward.
using Forced = std::optional<baselines::Tile>;

std::string name_with(const char* name, const Forced& forced) {
    return forced ? fmt::format("{} {}x{}", name, forced->Br, forced->Bc) : name;
}

class Flash1 final : public FloatMethod {
public:
    explicit Flash1(Forced forced = {}) : forced_(forced) {}
    explicit Flash1(const BlockPattern& seen) : seen_(&seen) {}
    std::string name() const override { return name_with("flash1", forced_); }

    void prepare(const Point& point, const Inputs& inputs) override {
        const auto rows = static_cast<std::size_t>(point.batch * point.heads * point.seqlen);
        l_.resize(rows);
        m_.resize(rows);
        FloatMethod::prepare(point, inputs);
    }

private:
    baselines::Tile tile() const {
        if (seen_ != nullptr) return {BlockPattern::rows, BlockPattern::rows};
        return forced_.value_or(baselines::flash1_tile(M, point_.head_dim));
    }
    baselines::Masking masking() const { return {.blocks = seen_ != nullptr ? seen_->seen.data() : nullptr}; }
    void forward() override {
        baselines::flash1_forward(shape(), masking(), tile(), q_.data(), k_.data(), v_.data(), results_.out.data(),
                                  l_.data(), m_.data(), point_.threads);
    }
    void backward() override {
        baselines::flash1_backward(shape(), masking(), tile(), q_.data(), k_.data(), v_.data(), results_.out.data(),
                                   l_.data(), m_.data(), dout_.data(), results_.dq.data(), results_.dk.data(),
                                   results_.dv.data(), point_.threads);
    }

    Forced forced_;
    const BlockPattern* seen_ = nullptr;
    std::vector<float> l_, m_;
};

class Flash2 final : public FloatMethod {
public:
    explicit Flash2(Forced forced = {}) : forced_(forced) {}
    std::string name() const override { return name_with("flash2", forced_); }

    void prepare(const Point& point, const Inputs& inputs) override {
        L_.resize(static_cast<std::size_t>(point.batch * point.heads * point.seqlen));
        FloatMethod::prepare(point, inputs);
    }

private:
    void forward() override {
        const baselines::Tile tile = forced_.value_or(baselines::flash2_forward_tile(M, point_.head_dim));
        baselines::flash2_forward(shape(), {}, tile, q_.data(), k_.data(), v_.data(), results_.out.data(), L_.data(),
                                  point_.threads);
    }
    void backward() override {
        baselines::flash2_backward(shape(), {}, baselines::flash2_backward_tile(M, point_.head_dim), q_.data(),
                                   k_.data(), v_.data(), results_.out.data(), L_.data(), dout_.data(),
                                   results_.dq.data(), results_.dk.data(), results_.dv.data(), point_.threads);
    }

    Forced forced_;
    std::vector<float> L_;
};

class RabeStaats final : public FloatMethod {
public:
    std::string name() const override { return "rabe_staats"; }

private:
    void forward() override {
        baselines::rabe_staats_forward(shape(), {}, q_.data(), k_.data(), v_.data(), results_.out.data(),
                                       point_.threads);
    }
    void backward() override {
        baselines::rabe_staats_backward(shape(), {}, q_.data(), k_.data(), v_.data(), dout_.data(), results_.dq.data(),
                                        results_.dk.data(), results_.dv.data(), point_.threads);
    }
};

template <class Other>
std::unique_ptr<Method> make() {
    return std::make_unique<Other>();
}

const std::map<std::string, std::unique_ptr<Method> (*)()> makers = {
    {"flash1", make<Flash1>}, {"flash2", make<Flash2>}, {"rabe_staats", make<RabeStaats>}};

}  // namespace

std::vector<std::string> other_method_names() {
    std::vector<std::string> names;
    names.reserve(makers.size());
    for (const auto& [name, maker] : makers) names.push_back(name);
    return names;
}

std::unique_ptr<Method> make_other(const std::string& name) {
    return makers.at(name)();
}

std::unique_ptr<Method> make_with_blocks(const std::string& name, baselines::Tile tile) {
    if (name == "flash1") return std::make_unique<Flash1>(tile);
    return std::make_unique<Flash2>(tile);
}

std::unique_ptr<Method> make_block_sparse(const BlockPattern& seen) {
    return std::make_unique<Flash1>(seen);
}

}  // namespace flashtile::cli::bench
