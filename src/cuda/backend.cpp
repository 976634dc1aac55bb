// backend.cpp: runs a problem on a GPU: plan, workspace, launches on the
// caller's stream. It runs whatever a plan holds; what differs between kernels
// is in the plan.
#include "cuda/backend.h"

#include <optional>
#include <string>

#include "core/append_params_of.h"
#include "core/error.h"
#include "cuda/device.h"
#include "cuda/jit/images.h"
#include "cuda/jit/kernels.h"
#include "cuda/jit/nvrtc.h"
#include "cuda/jit/render.h"
#include "cuda/launch.h"
#include "cuda/plan/append_kv.h"
#include "cuda/plan/merge.h"
#include "cuda/plan/plan.h"
#include "cuda/plan/quantize.h"
#include "cuda/plan_report.h"
#include "cuda/tensor_map.h"
#include "cuda/tuned_tiles.h"

namespace flashtile::gpu {
namespace {

CUstream stream_of(const Execution& execution) {
    return static_cast<CUstream>(execution.stream);
}

// A call's device memory: what the caller brought, or some of the stream's pool
// until the work is done.
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

    CUdeviceptr at(std::size_t offset) const { return base_ + offset; }

private:
    CUstream stream_;
    CUdeviceptr base_ = 0;
    bool own_ = false;
};

// As flashtile_last_run() has it.
std::string name_of(const Plan& plan) {
    return std::string("cuda ") + plan.name;
}

// What forward attends to where it appends first: queries may be rotated, in the workspace if nobody wants them.
Operands with_rotated_queries(const Plan& plan, const Problem& p, const Operands& x,
                              const std::optional<Workspace>& workspace) {
    Operands after = x;
    Operand& rotated = after.append.q_out;
    if (const PlannedRegion* const aside = plan.workspace.find(Region::rotated_q)) {
        const std::int64_t row = p.heads * p.head_dim;
        rotated = {reinterpret_cast<void*>(workspace->at(aside->offset)), p.dtype, p.packed ? 0 : p.seqlen_q * row, row,
                   p.head_dim};
    }
    if (rotated) after.q = rotated;
    return after;
}

// Returns what ran.
std::string run(const Plan& plan, const Problem& p, const Operands& given, const Execution& execution,
                const Device& gpu) {
    const ContextScope scope(gpu);
    const CUstream stream = stream_of(execution);
    std::optional<Workspace> workspace;
    if (plan.workspace.bytes > 0) workspace.emplace(execution, plan.workspace.bytes);
    std::optional<Operands> rotated;
    if (p.appends) rotated = with_rotated_queries(plan, p, given, workspace);
    const Operands& x = rotated ? *rotated : given;
    KernelParams params = params_of(plan, p, x);
    for (const PlannedRegion& region : plan.workspace.regions) {
        const CUdeviceptr address = workspace->at(region.offset);
        set_region(params, region.name, address);
        if (region.cleared)
            driver().check(driver().cuMemsetD32Async(address, 0, region.bytes / sizeof(std::uint32_t), stream),
                           "clearing a workspace");
    }
    for (const Launch& each : plan.launches) {
        if (each.blocks == 0) continue;
        if (each.config.kernel == Kernel::append_kv) {  // whose parameters are its own
            const AppendParams append = append_params_of(p.append, x.append);
            launch(each, &append, gpu, stream);
            continue;
        }
        set_maps(params, each, p, x);
        launch(each, &params, gpu, stream);
    }
    return name_of(plan);
}

template <class PlanPass>
Plan planned(PlanPass plan_pass, const Problem& p, const Operands& x, const Execution& execution) {
    const Device& gpu = device(execution.device_id);
    return plan_pass(p, access_of(p, x), gpu.facts(), tuned_tiles_for(gpu));
}

// For questions, which name no outputs: with lse, and with dbias where there is a bias.
Access access_of_all_outputs(const Problem& p, const Operands& x) {
    Access access = access_of(p, x);
    access.lse = true;
    access.dbias = static_cast<bool>(x.bias);
    access.dsinks = static_cast<bool>(x.sinks);
    return access;
}

// The plan of a pass that is not run now. Throws what its first run would throw where nothing holds the kernels' code
// and there is no NVRTC to compile it.
Plan plan_ahead(Pass pass, const Problem& p, const Access& access, const Device& gpu) {
    const auto plan_pass = pass == Pass::forward ? plan_forward : plan_backward;
    Plan plan = plan_pass(p, access, gpu.facts(), tuned_tiles_for(gpu));
    if (why_no_nvrtc().empty()) return plan;
    for (const Launch& each : plan.launches)
        if (each.blocks > 0) image_for(each.config, gpu.facts().architecture);
    return plan;
}

class CudaBackend final : public Backend {
public:
    const char* name() const override { return "cuda"; }
    std::int32_t device_type() const override { return FLASHTILE_CUDA; }

