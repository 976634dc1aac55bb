// torch_method.cpp: see torch_method.h.
#include "bench/torch_method.h"

#include <fmt/format.h>

#include <utility>

#include "bench/peer_method.h"

namespace flashtile::cli::bench {
namespace {

class Torch final : public PeerMethod {
public:
    using PeerMethod::PeerMethod;

    std::string why_not(const Point& point) const override {
        if (point.page_size != 0) return "it takes no pages";
        if (name() != "torch_standard") return "";
        // Scores, masked scores and P, in the inputs' type; autograd keeps P and makes dP and dS.
        const double matrices = has_backward(point.pass) ? 5 : 3;
        const double needed = matrices * point.score_bytes() * (point.dtype == flashtile::fp32 ? 1.0 : 0.5);
        if (needed <= memory_to_use()) return "";
        return fmt::format("its score matrices take {:.1f} GiB, {:.1f} GiB may be used", needed / (1 << 30),
                           memory_to_use() / (1 << 30));
    }
};

}  // namespace

std::shared_ptr<PeerProcess> start_torch() {
    return std::make_shared<PeerProcess>("torch", "PyTorch");
}

std::unique_ptr<Method> make_torch(std::shared_ptr<PeerProcess> process, const std::string& name) {
    return std::make_unique<Torch>(std::move(process), name);
}

}  // namespace flashtile::cli::bench
