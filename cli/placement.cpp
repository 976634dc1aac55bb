// placement.cpp: see placement.h.
#include "placement.h"

#include <span>

namespace flashtile::cli {
namespace {

std::size_t bytes_of(dtype type) {
    if (type == fp32 || type == dtype::int32) return 4;
    if (type == dtype::int64) return 8;
    return type == boolean ? 1 : 2;
}

// From the first element to the last.
std::span<std::byte> memory_of(const tensor& host) {
    const flashtile_tensor& t = host.raw();
    std::size_t last = 0;
    for (int n = 0; n < t.rank; ++n) {
        if (t.shape[n] == 0) return {};
        last += static_cast<std::size_t>((t.shape[n] - 1) * t.stride[n]);
    }
    return {static_cast<std::byte*>(t.data), (last + 1) * bytes_of(static_cast<dtype>(t.dtype))};
}

}  // namespace

Placement::Placement(const std::string& device) : on_gpu_(device == "cuda") {}

tensor Placement::input(const tensor& host) {
    return place(host, inputs_);
}

tensor Placement::output(const tensor& host) {
    return place(host, outputs_);
}

tensor Placement::place(const tensor& host, std::vector<Copy>& among) {
    if (!on_gpu_) return host;
    among.push_back({host, gpu_resources::Buffer(memory_of(host).size())});
    const Copy& copy = among.back();
    flashtile_tensor on_gpu = host.raw();
    on_gpu.data = copy.buffer.data();
    on_gpu.device_type = FLASHTILE_CUDA;
    return tensor(on_gpu);
}

void Placement::upload() {
    for (auto* copies : {&inputs_, &outputs_})
        for (Copy& copy : *copies) copy.buffer.upload(memory_of(copy.host));
}

void Placement::wait() {
    if (on_gpu_) gpu_resources::synchronize();
}

void Placement::download() {
    for (const Copy& copy : outputs_) copy.buffer.download(memory_of(copy.host));
}

}  // namespace flashtile::cli
