// placement.h: puts tensors where a command computes: it leaves them in host memory, or copies them to a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <string>
#include <vector>

#include "gpu_resources/gpu_resources.h"

namespace flashtile::cli {

class Placement {
public:
    explicit Placement(const std::string& device);  // "cpu" or "cuda"

    // The view to compute with. The host's memory must outlive this.
    tensor input(const tensor& host);
    tensor output(const tensor& host);

    bool on_gpu() const { return on_gpu_; }
    void upload();    // inputs, once they are filled; and outputs, of which a call may leave rows as they are
    void wait();      // until everything is computed
    void download();  // outputs

private:
    struct Copy {
        tensor host;
        gpu_resources::Buffer buffer;
    };
    tensor place(const tensor& host, std::vector<Copy>& among);

    bool on_gpu_;
    std::vector<Copy> inputs_, outputs_;
};

}  // namespace flashtile::cli
