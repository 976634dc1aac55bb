// openvino_method.h: OpenVINO's ScaledDotProductAttention on the CPU as a method of the benchmark, by
// tools/bench_openvino.py in a child process.
#pragma once

#include <memory>
#include <string>

#include "bench/method.h"
#include "bench/peer_process.h"

namespace flashtile::cli::bench {

// "" where OpenVINO can be timed at the point, else why not.
std::string openvino_lacks(const Point& point);

std::shared_ptr<PeerProcess> start_openvino();
std::unique_ptr<Method> make_openvino(std::shared_ptr<PeerProcess> process);

}  // namespace flashtile::cli::bench
