// memory_test.cpp: counts what the library allocates, by standing in for operator new: the extra memory of a call may
// grow linearly with the length at most.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <flashtile/flashtile.hpp>
#include <new>
#include <thread>
#include <vector>

namespace {

std::atomic<std::int64_t> live{0};
std::atomic<std::int64_t> peak{0};

void* counted(void* p) {
    if (p == nullptr) throw std::bad_alloc();
    const auto now = live += static_cast<std::int64_t>(malloc_usable_size(p));
    for (std::int64_t seen = peak; now > seen && !peak.compare_exchange_weak(seen, now);) {
    }
    return p;
}

void release(void* p) {
    if (p != nullptr) live -= static_cast<std::int64_t>(malloc_usable_size(p));
    std::free(p);
}

}  // namespace

void* operator new(std::size_t bytes) {
    return counted(std::malloc(bytes));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    const auto a = static_cast<std::size_t>(alignment);
    return counted(std::aligned_alloc(a, (bytes + a - 1) / a * a));
}
void operator delete(void* p) noexcept {
    release(p);
}
void operator delete(void* p, std::size_t) noexcept {
    release(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
    release(p);
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
    release(p);
}

namespace flashtile::unit {
namespace {

constexpr std::int64_t kHeads = 1;
constexpr std::int64_t kHeadDim = 64;
constexpr int kThreads = 2;

struct Tensors {
    std::int64_t n;
    dtype type;
    std::vector<float> storage[9];
    std::vector<float> lse;

    Tensors(std::int64_t length, dtype of) : n(length), type(of), lse(static_cast<std::size_t>(n)) {
        for (auto& s : storage) s.assign(static_cast<std::size_t>(n * kHeads * kHeadDim), 0.0f);
    }
    tensor view(int which) { return flashtile::view(storage[which].data(), type, {1, n, kHeads, kHeadDim}); }
    tensor lse_view() { return flashtile::view(lse.data(), fp32, {1, kHeads, n}); }
};

options
banded() {  // the work is linear in n, so that long cases are quick; what is allocated is not known to depend on it
    options o;
    o.window = {256, 0};
    o.threads = kThreads;
    return o;
}

// The most memory that was live during the call beyond what was before, on a thread whose kept workspace is empty.
template <class F>
std::int64_t peak_extra(F call) {
    std::int64_t extra = 0;
    std::thread([&] {
        const std::int64_t before = live;
        peak = before;
        call();
        extra = peak - before;
    }).join();
    return extra;
}

std::int64_t forward_extra(std::int64_t n, dtype type) {
    Tensors t(n, type);
    return peak_extra([&] { forward(banded(), t.view(0), t.view(1), t.view(2), t.view(3), t.lse_view()); });
}

std::int64_t backward_extra(std::int64_t n, dtype type) {
    Tensors t(n, type);
    return peak_extra([&] {
        backward(banded(), t.view(0), t.view(1), t.view(2), t.view(3), t.lse_view(), t.view(4), t.view(5), t.view(6),
                 t.view(7));
    });
}

TEST(Memory, ForwardOf65536KeysTakesUnderFourMebibytesAThread) {
    for (const dtype type : {fp32, fp16, bf16}) {
        const std::int64_t extra = forward_extra(65536, type);
        EXPECT_GT(extra, 0) << "nothing was counted";
        EXPECT_LT(extra, kThreads * (std::int64_t{4} << 20));
    }
}

// Linear growth doubles with the length; quadratic growth would quadruple.
TEST(Memory, ExtraGrowsLinearlyAtMost) {
    constexpr std::int64_t slack = 1 << 16;
    for (const dtype type : {fp32, fp16, bf16})
        for (std::int64_t n = 2048; n <= 16384; n *= 2) {
            EXPECT_LE(forward_extra(2 * n, type), 2 * forward_extra(n, type) + slack) << n;
            EXPECT_LE(backward_extra(2 * n, type), 2 * backward_extra(n, type) + slack) << n;
            // and below what one head's scores would take
            EXPECT_LT(backward_extra(2 * n, type), 4 * n * 2 * n) << n;
        }
}

TEST(Memory, ACallWithItsOwnWorkspaceAllocatesNothingThatGrows) {
    for (const std::int64_t n : {512, 8192}) {
        Tensors t(n, bf16);
        options o = banded();
        const backward_args gradients{.out = t.view(3),
                                      .lse = t.lse_view(),
                                      .dout = t.view(4),
                                      .dq = t.view(5),
                                      .dk = t.view(6),
                                      .dv = t.view(7)};
        o.workspace_size = std::max(forward_workspace(o, t.view(0), t.view(1), t.view(2), t.view(3)),
                                    backward_workspace(o, t.view(0), t.view(1), t.view(2), gradients));
        void* memory = std::aligned_alloc(64, (o.workspace_size + 63) / 64 * 64);
        o.workspace = memory;
        const std::int64_t extra = peak_extra([&] {
            forward(o, t.view(0), t.view(1), t.view(2), t.view(3), t.lse_view());
            backward(o, t.view(0), t.view(1), t.view(2), gradients);
        });
        std::free(memory);
        EXPECT_LT(extra, 16 << 10) << n;
    }
}

// Few queries that a window lets see the end of many keys: tasks are as large as they come, and have keys to hide.
TEST(Memory, AWorkspaceIsNotOverrun) {
    constexpr std::int64_t queries = 64, keys = 2048;
    for (const dtype type : {fp32, fp16, bf16}) {
        Tensors t(keys, type);
        const auto query_view = [&](int which) {
            return flashtile::view(t.storage[which].data(), type, {1, queries, kHeads, kHeadDim});
        };
        const tensor lse = flashtile::view(t.lse.data(), fp32, {1, kHeads, queries});
        options o;
        o.window = {100, 0};
        o.threads = 1;
        const backward_args gradients{.out = query_view(3),
                                      .lse = lse,
                                      .dout = query_view(4),
                                      .dq = query_view(5),
                                      .dk = t.view(6),
                                      .dv = t.view(7)};
        const auto expect_kept = [&](std::size_t bytes, auto call) {
            constexpr std::size_t behind = 4096;
            const std::size_t size = (bytes + 63) / 64 * 64 + behind;
            auto* memory = static_cast<unsigned char*>(std::aligned_alloc(64, size));
            std::fill_n(memory, size, static_cast<unsigned char>(0xA5));
            o.workspace = memory;
            o.workspace_size = bytes;
            call();
            EXPECT_EQ(std::count(memory + bytes, memory + size, 0xA5), static_cast<std::ptrdiff_t>(size - bytes))
                << "dtype " << static_cast<int>(type);
            std::free(memory);
        };
        expect_kept(forward_workspace(o, query_view(0), t.view(1), t.view(2), query_view(3)),
                    [&] { forward(o, query_view(0), t.view(1), t.view(2), query_view(3), lse); });
        expect_kept(backward_workspace(o, query_view(0), t.view(1), t.view(2), gradients),
                    [&] { backward(o, query_view(0), t.view(1), t.view(2), gradients); });
    }
}

TEST(Memory, RepeatedCallsLeakNothing) {
    Tensors t(300, fp32);
    const auto call = [&] { forward(banded(), t.view(0), t.view(1), t.view(2), t.view(3), t.lse_view()); };
    call();
    const std::int64_t before = live;
    for (int n = 0; n < 50; ++n) call();
    EXPECT_EQ(live, before);
}

}  // namespace
}  // namespace flashtile::unit
