// gpu_resources.cpp: see gpu_resources.h.
#include "gpu_resources/gpu_resources.h"

#include <algorithm>
#include <exception>
#include <stdexcept>

namespace flashtile::gpu_resources {

using namespace gpu;  // the driver, as src/cuda calls it

std::string why_not(int ordinal) try {
    static_cast<void>(device(ordinal));
    return "";
} catch (const std::exception& e) {
    return e.what();
}

void synchronize(int ordinal) {
    const ContextScope current(device(ordinal));
    driver().check(driver().cuCtxSynchronize(), "waiting for the GPU");
}

std::size_t free_bytes(int ordinal) {
    const ContextScope current(device(ordinal));
    std::size_t free = 0, total = 0;
    driver().check(driver().cuMemGetInfo(&free, &total), "asking for free GPU memory");
    return free;
}

Buffer::Buffer(std::size_t bytes, int ordinal) : size_(bytes), ordinal_(ordinal) {
    const ContextScope current(device(ordinal));
    driver().check(driver().cuMemAlloc(&address_, std::max<std::size_t>(bytes, 1)),
                   "allocating " + std::to_string(bytes) + " bytes of GPU memory");
}

Buffer::~Buffer() {
    if (address_ == 0) return;
    const ContextScope current(device(ordinal_));
    driver().cuMemFree(address_);
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(size_, other.size_);
    std::swap(ordinal_, other.ordinal_);
    return *this;
}

void Buffer::upload(std::span<const std::byte> from, std::size_t offset) {
    if (offset + from.size() > size_) throw std::out_of_range("Buffer::upload");
    synchronize(ordinal_);
    const ContextScope current(device(ordinal_));
    driver().check(driver().cuMemcpyHtoD(address_ + offset, from.data(), from.size()), "copying to the GPU");
    synchronize(ordinal_);
}

void Buffer::download(std::span<std::byte> to, std::size_t offset) const {
    if (offset + to.size() > size_) throw std::out_of_range("Buffer::download");
    synchronize(ordinal_);
    const ContextScope current(device(ordinal_));
    driver().check(driver().cuMemcpyDtoH(to.data(), address_ + offset, to.size()), "copying from the GPU");
}

void Buffer::fill(std::byte value) {
    synchronize(ordinal_);
    const ContextScope current(device(ordinal_));
    driver().check(driver().cuMemsetD8Async(address_, std::to_integer<unsigned char>(value), size_, nullptr),
                   "filling GPU memory");
    synchronize(ordinal_);
}

void Buffer::repeat(std::size_t period) {
    synchronize(ordinal_);
    const ContextScope current(device(ordinal_));
    for (std::size_t done = period; done < size_; done *= 2)  // what is there stays periodic
        driver().check(driver().cuMemcpyDtoD(address_ + done, address_, std::min(done, size_ - done)),
                       "copying within the GPU");
    synchronize(ordinal_);
}

Stream::Stream(int ordinal) : ordinal_(ordinal) {
    const ContextScope current(device(ordinal));
    driver().check(driver().cuStreamCreate(&handle_, CU_STREAM_NON_BLOCKING), "making a stream");
}

Stream::~Stream() {
    const ContextScope current(device(ordinal_));
    driver().cuStreamDestroy(handle_);
}

void Stream::synchronize() const {
    const ContextScope current(device(ordinal_));
    driver().check(driver().cuStreamSynchronize(handle_), "waiting for a stream");
}

void Stream::upload(const Buffer& to, std::span<const std::byte> from) const {
    if (from.size() > to.size()) throw std::out_of_range("Stream::upload");
    const ContextScope current(device(ordinal_));
    driver().check(
        driver().cuMemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(to.data()), from.data(), from.size(), handle_),
        "copying to the GPU in a stream");
}

Event::Event(int ordinal) : ordinal_(ordinal) {
    const ContextScope current(device(ordinal));
    driver().check(driver().cuEventCreate(&handle_, CU_EVENT_DEFAULT), "making an event");
}

Event::~Event() {
    const ContextScope current(device(ordinal_));
    driver().cuEventDestroy(handle_);
}

void Event::record(const Stream& stream) const {
    const ContextScope current(device(ordinal_));
    driver().check(driver().cuEventRecord(handle_, stream.handle()), "recording an event");
}

void Event::synchronize() const {
    const ContextScope current(device(ordinal_));
    driver().check(driver().cuEventSynchronize(handle_), "waiting for an event");
}

float Event::milliseconds_since(const Event& earlier) const {
    const ContextScope current(device(ordinal_));
    float milliseconds = 0.0f;
    driver().check(driver().cuEventElapsedTime(&milliseconds, earlier.handle_, handle_), "reading events");
    return milliseconds;
}

Graph::Graph(const Stream& stream, const std::function<void()>& work) : ordinal_(stream.ordinal()) {
    const ContextScope current(device(ordinal_));
    driver().check(driver().cuStreamBeginCapture(stream.handle(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                   "beginning a capture");
    std::exception_ptr failed;
    try {
        work();
    } catch (...) {
        failed = std::current_exception();
    }
    CUgraph graph = nullptr;
    const CUresult ended = driver().cuStreamEndCapture(stream.handle(), &graph);
    CUresult made = ended;
    if (!failed && ended == CUDA_SUCCESS) made = driver().cuGraphInstantiateWithFlags(&handle_, graph, 0);
    if (graph != nullptr) driver().cuGraphDestroy(graph);
    if (failed) std::rethrow_exception(failed);
    driver().check(made, "capturing a graph");
}

Graph::~Graph() {
    const ContextScope current(device(ordinal_));
    driver().cuGraphExecDestroy(handle_);
}

void Graph::launch(const Stream& stream) const {
    const ContextScope current(device(ordinal_));
    driver().check(driver().cuGraphLaunch(handle_, stream.handle()), "launching a graph");
}

}  // namespace flashtile::gpu_resources