    std::size_t forward_workspace(const Problem& p, const Operands& x, const Execution& execution) const override {
        return planned(plan_forward, p, x, execution).workspace.bytes;
    }
    std::size_t backward_workspace(const Problem& p, const Operands& x, const Execution& execution) const override {
        return planned(plan_backward, p, x, execution).workspace.bytes;
    }

    std::string forward(const Problem& p, const Operands& x, const Execution& execution) const override {
        return run(planned(plan_forward, p, x, execution), p, x, execution, device(execution.device_id));
    }
    std::string backward(const Problem& p, const Operands& x, const Execution& execution) const override {
        return run(planned(plan_backward, p, x, execution), p, x, execution, device(execution.device_id));
    }
    std::string would_run(Pass pass, const Problem& p, const Operands& x, const Execution& execution) const override {
        return name_of(plan_ahead(pass, p, access_of_all_outputs(p, x), device(execution.device_id)));
    }
    std::vector<Preparation> preparations(Pass pass, const Problem& p, const Operands& x, const Execution& execution,
                                          bool beside) const override {
        const Device& gpu = device(execution.device_id);
        Access access = access_of_all_outputs(p, x);
        if (!beside) {
            if (pass == Pass::forward) access.lse = false;
            access.dbias = access.dsinks = false;
        }
        std::vector<Preparation> list;
        for (const Launch& each : plan_ahead(pass, p, access, gpu).launches) {
            if (each.blocks == 0) continue;
            const auto load = [&gpu, config = each.config, shared_memory = each.shared_memory] {
                const ContextScope scope(gpu);
                kernel_for(config, gpu, shared_memory);
            };
            list.push_back({to_string(each.config) + " " + std::to_string(gpu.ordinal()) + " " +
                                std::to_string(each.shared_memory),
                            load});
        }
        return list;
    }
    std::string plan_report(const Problem& p, const Operands& x, const Execution& execution,
                            const PlanWishes& wishes) const override {
        return gpu::plan_report(
            p, access_of_all_outputs(p, x),
            wishes.device_name != nullptr ? known_device(wishes.device_name) : facts_of(execution.device_id),
            wishes.registers);
    }
    std::string merge(const MergeProblem& p, const MergeOperands& x, const Execution& execution) const override {
        const Device& gpu = device(execution.device_id);
        const Launch planned = plan_merge(p, merge_vector_bytes(p, x), gpu.facts());
        const ContextScope scope(gpu);
        const MergeParams params = params_of(p, x);
        launch(planned, &params, gpu, stream_of(execution));
        return "cuda merge";
    }
    std::string append_kv(const AppendProblem& p, const AppendOperands& x, const Execution& execution) const override {
        const Device& gpu = device(execution.device_id);
        const Launch planned = plan_append(p, append_vector_bytes(p, x), gpu.facts());
        const ContextScope scope(gpu);
        const AppendParams params = append_params_of(p, x);
        launch(planned, &params, gpu, stream_of(execution));
        return "cuda append_kv";
    }
    std::string quantize(const QuantizeProblem& p, const QuantizeOperands& x,
                         const Execution& execution) const override {
        const Device& gpu = device(execution.device_id);
        const QuantizePlan plan = plan_quantize(p, quantize_vector_bytes(p, x), x.scale.blocks, gpu.facts());
        const ContextScope scope(gpu);
        QuantizeParams params = params_of(p, x);
        params.shares = static_cast<unsigned>(plan.shares);
        for (std::size_t n = 0; n < plan.launches.size(); ++n) {
            params.step = plan.steps[n];
            launch(plan.launches[n], &params, gpu, stream_of(execution));
        }
        return "cuda quantize";
    }
    std::string dequantize(const QuantizeProblem& p, const QuantizeOperands& x,
                           const Execution& execution) const override {
        const Device& gpu = device(execution.device_id);
        const Launch planned = plan_dequantize(p, quantize_vector_bytes(p, x), x.scale.blocks, gpu.facts());
        const ContextScope scope(gpu);
        const QuantizeParams params = params_of(p, x);
        launch(planned, &params, gpu, stream_of(execution));
        return "cuda dequantize";
    }
    void dropout_mask(const Problem& p, const Operands& x, const Execution& execution) const override {
        const Device& gpu = device(execution.device_id);
        run(plan_dropout_mask(p, gpu.facts()), p, x, execution, gpu);
    }

    void read(void* to, const void* from, std::size_t bytes, const Execution& execution) const override {
        const ContextScope scope(device(execution.device_id));
        const CUstream stream = stream_of(execution);
        CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
        driver().check(driver().cuStreamIsCapturing(stream, &capturing), "asking whether a stream is captured");
        if (capturing != CU_STREAM_CAPTURE_STATUS_NONE)
            throw Error(FLASHTILE_INVALID_ARGUMENT,
                        "check_values is 1 while the stream is captured, allowed is "
                        "0: a capture cannot wait");
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
