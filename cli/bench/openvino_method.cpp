// openvino_method.cpp: see openvino_method.h.
#include "bench/openvino_method.h"

#include <utility>

#include "bench/peer_method.h"

namespace flashtile::cli::bench {
namespace {

class OpenVino final : public PeerMethod {
public:
    using PeerMethod::PeerMethod;
    std::string why_not(const Point& point) const override { return openvino_lacks(point); }
};

}  // namespace

std::string openvino_lacks(const Point& point) {
    if (point.pass != Pass::forward) return "it has the forward pass alone";
    if (point.dtype == flashtile::fp16) return "it computes fp16 in another type on CPUs";
    if (point.heads != point.kv_heads) return "its operator takes as many key heads as query heads";
    return "";
}

std::shared_ptr<PeerProcess> start_openvino() {
    return std::make_shared<PeerProcess>("openvino", "OpenVINO");
}

std::unique_ptr<Method> make_openvino(std::shared_ptr<PeerProcess> process) {
    return std::make_unique<OpenVino>(std::move(process), "openvino");
}

}  // namespace flashtile::cli::bench
