// kernel_table.h: the kernels that this process has loaded. A look-up takes no lock and changes nothing: entries are
// immutable and published by one atomic store, and a table that has grown too full is replaced by a larger copy.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/jit/config_fields.h"
#include "cuda/jit/kernels.h"

namespace flashtile::gpu {

struct KernelKey {
    KernelConfig config;
    int ordinal = 0;
    int shared_memory = 0;

    bool operator==(const KernelKey&) const = default;

    std::uint64_t hash() const {
        std::uint64_t h = static_cast<std::uint64_t>(ordinal) << 32 | static_cast<std::uint32_t>(shared_memory);
        visit_fields(config, [&](const char*, auto value) { h = h * 31 + static_cast<std::uint64_t>(value); });
        return h * 0x9E3779B97F4A7C15u >> 32;
    }
};

class KernelTable {
public:
    KernelTable() { replace(64); }
    KernelTable(const KernelTable&) = delete;
    KernelTable& operator=(const KernelTable&) = delete;

    // From any thread, at any time. nullptr: not there (yet).
    const LoadedKernel* find(const KernelKey& key) const {
        const Slots& slots = *current_.load(std::memory_order_acquire);
        for (std::size_t n = key.hash() & slots.mask;; n = (n + 1) & slots.mask) {
            const Entry* entry = slots.entry[n].load(std::memory_order_acquire);
            if (entry == nullptr) return nullptr;
            if (entry->key == key) return &entry->kernel;
        }
    }

    // One thread at a time, and once a key. What is returned stays where it is.
    const LoadedKernel* insert(const KernelKey& key, const LoadedKernel& kernel) {
        if (2 * (entries_.size() + 1) > current_.load()->mask) replace(2 * (current_.load()->mask + 1));
        entries_.push_back(std::make_unique<Entry>(Entry{key, kernel}));
        put(*current_.load(), entries_.back().get());
        return &entries_.back()->kernel;
    }

private:
    struct Entry {
        KernelKey key;
        LoadedKernel kernel;
    };
    struct Slots {
        explicit Slots(std::size_t count) : mask(count - 1), entry(count) {}
        std::size_t mask;
        std::vector<std::atomic<const Entry*>> entry;
    };

    static void put(Slots& slots, const Entry* entry) {
        std::size_t n = entry->key.hash() & slots.mask;
        while (slots.entry[n].load(std::memory_order_relaxed) != nullptr) n = (n + 1) & slots.mask;
        slots.entry[n].store(entry, std::memory_order_release);
    }

    void replace(std::size_t count) {
        all_.push_back(std::make_unique<Slots>(count));
        for (const auto& entry : entries_) put(*all_.back(), entry.get());
        current_.store(all_.back().get(), std::memory_order_release);
    }

    std::atomic<Slots*> current_{nullptr};
    std::vector<std::unique_ptr<Entry>> entries_;
    std::vector<std::unique_ptr<Slots>> all_;  // a reader may still be in an older one
};

}  // namespace flashtile::gpu
