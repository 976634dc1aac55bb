// backend.cpp: runs a problem on a GPU: plan, workspace, launches on the caller's stream.
#include "cuda/backend.h"

#include <initializer_list>
#include <optional>
#include <string>

#include "core/error.h"
#include "cuda/choices.h"
#include "cuda/device.h"
#include "cuda/jit/images.h"
#include "cuda/jit/nvrtc.h"
#include "cuda/launch.h"
#include "cuda/plan.h"
#include "cuda/tensor_map.h"

namespace flashtile::gpu {
namespace {

CUstream stream_of(const Execution& execution) {
    return static_cast<CUstream>(execution.stream);
}

// A call's device memory: what the caller brought, or some of the stream's pool until the work is done.
class Workspace {
public:
    Workspace(const Execution& execution, std::size_t bytes) : stream_(stream_of(execution)) {
        if (execution.workspace != nullptr) {
            if (execution.workspace_size < bytes)
                throw Error(FLASHTILE_INVALID_ARGUMENT,
                            "workspace_size is " + std::to_string(execution.workspace_size) + ", and this call needs " +
                                std::to_string(bytes) + " bytes");
            base_ = reinterpret_cast<CUdeviceptr>(execution.workspace);
            return;
        }
        driver().check(driver().cuMemAllocAsync(&base_, bytes, stream_),
                       "allocating a workspace of " + std::to_string(bytes) + " bytes");
        own_ = true;
    }
    ~Workspace() {
        if (own_) driver().cuMemFreeAsync(base_, stream_);
    }
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;

    CUdeviceptr address() const { return base_; }

    template <class T>
    T* at(std::size_t offset) const {
        return reinterpret_cast<T*>(base_ + offset);
    }

private:
    CUstream stream_;
    CUdeviceptr base_ = 0;
    bool own_ = false;
};

std::string ran(const PlannedKernel& kernel) {
    return std::string("cuda ") + name_of(kernel.config.kernel);
}

// Throws what the kernels' first run would throw where nothing holds their code and there is no NVRTC to compile it.
void require_images(std::initializer_list<const PlannedKernel*> kernels, const Device& gpu) {
    if (why_no_nvrtc().empty()) return;
    for (const PlannedKernel* kernel : kernels)
        if (kernel->blocks > 0) image_for(kernel->config, gpu.facts().architecture);
}

class CudaBackend final : public Backend {
public:
    const char* name() const override { return "cuda"; }
    std::int32_t device_type() const override { return FLASHTILE_CUDA; }

    std::size_t forward_workspace(const Problem& p, const Operands& x, const Execution& execution) const override {
        const Device& gpu = device(execution.device_id);
        return plan_forward(p, access_of(p, x), gpu.facts(), choices_for(gpu)).workspace;
    }
    std::size_t backward_workspace(const Problem& p, const Operands& x, const Execution& execution) const override {
        const Device& gpu = device(execution.device_id);
        return plan_backward(p, access_of(p, x), gpu.facts(), choices_for(gpu)).workspace;
    }

    std::string forward(const Problem& p, const Operands& x, const Execution& execution) const override {
        const Device& gpu = device(execution.device_id);
        const ForwardPlan plan = plan_forward(p, access_of(p, x), gpu.facts(), choices_for(gpu));
        const ContextScope scope(gpu);
        KernelParams params = params_of(p, x);
        const bool hopper = plan.forward.config.kernel == Kernel::forward_sm90;
        if (hopper) set_maps(params, plan.forward.config, p, x);
        params.rounds = plan.rounds;
        std::optional<Workspace> workspace;
        if (plan.workspace > 0) {
            workspace.emplace(execution, plan.workspace);
            params.ws_ticket = workspace->at<unsigned>(0);
            driver().check(driver().cuMemsetD32Async(workspace->address(), 0, 1, stream_of(execution)),
                           "clearing a workspace");
        }
        launch(plan.forward, params, gpu, stream_of(execution));
        return ran(plan.forward);
    }

    std::string backward(const Problem& p, const Operands& x, const Execution& execution) const override {
        const Device& gpu = device(execution.device_id);
        const BackwardPlan plan = plan_backward(p, access_of(p, x), gpu.facts(), choices_for(gpu));
        const ContextScope scope(gpu);
        const Workspace workspace(execution, plan.workspace);
        KernelParams params = params_of(p, x);
        params.unit_rows = plan.backward.config.Br;
        params.units = plan.units;
        params.ws_lse = workspace.at<float>(plan.lse);
        params.ws_lse_natural = workspace.at<float>(plan.lse_natural);
        params.ws_D = workspace.at<float>(plan.D);
        params.ws_dq = workspace.at<float>(plan.dq);
        params.ws_turn = workspace.at<unsigned>(plan.turn);
        const bool hopper = plan.backward.config.kernel == Kernel::backward_sm90;
        if (hopper) set_maps(params, plan.backward.config, p, x);
        params.row_flip = hopper ? 1 : 0;
        for (const PlannedKernel* kernel : {&plan.prepare, &plan.backward, &plan.finish, &plan.bias})
            launch(*kernel, params, gpu, stream_of(execution));
        return ran(plan.backward);
    }

    std::string would_run(Pass pass, const Problem& p, const Operands& x, const Execution& execution) const override {
        const Device& gpu = device(execution.device_id);
        Access access = access_of(p, x);
        access.lse = true;
        access.dbias = static_cast<bool>(x.bias);
        if (pass == Pass::forward) {
            const ForwardPlan plan = plan_forward(p, access, gpu.facts(), choices_for(gpu));
            require_images({&plan.forward}, gpu);
            return ran(plan.forward);
        }
        const BackwardPlan plan = plan_backward(p, access, gpu.facts(), choices_for(gpu));
        require_images({&plan.prepare, &plan.backward, &plan.finish, &plan.bias}, gpu);
        return ran(plan.backward);
    }

    void dropout_mask(const Problem& p, const Operands& x, const Execution& execution) const override {
        const Device& gpu = device(execution.device_id);
        const PlannedKernel plan = plan_dropout_mask(p, gpu.facts());
        if (plan.blocks == 0) return;
        const ContextScope scope(gpu);
        launch(plan, params_of(p, x), gpu, stream_of(execution));
    }

    void read(void* to, const void* from, std::size_t bytes, const Execution& execution) const override {
        const ContextScope scope(device(execution.device_id));
        const CUstream stream = stream_of(execution);
        CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
        driver().check(driver().cuStreamIsCapturing(stream, &capturing), "asking whether a stream is captured");
        if (capturing != CU_STREAM_CAPTURE_STATUS_NONE)
            throw Error(FLASHTILE_INVALID_ARGUMENT,
                        "check_values is 1 while the stream is captured, allowed is 0: a capture cannot wait");
        constexpr const char* kWhat = "reading lengths for check_values";
        driver().check(driver().cuMemcpyDtoHAsync(to, reinterpret_cast<CUdeviceptr>(from), bytes, stream), kWhat);
        driver().check(driver().cuStreamSynchronize(stream), kWhat);
    }
};

}  // namespace

const Backend& backend() {
    static constexpr CudaBackend instance;
    return instance;
}

}  // namespace flashtile::gpu
