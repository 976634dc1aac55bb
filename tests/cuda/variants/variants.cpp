// variants.cpp: see variants.h. A new option is a factor here.
#include "cuda/variants/variants.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "core/error.h"
#include "cuda/plan/limits.h"

namespace flashtile::variants {
namespace {

// Even, odd and unequal dimensions, up to the widest that the backward pass takes, and one beyond.
constexpr std::pair<std::int64_t, std::int64_t> kHeadDims[] = {{64, 64},   {128, 128}, {256, 256}, {96, 96},
                                                               {192, 128}, {40, 72},   {13, 57},   {512, 512}};
// Of queries and keys: what the tables of tiles tell apart.
constexpr std::pair<std::int64_t, std::int64_t> kLengths[] = {{2048, 2048}, {8192, 8192}, {512, 512}, {40, 8192}};
constexpr const char* kDevices[] = {"A100-80", "RTX 3090", "RTX 4090", "H100", "B200", "RTX 5090"};
constexpr int kHopper = 3;  // of them

// In the order of factors().
enum FactorIndex : std::size_t {
    graphics_card,
    dtype,
    head_dims,
    band,
    lengths,
    softcap,
    alibi,
    bias,
    mask,
    dropout,
    deterministic,
    batch_invariant,
    exact_max,
    loads,
    lse
};

const gpu::DeviceFacts& device_named(const std::string& name) {
    for (const gpu::DeviceFacts& facts : gpu::known_devices())
        if (facts.name == name) return facts;
    throw std::logic_error("no device is known as " + name);
}

}  // namespace

const std::vector<Factor>& factors() {
    static const std::vector<Factor> list = {
        {"GPU", {std::begin(kDevices), std::end(kDevices)}},
        {"dtype", {"fp32", "fp16", "bf16"}},
        {"head dimensions", {"64", "128", "256", "96", "192x128", "40x72", "13x57", "512"}},
        {"band", {"off", "causal", "window"}},
        {"lengths", {"dense", "packed", "seqused", "packed seqused"}},
        {"softcap", {"off", "on"}},
        {"alibi", {"off", "on"}},
        {"bias", {"off", "own type", "fp32", "without gradient"}},
        {"mask", {"off", "on"}},
        {"dropout", {"off", "on"}},
        {"deterministic", {"off", "on"}},
        {"batch_invariant", {"off", "on"}},
        {"exact_max", {"off", "on"}},
        {"loads", {"16 bytes", "8 bytes", "4 bytes", "2 bytes"}},
        {"lse", {"on", "off"}},
    };
    return list;
}

std::vector<int> counts() {
    std::vector<int> result;
    for (const Factor& factor : factors()) result.push_back(static_cast<int>(factor.choices.size()));
    return result;
}

namespace {

struct Call {
    Problem problem;
    gpu::Access access;
    const gpu::DeviceFacts& device;
};

Call call_of(const Row& row) {
    constexpr DType kTypes[] = {DType::fp32, DType::fp16, DType::bf16};
    Problem p;
    p.dtype = kTypes[row[dtype]];
    p.batch = 4;
    p.heads = 8;
    p.kv_heads = 2;
    // Kernels depend on the lengths, too. They are no factor: the rows have them in turns.
    std::tie(p.seqlen_q, p.seqlen_k) = kLengths[std::accumulate(row.begin(), row.end(), 0U) % std::size(kLengths)];
    std::tie(p.head_dim, p.head_dim_v) = kHeadDims[row[head_dims]];
    p.packed = row[lengths] % 2 == 1;
    if (p.packed) p.total_q = p.batch * p.seqlen_q, p.total_k = p.batch * p.seqlen_k;
    p.scale = 0.125f;
    if (row[band] == 1) p.window_right = 0;
    if (row[band] == 2) p.window_left = p.window_right = 256;
    p.softcap = row[softcap] == 1 ? 30.0f : 0.0f;
    p.alibi = row[alibi] == 1;
    if (row[bias] != 0) p.bias = row[bias] == 2 ? DType::fp32 : p.dtype;
    p.mask = row[mask] == 1;
    p.dropout_threshold = row[dropout] == 1 ? 6554 : 0;
    p.deterministic = row[deterministic] == 1;
    p.batch_invariant = row[batch_invariant] == 1;
    p.exact_max = p.batch_invariant || row[exact_max] == 1;

    gpu::Access access;
    // No wider than rows of these head dimensions are aligned, and no narrower than an element.
    const auto row_bits = static_cast<unsigned>((p.head_dim | p.head_dim_v) * size_of(p.dtype));
    const int aligned = 1 << std::countr_zero(row_bits);
    access.vector_bytes = std::max(std::min(16 >> row[loads], aligned), static_cast<int>(size_of(p.dtype)));
    access.tensor_maps = access.vector_bytes == 16;
    access.lse = row[lse] == 0;
    access.seqused = row[lengths] >= 2;
    access.dbias = row[bias] == 1 || row[bias] == 2;
    if (row[bias] != 0) {
        access.bias_heads = p.heads;
        access.bias_rows = p.seqlen_q;
        access.bias_cols = p.seqlen_k;
    }
    return {p, access, device_named(kDevices[row[graphics_card]])};
}

}  // namespace

std::vector<Variant> variants_of(const Row& row) {
    const auto [problem, access, device] = call_of(row);
    std::vector<Variant> result;
    const auto add = [&, architecture = device.architecture](const gpu::Plan& plan) {
        for (const gpu::Launch& launch : plan.launches) result.push_back({architecture, launch.config});
    };
    add(gpu::plan_forward(problem, access, device));
    if (gpu::backward_takes(problem)) add(gpu::plan_backward(problem, access, device));
    return result;
}

bool planned(const Row& row) {
    try {
        static_cast<void>(variants_of(row));
        return true;
    } catch (const Error&) {
        return false;
    }
}

std::vector<Row> rows() {
    return pairwise(counts(), planned);
}

// More of them for Hopper's kernels, which serve fewer options. The GPU is a factor here, too, but the rows of the
// others are left out: they would be the general kernels, whose pairs are in rows().
std::vector<Row> rows_for_hopper() {
    std::vector<Row> list;
    std::vector<int> choices = counts();
    const auto add = [&](std::initializer_list<FactorIndex> off, const auto& wanted) {
        for (const FactorIndex factor : off) choices[factor] = 1;  // the first choice only
        for (Row& row : pairwise(choices, wanted)) list.push_back(std::move(row));
    };
    add({bias, mask, batch_invariant, loads}, planned);  // what Hopper's forward kernel serves
    add({softcap, alibi, dropout}, planned);             // and its backward kernels,
    // each head dimension with each mask
    add({}, [&](const Row& row) { return row[graphics_card] == kHopper && planned(row); });
    std::erase_if(list, [](const Row& row) { return row[graphics_card] != kHopper; });
    return list;
}

// Hopper's forward kernel with a bias or a mask, which not all of them serve.
std::vector<Variant> hiding_forward() {
    std::vector<Variant> result;
    std::vector<int> choices = counts();
    for (const FactorIndex factor : {deterministic, batch_invariant, loads, lse}) choices[factor] = 1;
    const auto wanted = [](const Row& row) {
        return row[graphics_card] == kHopper && row[dtype] != 0 && (row[bias] != 0 || row[mask] != 0) && planned(row);
    };
    for (const Row& row : pairwise(choices, wanted))
        for (const Variant& variant : variants_of(row))
            if (variant.config.kernel == Kernel::forward_sm90) result.push_back(variant);
    return result;
}

// Hopper's backward kernel with a bias or a mask, which it takes beside few options.
std::vector<Variant> hiding_backward() {
    std::vector<Variant> result;
    for (int dims = 0; dims < 2; ++dims)
        for (int kind = 0; kind < 3; ++kind)  // a bias, a bias in fp32, a mask
            for (const int dropped : {0, 1})
                for (int masked = 0; masked < 3; ++masked) {
                    Row row(factors().size(), 0);
                    row[graphics_card] = kHopper;
                    row[dtype] = 2;
                    row[head_dims] = dims;
                    (kind < 2 ? row[bias] : row[mask]) = kind == 1 ? 2 : 1;
                    row[dropout] = dropped;
                    row[band] = masked;
                    row[lengths] = masked / 2;  // a window in packed sequences
                    for (const Variant& variant : variants_of(row))
                        if (variant.config.kernel == Kernel::backward_sm90) result.push_back(variant);
                }
    return result;
}

bool splits_keys(const Variant& v) {
    const Kernel kernel = v.config.kernel;
    return kernel == Kernel::split_forward_sm80 || kernel == Kernel::deal_splits || kernel == Kernel::combine;
}

// Two thread blocks share a group's heads: what they exchange comes after all loops, and so rows() and plain() suffice.
bool shares_heads(const Variant& v) {
    return v.config.head_parts > 1;
}

// What most calls ask for, of every length: no option but a mask by position and packing. On Hopper, where a dimension
// has tiles of its own.
std::vector<Variant> plain() {
    std::vector<Variant> result;
    for (int dims = 0; dims < 5; ++dims)
        for (int mask = 0; mask < 3; ++mask)
            for (const int packed : {0, 1}) {
                Row row(factors().size(), 0);
                row[graphics_card] = kHopper;
                row[dtype] = 2;
                row[head_dims] = dims;
                row[band] = mask;
                row[lengths] = packed;
                const auto [problem, access, device] = call_of(row);
                for (const KernelConfig& config : gpu::configs_for(problem, access, device))
                    result.push_back({device.architecture, config});
            }
    return result;
}

// Dropout of a shard whose rows and columns start anywhere, and of sequences that are shards each by itself.
std::vector<Variant> shifted_dropout() {
    std::vector<Variant> result;
    for (const gpu::DeviceFacts* const device : {&gpu::known_device("A100-80"), &gpu::known_device("H200")})
        for (const auto& [type, d] :
             {std::pair(DType::fp32, 64), {DType::bf16, 64}, {DType::fp16, 128}, {DType::bf16, 256}}) {
            Problem p;
            p.dtype = type;
            p.batch = p.kv_heads = 1;
            p.heads = 2;
            p.seqlen_q = p.seqlen_k = 2048;
            p.head_dim = p.head_dim_v = d;
            p.scale = 0.125f;
            p.window_right = 0;
            p.dropout_threshold = 6554;
            p.origin_i = 1;
            for (const bool diagonals : {false, true}) {
                p.diagonals = diagonals;
                for (const KernelConfig& config : gpu::configs_for(p, gpu::contiguous_access(p), *device))
                    if (config.shifted_dropout) result.push_back({device->architecture, config});
            }
        }
    return result;
}

std::vector<Variant> all_variants() {
    std::vector<Variant> result;
    const auto add = [&](const std::vector<Variant>& list, auto... left_out) {
        for (const Variant& variant : list)
            if (!(left_out(variant) || ...) && std::ranges::find(result, variant) == result.end())
                result.push_back(variant);
    };
    for (const Row& row : rows()) add(variants_of(row));
    for (const Row& row : rows_for_hopper()) add(variants_of(row), splits_keys, shares_heads);
    add(plain(), splits_keys);
    add(hiding_forward());
    add(hiding_backward(), shares_heads);
    add(alternatives());
    add(beside_attention());
    add(serving());
    add(latent());
    add(shares());
    add(shifted_dropout());
    add(e4m3());
    add(with_functions(), shares_heads);
    return result;
}

}  // namespace flashtile::variants
