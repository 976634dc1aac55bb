// streams.cpp: streams run what they are given at once. While a stream is captured, what it is given goes into a graph,
// which runs it in the same order when it is launched.
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "emulator/driver/exports.h"
#include "emulator/driver/memory.h"
#include "emulator/driver/modules.h"

using namespace flashtile::gpu;

namespace {

using Clock = std::chrono::steady_clock;
using Work = std::function<CUresult()>;

// What was captured, and the memory that it allocated, which lives as long.
struct Graph {
    std::vector<Work> work;
    std::vector<void*> memory;

    ~Graph() {
        for (void* each : memory) emulator::free(each);
    }
};

struct Capture {
    std::shared_ptr<Graph> graph = std::make_shared<Graph>();
    CUstream origin;
};

// Which streams and events belong to which capture.
struct Captures {
    std::mutex mutex;
    std::map<const void*, std::shared_ptr<Capture>> of;
};
Captures& captures() {
    static auto* instance = new Captures;
    return *instance;
}

std::shared_ptr<Capture> capture_of(const void* stream_or_event) {
    const std::lock_guard lock(captures().mutex);
    const auto found = captures().of.find(stream_or_event);
    return found != captures().of.end() ? found->second : nullptr;
}
void set_capture(const void* stream_or_event, const std::shared_ptr<Capture>& capture) {
    const std::lock_guard lock(captures().mutex);
    if (capture != nullptr)
        captures().of[stream_or_event] = capture;
    else
        captures().of.erase(stream_or_event);
}

CUresult run_or_capture(CUstream stream, Work work) {
    if (const auto capture = capture_of(stream)) {
        capture->graph->work.push_back(std::move(work));
        return CUDA_SUCCESS;
    }
    return work();
}

void* pointer(CUdeviceptr address) {
    return reinterpret_cast<void*>(address);
}

CUresult allocate(CUdeviceptr* address, std::size_t bytes) {
    *address = reinterpret_cast<CUdeviceptr>(emulator::allocate(bytes));
    return *address != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult release(CUdeviceptr address) {
    const std::string wrong = emulator::free(pointer(address));
    return wrong.empty() ? CUDA_SUCCESS : emulator::failed(emulator::kLaunchFailed, wrong);
}

CUresult copy(CUstream stream, void* to, const void* from, std::size_t bytes) {
    return run_or_capture(stream, [=] {
        std::memmove(to, from, bytes);
        return CUDA_SUCCESS;
    });
}

using GraphHandle = std::shared_ptr<Graph>;

}  // namespace

EMULATED cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
    return allocate(address, bytes);
}
EMULATED cuMemFree_v2(CUdeviceptr address) {
    return release(address);
}
EMULATED cuMemAllocAsync(CUdeviceptr* address, std::size_t bytes, CUstream stream) {
    const CUresult result = allocate(address, bytes);
    if (const auto capture = capture_of(stream); capture != nullptr && result == CUDA_SUCCESS)
        capture->graph->memory.push_back(pointer(*address));
    return result;
}
EMULATED cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    return capture_of(stream) != nullptr ? CUDA_SUCCESS : release(address);
}
EMULATED cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t bytes) {
    std::memcpy(pointer(to), from, bytes);
    return CUDA_SUCCESS;
}
EMULATED cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t bytes) {
    std::memcpy(to, pointer(from), bytes);
    return CUDA_SUCCESS;
}
EMULATED cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
    std::memcpy(pointer(to), pointer(from), bytes);
    return CUDA_SUCCESS;
}
EMULATED cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
    return copy(stream, pointer(to), from, bytes);
}
EMULATED cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
    return copy(stream, to, pointer(from), bytes);
}
EMULATED cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
    return run_or_capture(stream, [=] {
        std::memset(pointer(to), value, bytes);
        return CUDA_SUCCESS;
    });
}
EMULATED cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t words, CUstream stream) {
    return run_or_capture(stream, [=] {
        std::fill_n(static_cast<unsigned*>(pointer(to)), words, value);
        return CUDA_SUCCESS;
    });
}

