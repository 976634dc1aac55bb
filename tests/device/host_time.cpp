// host_time.cpp: what a call costs the host. Prints a line of JSON.
//
//   flashtile_host_time          microseconds of a warm forward and backward, and of as many bare launches of an empty
//                                kernel with as large a parameter block
//   flashtile_host_time first [HEAD_DIM [causal]]
//                                seconds from the first forward (and backward) to its result: of a process that has a
//                                GPU and a stream, but has loaded no kernel; what is in the cache, or beside the
//                                library, is the caller's affair. Compares the results with the oracle's, and fails
//                                where they are wrong
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <flashtile/flashtile.hpp>
#include <functional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu_resources/gpu_resources.h"
#include "oracle/attention.h"
#include "oracle/tolerance.h"
#include "shared/kernel_params.h"

namespace flashtile {
namespace {

using gpu_resources::Buffer;
using gpu_resources::Stream;

struct Shape {
    std::int64_t seqlen, heads, head_dim;
    bool causal;

    std::size_t elements() const { return static_cast<std::size_t>(seqlen * heads * head_dim); }
};
constexpr Shape kSmall{64, 1, 64, false};  // the GPU is always done before the host

class SmallCall {
public:
    SmallCall(const Stream& stream, Shape shape) : shape_(shape) {
        for (Buffer& b : memory_) {
            b = Buffer(4 * shape.elements());
            b.fill(std::byte{0});
        }
        options_.causal = shape.causal;
        options_.stream = stream.handle();
        workspace_ = Buffer(std::max<std::size_t>(64, backward_workspace(options_, at(0), at(1), at(2), args())));
        options_.workspace = workspace_.data();
        options_.workspace_size = workspace_.size();
    }
    void forward() const { v0::forward(options_, at(0), at(1), at(2), at(3), lse()); }
    void backward() const { v0::backward(options_, at(0), at(1), at(2), args()); }

    // Their memory: q, k, v, out, dout, dq, dk and dv, each of `elements()`, then lse in fp32.
    std::array<Buffer, 9>& memory() { return memory_; }
    const std::array<Buffer, 9>& memory() const { return memory_; }

private:
    tensor at(std::size_t n) const {
        return view(memory_[n].data(), bf16, {1, shape_.seqlen, shape_.heads, shape_.head_dim}, v0::cuda());
    }
    tensor lse() const { return view(memory_[8].data(), fp32, {1, shape_.heads, shape_.seqlen}, v0::cuda()); }
    backward_args args() const {
        return {.out = at(3), .lse = lse(), .dout = at(4), .dlse = {}, .dq = at(5), .dk = at(6), .dv = at(7)};
    }

    Shape shape_;
    std::array<Buffer, 9> memory_;
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

// Values of bf16 in [-1, 1], put into the buffer too.
std::vector<double> drawn(Buffer& to, std::size_t elements, std::mt19937& random) {
    std::vector<std::uint16_t> bits(elements);
    std::vector<double> values(elements);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    for (std::size_t n = 0; n < elements; ++n) {
        bits[n] = oracle::to_bf16_bits(uniform(random));
        values[n] = oracle::from_bf16_bits(bits[n]);
    }
    to.upload(std::as_bytes(std::span(bits)));
    return values;
}

std::vector<double> read(const Buffer& from, std::size_t elements) {
    std::vector<std::uint16_t> bits(elements);
    from.download(std::as_writable_bytes(std::span(bits)));
    std::vector<double> values;
    for (const std::uint16_t each : bits) values.push_back(oracle::from_bf16_bits(each));
    return values;
}

// q, k, v and dout of the call, drawn, and the problem as the oracle has it.
oracle::Problem drawn_problem(SmallCall& call, const Shape& shape) {
    std::mt19937 random(1);
    oracle::Problem problem;
    problem.sequences = {{.q_length = shape.seqlen, .k_length = shape.seqlen}};
    problem.rows_q = problem.rows_k = shape.seqlen;
    problem.heads = problem.kv_heads = shape.heads;
    problem.head_dim = problem.head_dim_v = shape.head_dim;
    problem.scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
    problem.causal = shape.causal;
    problem.q = drawn(call.memory()[0], shape.elements(), random);
    problem.k = drawn(call.memory()[1], shape.elements(), random);
    problem.v = drawn(call.memory()[2], shape.elements(), random);
    problem.dout = drawn(call.memory()[4], shape.elements(), random);
    return problem;
}

void require_right_results(const SmallCall& call, const Shape& shape, const oracle::Problem& problem) {
    const oracle::Result exact = exact_attention(problem, oracle::Pass::forward_and_backward);
    const oracle::Result standard =
        standard_attention(problem, oracle::Precision::bf16, oracle::Pass::forward_and_backward);
    const auto require = [&](const char* name, std::size_t buffer, std::vector<double> oracle::Result::*values) {
        const oracle::Error error = oracle::error_of(read(call.memory()[buffer], shape.elements()), exact.*values);
        const oracle::Error allowed = oracle::allowed_error(oracle::error_of(standard.*values, exact.*values),
                                                            exact.*values, oracle::Precision::bf16);
        if (!(error.max <= allowed.max && error.rms <= allowed.rms))
            throw std::runtime_error(std::string(name) + " has an error of " + std::to_string(error.max) +
                                     ", allowed is " + std::to_string(allowed.max));
    };
    require("out", 3, &oracle::Result::out);
    require("dq", 5, &oracle::Result::dq);
    require("dk", 6, &oracle::Result::dk);
    require("dv", 7, &oracle::Result::dv);
}

void first(const Stream& stream, const Shape& shape) {
    SmallCall call(stream, shape);
    const oracle::Problem problem = drawn_problem(call, shape);
    const auto to_the_end = [&](auto run) {
        return seconds_of([&] {
            run();
            stream.synchronize();
        });
    };
    const double forward = to_the_end([&] { call.forward(); });
    const std::string ran = last_run();
    const double backward = to_the_end([&] { call.backward(); });
    require_right_results(call, shape, problem);
    std::printf("{\"first_forward_s\": %.4f, \"first_backward_s\": %.4f, \"forward\": \"%s\", \"backward\": \"%s\"}\n",
                forward, backward, ran.c_str(), last_run());
}

}  // namespace
}  // namespace flashtile

int main(int argc, char** argv) {
    try {
        const flashtile::gpu_resources::Stream stream;
        if (argc >= 2 && std::strcmp(argv[1], "first") == 0)
            flashtile::first(stream, {.seqlen = 256,
                                      .heads = 2,
                                      .head_dim = argc >= 3 ? std::atoi(argv[2]) : 64,
                                      .causal = argc >= 4 && std::strcmp(argv[3], "causal") == 0});
        else
            flashtile::warm(stream, flashtile::SmallCall(stream, flashtile::kSmall));
    } catch (const std::exception& e) {
        std::fprintf(stderr, "flashtile_host_time: %s\n", e.what());
        return 2;
    }
    return 0;
}
