// endurance_test.cpp: a mixed list of small problems, forward and deterministic backward, run ten thousand times each
// (or FLASHTILE_TEST_REPEATS times), kernel after kernel without a pause, gives the bits of the first time every time.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "conformance/problem_data.h"
#include "device/on_gpu.h"

namespace flashtile::device_tests {
namespace {

using conformance::Case;
using conformance::GuardedTensor;
using conformance::ProblemData;

class Endurance : public OnGpu {};

// Results lie so many times side by side on the GPU, and come to the host together.
constexpr std::size_t kSlots = 16;
constexpr std::byte kPoison{0xFF};  // a NaN in every type, which no result is

struct Variant {
    const char* name;
    void (*apply)(Case&);
};

constexpr Variant kVariants[] = {
    {"dense", [](Case&) {}},
    {"dense, d = 128", [](Case& c) { c.head_dim = c.head_dim_v = 128; }},
    {"dense, d = 256",
     [](Case& c) {
         c.seqlen_k = 260;
         c.head_dim = c.head_dim_v = 256;
     }},
    {"dense, d = 192, values of 128",
     [](Case& c) {
         c.head_dim = 192;
         c.head_dim_v = 128;
     }},
    {"dense, fp16", [](Case& c) { c.type = fp16; }},
    {"dense, fp32", [](Case& c) { c.type = fp32; }},
    {"causal", [](Case& c) { c.causal = true; }},
    {"causal, d = 128",
     [](Case& c) {
         c.causal = true;
         c.head_dim = c.head_dim_v = 128;
     }},
    {"causal, d = 192, values of 128",
     [](Case& c) {
         c.causal = true;
         c.head_dim = 192;
         c.head_dim_v = 128;
     }},
    {"a maximum that comes late",
     [](Case& c) {
         c.head_dim = c.head_dim_v = 128;
         c.early_key = 60.0;
     }},
    {"window",
     [](Case& c) {
         c.window = {200, 50};
     }},
    {"GQA",
     [](Case& c) {
         c.heads = 4;
         c.kv_heads = 1;
     }},
    {"GQA, causal, d = 128",
     [](Case& c) {
         c.causal = true;
         c.heads = 4;
         c.head_dim = c.head_dim_v = 128;
     }},
    {"packed, causal",
     [](Case& c) {
         c.causal = true;
         c.lengths_q = {130, 1, 0, 69, 200};
         c.lengths_k = {130, 40, 7, 333, 200};
     }},
    {"dropout", [](Case& c) { c.dropout = 0.1; }},
    {"bias",
     [](Case& c) {
         c.bias = {.present = true, .spans = {false, true, true, true}};
     }},
    {"short",
     [](Case& c) {
         c.seqlen_q = 17;
         c.seqlen_k = 33;
     }},
};

// Five blocks of keys, so that rings of stages come round and units of dQ have turns to keep.
Case case_of(const Variant& variant) {
    Case c;
    c.name = variant.name;
    c.type = bf16;
    c.heads = c.kv_heads = 2;
    c.seqlen_q = 200;
    c.seqlen_k = 520;
    c.head_dim = c.head_dim_v = 64;
    c.deterministic = true;
    c.poison_unseen = false;
    c.guard = conformance::Guard::page_before;  // aligned, as TMA wants it
    variant.apply(c);
    return c;
}

// A problem on the GPU, with the results of kSlots runs.
class Runs {
public:
    explicit Runs(const Variant& variant) : name(variant.name), data_(case_of(variant), kGpu) {
        for (const auto& [result, title] :
             {std::pair(&data_.out, "out"), std::pair(&data_.lse, "lse"), std::pair(&data_.dq, "dq"),
              std::pair(&data_.dk, "dk"), std::pair(&data_.dv, "dv"), std::pair(&data_.dbias, "dbias")}) {
            if (!result->present()) continue;
            const auto type = static_cast<dtype>(result->view().raw().dtype);
            const std::size_t width = conformance::bytes_of(type);
            parts_.push_back({title, result, type, slot_bytes_, result->size() * width, width});
            slot_bytes_ += (result->size() * width + 255) / 256 * 256;
        }
        results_ = gpu_resources::Buffer(slot_bytes_ * kSlots);
        data_.upload();
    }

