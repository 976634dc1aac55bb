// torch_method.h: PyTorch's attention as methods of the benchmark. The work is done by tools/bench_torch.py in a child
// process, which computes only when asked, so that its timings alternate with ours.
#pragma once

#include <memory>
#include <string>

#include "bench/method.h"

namespace flashtile::cli::bench {

class TorchProcess;

// Starts Python. Throws std::runtime_error, saying what to install, where PyTorch is missing.
std::shared_ptr<TorchProcess> start_torch();
std::string torch_version(const TorchProcess& process);

// `name` is torch_sdpa or torch_standard (matmul, softmax, matmul).
std::unique_ptr<Method> make_torch(std::shared_ptr<TorchProcess> process, const std::string& name);

}  // namespace flashtile::cli::bench
