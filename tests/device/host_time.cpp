// host_time.cpp: what a call costs the host. Prints a line of JSON.
//
//   flashtile_host_time          microseconds of a warm forward and backward, and of as many bare launches of an empty
//                                kernel with as large a parameter block
//   flashtile_host_time first    seconds from the first forward (and backward) to its result: of a process that has a
//                                GPU and a stream, but has loaded no kernel; what is in the cache is the caller's
//                                affair
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <flashtile/flashtile.hpp>
#include <functional>
#include <string>
#include <vector>

#include "gpu_resources/gpu_resources.h"
#include "shared/kernel_params.h"

namespace flashtile {
namespace {

using gpu_resources::Buffer;
using gpu_resources::Stream;

constexpr std::int64_t kSeqlen = 64, kHeads = 1, kHeadDim = 64;

// A problem so small that the GPU is always done before the host.
class SmallCall {
public:
    explicit SmallCall(const Stream& stream) {
        for (Buffer& b : memory_) b.fill(std::byte{0});
        options_.stream = stream.handle();
        workspace_ = Buffer(std::max<std::size_t>(64, backward_workspace(options_, at(0), at(1), at(2), args())));
        options_.workspace = workspace_.data();
        options_.workspace_size = workspace_.size();
    }
    void forward() const { v0::forward(options_, at(0), at(1), at(2), at(3), lse()); }
    void backward() const { v0::backward(options_, at(0), at(1), at(2), args()); }

private:
    tensor at(std::size_t n) const { return view(memory_[n].data(), bf16, {1, kSeqlen, kHeads, kHeadDim}, v0::cuda()); }
    tensor lse() const { return view(memory_[8].data(), fp32, {1, kHeads, kSeqlen}, v0::cuda()); }
    backward_args args() const {
        return {.out = at(3), .lse = lse(), .dout = at(4), .dlse = {}, .dq = at(5), .dk = at(6), .dv = at(7)};
    }

    static Buffer make() { return Buffer(kSeqlen * kHeads * kHeadDim * 4); }
    std::array<Buffer, 9> memory_{make(), make(), make(), make(), make(), make(), make(), make(), make()};
    Buffer workspace_;
    flashtile::options options_;
};

// The driver's own part of a launch.
class EmptyKernel {
public:
    explicit EmptyKernel(const Stream& stream) : stream_(stream) {
        const std::string ptx =
            ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry empty(.param .align 8 .b8 p[" +
            std::to_string(sizeof params_) + "])\n{ ret; }\n";
        const gpu::ContextScope current(gpu::device(0));
        const auto& driver = gpu::driver();
        gpu::CUmodule module = nullptr;
        driver.check(driver.cuModuleLoadData(&module, ptx.c_str()), "loading the empty kernel");
        driver.check(driver.cuModuleGetFunction(&function_, module, "empty"), "finding the empty kernel");
    }
    void launch() {
        const gpu::ContextScope current(gpu::device(0));
        const auto& driver = gpu::driver();
        void* arguments[] = {&params_};
        driver.check(driver.cuLaunchKernel(function_, 1, 1, 1, 128, 1, 1, 0, stream_.handle(), arguments, nullptr),
                     "launching the empty kernel");
    }

private:
    const Stream& stream_;
    gpu::CUfunction function_ = nullptr;
    KernelParams params_{};
};

double seconds_of(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Medians of bursts that no queue is too short for, alternating between the works.
std::vector<double> microseconds_each(const Stream& stream, const std::vector<std::function<void()>>& works) {
    constexpr int rounds = 101, burst = 100;
    std::vector<std::vector<double>> samples(works.size());
    for (int round = 0; round < rounds; ++round)
        for (std::size_t n = 0; n < works.size(); ++n) {
            const double seconds = seconds_of([&] {
                for (int call = 0; call < burst; ++call) works[n]();
            });
            stream.synchronize();
            samples[n].push_back(seconds / burst * 1e6);
        }
    std::vector<double> medians;
    for (auto& s : samples) {
        std::nth_element(s.begin(), s.begin() + rounds / 2, s.end());
        medians.push_back(s[rounds / 2]);
    }
    return medians;
}

void warm(const Stream& stream, const SmallCall& problem) {
    problem.forward();
    problem.backward();
    stream.synchronize();
    EmptyKernel empty(stream);
    const auto each =
        microseconds_each(stream, {[&] { empty.launch(); }, [&] { problem.forward(); }, [&] { problem.backward(); }});
    std::printf(
        "{\"launch_us\": %.3f, \"forward_us\": %.3f, \"backward_us\": %.3f, \"forward_beyond_launch_us\": %.3f}\n",
        each[0], each[1], each[2], each[1] - each[0]);
}

void first(const Stream& stream, const SmallCall& problem) {
    const auto to_the_end = [&](auto call) {
        return seconds_of([&] {
            call();
            stream.synchronize();
        });
    };
    const double forward = to_the_end([&] { problem.forward(); });
    const double backward = to_the_end([&] { problem.backward(); });
    std::printf("{\"first_forward_s\": %.4f, \"first_backward_s\": %.4f}\n", forward, backward);
}

}  // namespace
}  // namespace flashtile

int main(int argc, char** argv) {
    try {
        const flashtile::gpu_resources::Stream stream;
        const flashtile::SmallCall problem(stream);
        if (argc == 2 && std::strcmp(argv[1], "first") == 0)
            flashtile::first(stream, problem);
        else
            flashtile::warm(stream, problem);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "flashtile_host_time: %s\n", e.what());
        return 2;
    }
    return 0;
}