EMULATED cuLaunchKernel(CUfunction function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                        unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                        CUstream stream, void** parameters, void**) {
    const auto& kernel = *reinterpret_cast<const emulator::Kernel*>(function);
    const emulator::LaunchShape shape{{blocks_x, blocks_y, blocks_z}, {threads_x, threads_y, threads_z}, shared_bytes};
    const std::uint64_t threads = std::uint64_t{threads_x} * threads_y * threads_z;
    if (blocks_x == 0 || blocks_y == 0 || blocks_z == 0 || blocks_x % kernel.cluster_blocks != 0 || threads == 0 ||
        threads > 1024 || static_cast<int>(shared_bytes) > kernel.most_shared_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (capture_of(stream) == nullptr) return emulator::run(kernel, shape, parameters);
    // The kernel knows how many bytes it takes.
    struct alignas(64) Piece {
        char bytes[64];
    };
    auto kept = std::make_shared<std::vector<Piece>>((kernel.parameter_bytes + 63) / 64);
    std::memcpy(kept->data(), parameters[0], kernel.parameter_bytes);
    return run_or_capture(stream, [&kernel, shape, kept] {
        void* own[] = {kept->data()};
        return emulator::run(kernel, shape, own);
    });
}

// A launch that may begin early begins in its turn.
EMULATED cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
    return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                          config->blockDimY, config->blockDimZ, config->sharedMemBytes, config->hStream, parameters,
                          extra);
}

EMULATED cuStreamCreate(CUstream* stream, unsigned) {
    *stream = reinterpret_cast<CUstream>(new char);
    return CUDA_SUCCESS;
}
EMULATED cuStreamDestroy_v2(CUstream stream) {
    set_capture(stream, nullptr);
    delete reinterpret_cast<char*>(stream);
    return CUDA_SUCCESS;
}
EMULATED cuStreamSynchronize(CUstream) {
    return CUDA_SUCCESS;
}
EMULATED cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
    if (const auto capture = capture_of(event)) set_capture(stream, capture);
    return CUDA_SUCCESS;
}
EMULATED cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
    *status = capture_of(stream) != nullptr ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}
EMULATED cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode) {
    auto capture = std::make_shared<Capture>();
    capture->origin = stream;
    set_capture(stream, capture);
    return CUDA_SUCCESS;
}
EMULATED cuStreamEndCapture(CUstream stream, CUgraph* graph) {
    const auto capture = capture_of(stream);
    if (capture == nullptr || capture->origin != stream) return CUDA_ERROR_INVALID_VALUE;
    *graph = reinterpret_cast<CUgraph>(new GraphHandle(capture->graph));
    const std::lock_guard lock(captures().mutex);
    std::erase_if(captures().of, [&](const auto& each) { return each.second == capture; });
    return CUDA_SUCCESS;
}
EMULATED cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode*) {
    return CUDA_SUCCESS;
}
EMULATED cuGraphInstantiateWithFlags(CUgraphExec* made, CUgraph graph, unsigned long long) {
    *made = reinterpret_cast<CUgraphExec>(new GraphHandle(*reinterpret_cast<GraphHandle*>(graph)));
    return CUDA_SUCCESS;
}
EMULATED cuGraphLaunch(CUgraphExec graph, CUstream stream) {
    for (const Work& each : (*reinterpret_cast<GraphHandle*>(graph))->work)
        if (const CUresult result = run_or_capture(stream, each); result != CUDA_SUCCESS) return result;
    return CUDA_SUCCESS;
}
EMULATED cuGraphExecDestroy(CUgraphExec graph) {
    delete reinterpret_cast<GraphHandle*>(graph);
    return CUDA_SUCCESS;
}
EMULATED cuGraphDestroy(CUgraph graph) {
    delete reinterpret_cast<GraphHandle*>(graph);
    return CUDA_SUCCESS;
}

// An event is when the host recorded it: work is done by then.
EMULATED cuEventCreate(CUevent* event, unsigned) {
    *event = reinterpret_cast<CUevent>(new Clock::time_point());
    return CUDA_SUCCESS;
}
EMULATED cuEventRecord(CUevent event, CUstream stream) {
    *reinterpret_cast<Clock::time_point*>(event) = Clock::now();
    set_capture(event, capture_of(stream));
    return CUDA_SUCCESS;
}
EMULATED cuEventSynchronize(CUevent) {
    return CUDA_SUCCESS;
}
EMULATED cuEventElapsedTime(float* milliseconds, CUevent first, CUevent last) {
    *milliseconds = std::chrono::duration<float, std::milli>(*reinterpret_cast<Clock::time_point*>(last) -
                                                             *reinterpret_cast<Clock::time_point*>(first))
                        .count();
    return CUDA_SUCCESS;
}
EMULATED cuEventDestroy_v2(CUevent event) {
    set_capture(event, nullptr);
    delete reinterpret_cast<Clock::time_point*>(event);
    return CUDA_SUCCESS;
}