    void poison() { results_.fill(kPoison); }

    // True if the backward pass is Hopper's own.
    bool submit(std::size_t slot) const {
        const flashtile::options o = data_.options(isa::automatic);
        const auto view = [&](const GuardedTensor& result) { return view_of(result, slot); };
        flashtile::forward(o, data_.q.view(), data_.k.view(), data_.v.view(), view(data_.out), view(data_.lse));
        backward_args args = data_.gradients();
        args.out = view(data_.out);
        args.lse = view(data_.lse);
        args.dq = view(data_.dq);
        args.dk = view(data_.dk);
        args.dv = view(data_.dv);
        args.dbias = view(data_.dbias);
        flashtile::backward(o, data_.q.view(), data_.k.view(), data_.v.view(), args);
        return std::string(last_run()).ends_with("_sm90");
    }

    // What is wrong with the results, or "": those of the very first run are whole, all others are equal to them.
    std::string why_wrong(std::vector<std::byte>& memory) {
        memory.resize(results_.size());
        results_.download(memory);
        const bool first_time = expected_.empty();
        if (first_time) expected_.assign(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(slot_bytes_));
        for (const Part& part : parts_) {
            const std::byte* expected = expected_.data() + part.at;
            if (first_time && has_poison(expected, part)) return std::string(part.title) + " was not wholly written";
            for (std::size_t slot = 0; slot < kSlots; ++slot)
                if (std::memcmp(memory.data() + slot * slot_bytes_ + part.at, expected, part.bytes) != 0)
                    return std::string(part.title) + " of run " + std::to_string(slot) + " has other bits";
        }
        return "";
    }

    const std::string name;

private:
    struct Part {
        const char* title;
        const GuardedTensor* result;
        dtype type;
        std::size_t at, bytes, width;
    };

    tensor view_of(const GuardedTensor& result, std::size_t slot) const {
        const auto part = std::ranges::find(parts_, &result, &Part::result);
        if (part == parts_.end()) return {};
        return flashtile::view(static_cast<std::byte*>(results_.data()) + slot * slot_bytes_ + part->at, part->type,
                               result.shape(), kGpu);
    }

    static bool has_poison(const std::byte* bytes, const Part& part) {
        for (std::size_t n = 0; n < part.bytes; n += part.width)
            if (std::all_of(bytes + n, bytes + n + part.width, [](std::byte b) { return b == kPoison; })) return true;
        return false;
    }

    ProblemData data_;
    std::vector<Part> parts_;
    std::size_t slot_bytes_ = 0;
    gpu_resources::Buffer results_;
    std::vector<std::byte> expected_;
};

std::size_t repeats() {
    const char* const text = std::getenv("FLASHTILE_TEST_REPEATS");
    return text != nullptr ? std::stoul(text) : 10000;
}

TEST_F(Endurance, GivesTheSameBitsEveryTime) {
    // All at once, since each has kernels to compile.
    std::vector<std::future<std::unique_ptr<Runs>>> beginnings;
    for (const Variant& variant : kVariants)
        beginnings.push_back(std::async(std::launch::async, [&variant] {
            auto runs = std::make_unique<Runs>(variant);
            runs->submit(0);
            return runs;
        }));
    std::vector<std::unique_ptr<Runs>> list;
    list.reserve(beginnings.size());
    for (auto& beginning : beginnings) list.push_back(beginning.get());
    std::vector<std::byte> memory;
    bool by_hopper = false;
    for (std::size_t done = 0; done < repeats(); done += kSlots) {
        for (const auto& runs : list) runs->poison();
        for (std::size_t slot = 0; slot < kSlots; ++slot)
            for (const auto& runs : list) by_hopper = runs->submit(slot) || by_hopper;
        for (const auto& runs : list)
            if (const std::string wrong = runs->why_wrong(memory); !wrong.empty())
                FAIL() << runs->name << ": " << wrong << ", after " << done << " good ones";
    }
    EXPECT_EQ(by_hopper, on_hopper());
}

}  // namespace
}  // namespace flashtile::device_tests
