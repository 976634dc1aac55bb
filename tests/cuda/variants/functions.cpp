// functions.cpp: kernels with a user's score and mask functions and lists of blocks, as variants that must compile: on
// an architecture of each kind, what people write most, and functions that have every operation and every type of
// tensor between them.
#include <tuple>

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

}  // namespace

std::vector<Variant> with_functions() {
    std::vector<Variant> result;
    for (const char* name : {"A100-80", "H200", "RTX 5090"}) {
        const gpu::DeviceFacts& device = gpu::known_device(name);
        for (const auto& [type, d, score, mask] : {std::tuple(DType::bf16, 128, kAlibi, kDocument),
                                                   {DType::fp16, 64, kEveryScore, kEveryMask},
                                                   {DType::fp32, 64, kEveryScore, kEveryMask}}) {
            Problem p;
            p.dtype = type;
            p.batch = p.kv_heads = 1;
            p.heads = 2;
            p.seqlen_q = p.seqlen_k = 2048;
            p.head_dim = p.head_dim_v = d;
            p.scale = 0.125f;
            gpu::Access access = gpu::contiguous_access(p);
            const auto add = [&](const char* of_score, const char* of_mask, bool lists) {
                p.functions = *of_score == 0 && *of_mask == 0 ? 0 : functions::number_of(of_score, of_mask, tensors());
                p.block_q = p.block_k = lists ? 64 : 0;
                access.dtensors = *of_score != 0;
                for (const KernelConfig& config : gpu::configs_for(p, access, device))
                    if (config.has_functions() || config.kernel == Kernel::block_kinds ||
                        config.kernel == Kernel::clear_tensors)
                        result.push_back({device.architecture, config});
            };
            add(score, mask, false);
            add("", "", true);
            add("", mask, true);
            add(score, mask, true);
        }
    }
    return result;
}

}  // namespace flashtile::variants
