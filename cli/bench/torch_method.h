// torch_method.h: PyTorch's attention as methods of the benchmark, by tools/bench_torch.py in a child process.
#pragma once

#include <memory>
#include <string>

#include "bench/method.h"
#include "bench/peer_process.h"

namespace flashtile::cli::bench {

std::shared_ptr<PeerProcess> start_torch();

// `name` is torch_sdpa or torch_standard (matmul, softmax, matmul).
std::unique_ptr<Method> make_torch(std::shared_ptr<PeerProcess> process, const std::string& name);

}  // namespace flashtile::cli::bench
