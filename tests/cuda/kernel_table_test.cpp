// kernel_table_test.cpp: the table of loaded kernels: what is put in is found, nothing else is, while other threads put
// in more.
#include "cuda/jit/kernel_table.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

namespace flashtile::gpu {
namespace {

KernelKey key(int n) {
    return {{.head_dim = n % 512, .Br = n / 512, .dropout = n % 2 == 0}, n % 3, 1000};
}

LoadedKernel kernel(int n) {
    return {reinterpret_cast<CUfunction>(static_cast<std::uintptr_t>(n + 1))};
}

TEST(KernelTable, FindsWhatWasPutIn) {
    KernelTable table;
    constexpr int count = 5000;
    std::vector<const LoadedKernel*> places;
    for (int n = 0; n < count; ++n) {
        EXPECT_EQ(table.find(key(n)), nullptr);
        places.push_back(table.insert(key(n), kernel(n)));
    }
    for (int n = 0; n < count; ++n) {
        const LoadedKernel* found = table.find(key(n));
        ASSERT_EQ(found, places[n]) << n;
        ASSERT_EQ(found->function, kernel(n).function) << n;
    }
    EXPECT_EQ(table.find(key(count)), nullptr);
}

// A field that the comparison or the hash left out would give two kernels one place, or one kernel two.
TEST(KernelTable, EveryFieldCounts) {
    std::vector<KernelKey> keys(1);
    int fields = 0;
    visit_fields(KernelConfig{}, [&](const char*, auto) { ++fields; });
    for (int field = 0; field < fields; ++field) {
        KernelKey other;
        int n = 0;
        visit_fields(other.config, [&](const char*, const auto& value) {
            using Value = std::remove_cvref_t<decltype(value)>;
            // The visitor gives the fields themselves.
            if (n++ == field) const_cast<Value&>(value) = static_cast<Value>(!static_cast<int>(value));
        });
        keys.push_back(other);
    }
    keys.push_back({{}, 1, 0});
    keys.push_back({{}, 0, 1});
    std::set<std::uint64_t> hashes;
    KernelTable table;
    for (const KernelKey& each : keys) {
        EXPECT_EQ(table.find(each), nullptr);
        table.insert(each, {});
        hashes.insert(each.hash());
    }
    EXPECT_EQ(hashes.size(), keys.size());
}

TEST(KernelTable, MayBeReadWhileItGrows) {
    KernelTable table;
    constexpr int count = 20000;
    std::atomic<int> put{0};
    std::vector<std::jthread> readers;
    for (int reader = 0; reader < 3; ++reader)
        readers.emplace_back([&] {
            for (int there = 0; there < count;) {
                there = put.load(std::memory_order_acquire);
                for (int n = there - 1; n >= 0 && n > there - 50; --n) {
                    const LoadedKernel* found = table.find(key(n));
                    ASSERT_NE(found, nullptr) << n;
                    ASSERT_EQ(found->function, kernel(n).function) << n;
                }
            }
        });
    for (int n = 0; n < count; ++n) {
        table.insert(key(n), kernel(n));
        put.store(n + 1, std::memory_order_release);
    }
}

}  // namespace
}  // namespace flashtile::gpu
