// functions.cpp: kernels with a user's score and mask functions and lists of blocks, as variants that must compile: on
// an architecture of each kind, what people write most, and functions that have every operation and every type of
// tensor between them.
#include <string_view>
#include <tuple>
#include <utility>

#include "cuda/variants/variants.h"
#include "functions/functions.h"

namespace flashtile::variants {
namespace {

using functions::TensorType;
using functions::Type;

const std::vector<TensorType>& tensors() {
    static const std::vector<TensorType> list = {
        {"slope", 1, Type::real, DType::fp32},      {"table", 2, Type::real, DType::fp16},
        {"scales", 1, Type::real, DType::bf16},     {"document", 2, Type::integer, DType::int32},
        {"prefix", 1, Type::integer, DType::int64}, {"pattern", 4, Type::boolean, DType::boolean},
    };
    return list;
}

constexpr const char* kAlibi = "s - slope[h] * abs(i - j)";
constexpr const char* kDocument = "document[b, i] == document[b, j] && i >= j";
constexpr const char* kEveryScore =
    "t = tanh(s) + exp(-abs(s)) / log(2.5 + s * s) - sqrt(abs(s)); d = (i * 3 - j) % 7; u = min(t, max(s, scales[b]));"
    "d < 3 || !(i >= j) ? u + table[h, d] : float(int(u) // 2)";
constexpr const char* kEveryMask =
    "x = (i << 3 ^ j >> 1) & 255 | b; y = ~x + seqlen_q - seqlen_k; (x != prefix[b]) == true && bool(y) ||"
    "pattern[i % 4, j % 4, h % 2, 0] ^ (float(x) <= 1.5)";

Problem problem_of(DType type, int d, std::string_view score, std::string_view mask) {
    Problem p;
    p.dtype = type;
    p.batch = p.kv_heads = 1;
    p.heads = 2;
    p.seqlen_q = p.seqlen_k = 2048;
    p.head_dim = p.head_dim_v = d;
    p.scale = 0.125f;
    if (!score.empty() || !mask.empty()) p.functions = functions::number_of(score, mask, tensors());
    return p;
}

void add_those_of_hopper(const Problem& p, std::vector<Variant>& result) {
    const gpu::DeviceFacts& device = gpu::known_device("H200");
    for (const KernelConfig& config : gpu::configs_for(p, gpu::contiguous_access(p), device))
        if (config.has_functions() && (config.kernel == Kernel::forward_sm90 || config.kernel == Kernel::backward_sm90))
            result.push_back({device.architecture, config});
}

// On Hopper's kernels: what is common, which must take no registers that are not there. In turns batches are packed,
// so that each function and each d has both.
void add_for_hopper(std::vector<Variant>& result) {
    bool packed = false;
    for (const auto& [score, mask] : {std::pair("", "i >= j"),
                                      {"", "i >= j && i - j < 1024"},
                                      {"", "document[b, i] == document[b, j]"},
                                      {"", "j < prefix[b] || i >= j"},
                                      {"", "pattern[i // 128, j // 128, h, 0]"},
                                      {kAlibi, ""},
                                      {kAlibi, "i >= j"},
                                      {"s + table[h, min(max(j - i, -128), 128) + 128]", ""}})
        for (const int d : {64, 128, 192}) {
            packed = !packed;
            Problem p = problem_of(DType::bf16, d, score, mask);
            p.packed = packed;
            if (packed) p.total_q = p.total_k = p.seqlen_q;
            add_those_of_hopper(p, result);
        }
    for (const char* mask : {"", "i >= j"})
        for (const int d : {64, 128, 192})
            for (const std::int64_t block : {64, 128})
                for (const bool deterministic : {false, true}) {
                    Problem p = problem_of(DType::bf16, d, "", mask);
                    p.block_q = p.block_k = block;
                    p.deterministic = deterministic;
                    add_those_of_hopper(p, result);
                }
}

}  // namespace

std::vector<Variant> with_functions() {
    std::vector<Variant> result;
    add_for_hopper(result);
    for (const char* name : {"A100-80", "H200", "RTX 5090"}) {
        const gpu::DeviceFacts& device = gpu::known_device(name);
        for (const auto& [type, d, score, mask] : {std::tuple(DType::bf16, 128, kAlibi, kDocument),
                                                   {DType::fp16, 64, kEveryScore, kEveryMask},
                                                   {DType::fp32, 64, kEveryScore, kEveryMask}}) {
            for (const auto& [of_score, of_mask, lists] :
                 {std::tuple(score, mask, false), {"", "", true}, {"", mask, true}, {score, mask, true}}) {
                Problem p = problem_of(type, d, of_score, of_mask);
                p.block_q = p.block_k = lists ? 64 : 0;
                gpu::Access access = gpu::contiguous_access(p);
                access.dtensors = *of_score != 0;
                for (const KernelConfig& config : gpu::configs_for(p, access, device))
                    if (config.has_functions() || config.kernel == Kernel::block_kinds ||
                        config.kernel == Kernel::clear_tensors)
                        result.push_back({device.architecture, config});
            }
        }
    }
    return result;
}

}  // namespace flashtile::variants
