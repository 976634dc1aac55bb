// gpu_resources.h: owners of a GPU's memory, streams, events and captured graphs, for the command line and the tests.
// The library never owns any: it is given its caller's. Every failure is a flashtile::Error with the driver's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "cuda/device.h"

namespace flashtile::gpu_resources {

// Why this process can use no such GPU, or "".
std::string why_not(int ordinal = 0);

// Waits until a GPU has done everything that it was given.
void synchronize(int ordinal = 0);

std::size_t free_bytes(int ordinal = 0);

// Device memory. Copies and fills wait until they are through, and for all work that was submitted before them.
class Buffer {
public:
    Buffer() = default;
    explicit Buffer(std::size_t bytes, int ordinal = 0);
    ~Buffer();
    Buffer(Buffer&& other) noexcept { *this = std::move(other); }
    Buffer& operator=(Buffer&& other) noexcept;

    void* data() const { return reinterpret_cast<void*>(address_); }
    std::size_t size() const { return size_; }

    void upload(std::span<const std::byte> from, std::size_t offset = 0);
    void download(std::span<std::byte> to, std::size_t offset = 0) const;
    void fill(std::byte value);
    // Fills all of the buffer with copies of its first `period` bytes.
    void repeat(std::size_t period);

private:
    gpu::CUdeviceptr address_ = 0;
    std::size_t size_ = 0;
    int ordinal_ = 0;
};

// A stream that waits for no other.
class Stream {
public:
    explicit Stream(int ordinal = 0);
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    gpu::CUstream handle() const { return handle_; }
    int ordinal() const { return ordinal_; }
    void synchronize() const;
    // Submits a copy from memory that must stay until the stream has come that far.
    void upload(const Buffer& to, std::span<const std::byte> from) const;

private:
    gpu::CUstream handle_ = nullptr;
    int ordinal_;
};

// A point in a stream.
class Event {
public:
    explicit Event(int ordinal = 0);
    ~Event();
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

    void record(const Stream& stream) const;
    void synchronize() const;
    float milliseconds_since(const Event& earlier) const;  // both have happened

private:
    gpu::CUevent handle_ = nullptr;
    int ordinal_;
};

// What `work` submits to the stream, captured instead of run, to be launched any number of times.
class Graph {
public:
    Graph(const Stream& stream, const std::function<void()>& work);
    ~Graph();
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    void launch(const Stream& stream) const;

private:
    gpu::CUgraphExec handle_ = nullptr;
    int ordinal_;
};

}  // namespace flashtile::gpu_resources
