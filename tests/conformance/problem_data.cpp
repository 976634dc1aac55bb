// problem_data.cpp: numbers from the case's seed; what may have no effect is then poisoned in the library's copy only.
#include "conformance/problem_data.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include "conformance/function_tensors.h"
#include "conformance/random_source.h"

namespace flashtile::conformance {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

void fill_normal(GuardedTensor& t, RandomSource& random, double magnitude) {
    for (std::size_t n = 0; n < t.size(); ++n) t.set(n, magnitude * random.normal());
}

double lowest(dtype type) {
    if (type == fp16) return -65504.0;
    return type == bf16 ? -0x1.FEp127 : static_cast<double>(std::numeric_limits<float>::lowest());
}

void fill_bias(GuardedTensor& t, dtype type, BiasValues kind, RandomSource& random) {
    for (std::size_t n = 0; n < t.size(); ++n) {
        const double value = random.normal() * (kind == BiasValues::large ? 50.0 : 1.0);
        if (kind == BiasValues::random || !random.chance(0.4)) {
            t.set(n, value);
        } else if (kind == BiasValues::large) {
            t.set(n, -1e10 * (1.0 + random.uniform()));
        } else {
            t.set(n, kind == BiasValues::infinity_hides ? -kInfinity : lowest(type));
        }
    }
}

}  // namespace

ProblemData::ProblemData(const Case& the_case, device where)
    : problem(the_case), where_(where), seed_and_offset_{the_case.seed, the_case.offset} {
    lay_out_sequences();
    make_tensors();
    fill_tensors();
    if (problem.poison_unseen && !problem.inputs.broadcasts()) poison_unseen();
    poison_unused_bias();
    for (auto& [name, input] : inputs()) input->remember();
    if (where_.type == FLASHTILE_CUDA) {
        const auto bytes = std::as_bytes(std::span(seed_and_offset_));
        seed_and_offset_on_gpu_ = gpu_resources::Buffer(bytes.size(), where_.id);
        seed_and_offset_on_gpu_.upload(bytes);
    }
}

std::vector<std::pair<const char*, GuardedTensor*>> ProblemData::inputs() {
    std::vector<std::pair<const char*, GuardedTensor*>> all = {{"q", &q},
                                                               {"k", &k},
                                                               {"v", &v},
                                                               {"alibi_slopes", &slopes},
                                                               {"bias", &bias},
                                                               {"mask", &mask},
                                                               {"cu_seqlens_q", &cu_seqlens_q},
                                                               {"cu_seqlens_k", &cu_seqlens_k},
                                                               {"seqused_k", &used_k},
                                                               {"dout", &dout},
                                                               {"dlse", &dlse},
                                                               {"block_table", &block_table},
                                                               {"cache_batch_idx", &cache_batch_idx},
                                                               {"first_k", &first_k},
                                                               {"seqused_q", &used_q},
                                                               {"tree_mask", &tree},
                                                               {"sinks", &sinks},
                                                               {"positions", &positions},
                                                               {"prefix_groups", &prefix_groups},
                                                               {"prefix_lengths", &prefix_lengths},
                                                               {"diagonals", &diagonals},
                                                               {"origins_i", &origins_i},
                                                               {"origins_j", &origins_j},
                                                               {"block_lists.counts", &block_counts},
                                                               {"block_lists.indices", &block_indices},
                                                               {"block_lists.full_counts", &full_counts},
                                                               {"block_lists.full_indices", &full_indices},
                                                               {"q_scale", &q_scale},
                                                               {"k_scale", &k_scale},
                                                               {"v_scale", &v_scale}};
    for (std::size_t n = 0; n < function_tensors.size(); ++n)
        all.emplace_back(named_tensors_[n].name, &function_tensors[n]);
    return all;
}

std::vector<GuardedTensor*> ProblemData::outputs() {
    std::vector<GuardedTensor*> all = {&out, &lse, &dq, &dk, &dv, &dbias, &dsinks};
    for (GuardedTensor& gradient : dtensors) all.push_back(&gradient);
    return all;
}

void ProblemData::upload() {
    for (auto& [name, input] : inputs()) input->upload();
    for (GuardedTensor* output : outputs()) output->upload();
}

void ProblemData::download() {
    for (auto& [name, input] : inputs()) input->download();
    for (GuardedTensor* output : outputs()) output->download();
}

void ProblemData::forward(const flashtile::options& o) {
    upload();
    flashtile::forward(o, q.view(), k.view(), values(), out.view(), lse.view());
    download();
}

void ProblemData::backward(const flashtile::options& o) {
    upload();
    flashtile::backward(o, q.view(), k.view(), v.view(), gradients());
    download();
}

void ProblemData::lay_out_sequences() {
    std::int64_t row_q = 0, row_k = 0;
    std::vector<std::int64_t> used_rows;
    for (std::int64_t b = 0; b < problem.sequences(); ++b) {
        const std::int64_t length_q = problem.packed() ? problem.lengths_q[at(b)] : problem.seqlen_q;
        const std::int64_t length_k = problem.packed() ? problem.lengths_k[at(b)] : problem.seqlen_k;
        const std::int64_t used = problem.used_k.empty() ? length_k : std::min(length_k, problem.used_k[at(b)]);
        const std::int64_t queries = problem.used_q.empty() ? length_q : std::min(length_q, problem.used_q[at(b)]);
        const auto of = [&](const std::vector<std::int64_t>& list) { return list.empty() ? 0 : list[at(b)]; };
        reference.sequences.push_back({row_q, queries, row_k, used, of(problem.first_k), of(problem.diagonals),
                                       of(problem.origins_i), of(problem.origins_j)});
        used_rows.push_back(row_q + queries);
        row_q += length_q;
        row_k += length_k;
    }
    reference.rows_q = row_q + (problem.packed() ? problem.spare_rows : 0);
    reference.rows_k = row_k + (problem.packed() ? problem.spare_rows : 0);
    row_owned_q.assign(at(reference.rows_q), false);
    row_owned_k.assign(at(reference.rows_k), false);
    for (std::size_t b = 0; b < used_rows.size(); ++b)
        std::fill(row_owned_q.begin() + reference.sequences[b].q_begin, row_owned_q.begin() + used_rows[b], true);
    std::fill_n(row_owned_k.begin(), row_k, true);
    key_rows.resize(at(reference.rows_k));
    std::iota(key_rows.begin(), key_rows.end(), std::int64_t{0});
    if (problem.cache.present) lay_out_cache();
}

// Whose pages the first keys of a sequence are in, and how many these are.
std::pair<std::int64_t, std::int64_t> ProblemData::prefix_of(std::int64_t b) const {
    const CacheSpec& cache = problem.cache;
    for (std::size_t group = 0; group + 1 < cache.groups.size(); ++group)
        if (cache.groups[group] <= b && b < cache.groups[group + 1])
            return {cache.groups[group], cache.prefixes[group]};
    return {b, 0};
}

// Deals out pages in no order, some of them to nobody; what sequences share comes first. Without pages a sequence has
// one row of the cache.
void ProblemData::lay_out_cache() {
    const CacheSpec& cache = problem.cache;
    const std::int64_t length = cache.page_size != 0 ? cache.page_size : problem.longest_k() + 3;
    // The first sequence of a group has the keys of its prefix that any of the group uses.
    std::vector<std::int64_t> held;
    for (const oracle::Sequence& s : reference.sequences) held.push_back(s.k_length);
    for (std::int64_t b = 0; b < problem.sequences(); ++b) {
        const auto [first, prefix] = prefix_of(b);
        held[at(first)] = std::max(held[at(first)], std::min(prefix, reference.sequences[at(b)].k_length));
    }
    std::int64_t needed = 0;
    for (const std::int64_t keys : held) needed += std::max<std::int64_t>(1, (keys + length - 1) / length);
    const std::int64_t pages = needed + 2;
    cache_shape = {pages, length};
    std::fill(key_rows.begin(), key_rows.end(), -1);  // keys past a sequence's used ones have no place
    std::vector<std::int64_t> order(at(pages));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    RandomSource random(problem.data_seed + 1);
    for (std::size_t n = order.size(); n > 1; --n)
        std::swap(order[n - 1], order[at(random.integer(0, static_cast<std::int64_t>(n) - 1))]);
    std::size_t dealt = 0;
    for (std::int64_t b = 0; b < problem.sequences(); ++b) {
        const oracle::Sequence& s = reference.sequences[at(b)];
        const auto [first, prefix] = prefix_of(b);
        std::vector<std::int64_t> mine;
        const std::int64_t count = (held[at(b)] + length - 1) / length;
        for (std::int64_t n = 0; n < std::max<std::int64_t>(count, cache.page_size == 0 ? 1 : 0); ++n) {
            if (first != b && (n + 1) * length <= prefix) {
                mine.push_back(-1);
                continue;
            }
            const bool another_has_it =
                cache.shared && n < 2 && !named_pages.empty() && named_pages.front().size() > at(n);
            mine.push_back(another_has_it ? named_pages.front()[at(n)] : order[dealt++]);
        }
        for (std::int64_t j = 0; j < s.k_length; ++j)
            key_rows[at(s.k_begin + j)] =
                (j < prefix && first != b ? named_pages[at(first)] : mine)[at(j / length)] * length + j % length;
        named_pages.push_back(std::move(mine));
    }
}

// Rows of the cache in the oracle's order of keys.
std::vector<double> ProblemData::by_key(const GuardedTensor& t, std::int64_t width) const {
    const std::vector<double> values = t.values();
    std::vector<double> result;
    result.reserve(key_rows.size() * at(width));
    for (std::size_t key = 0; key < key_rows.size(); ++key) {
        if (key_rows[key] < 0) {
            result.insert(result.end(), at(width), 0.0);
            continue;
        }
        const auto row = values.begin() + key_rows[key] * width;
        result.insert(result.end(), row, row + width);
    }
    return result;
}

// The element of q_scale that is row i's of a sequence.
std::size_t ProblemData::q_scale_of(std::int64_t b, std::int64_t i, std::int64_t h) const {
    const Case& p = problem;
    if (p.e4m3.q == Scaling::whole) return 0;
    if (p.e4m3.q == Scaling::heads) return at(b * p.kv_heads + h / (p.heads / p.kv_heads));
    const std::int64_t block = i / p.e4m3.block, blocks = q_scale.shape().back();
    if (!p.packed()) return at((b * p.heads + h) * blocks + block);
    std::int64_t before = 0;
    for (std::int64_t n = 0; n < b; ++n) before += (p.lengths_q[at(n)] + p.e4m3.block - 1) / p.e4m3.block;
    return at(h * blocks + before + block);
}

// The same of k_scale or v_scale, of key j.
std::size_t ProblemData::key_scale_of(Scaling scaling, std::int64_t b, std::int64_t j, std::int64_t h) const {
    const Case& p = problem;
    if (scaling == Scaling::whole) return 0;
    if (scaling == Scaling::heads) return at(b * p.kv_heads + h);
    if (p.packed() && !p.cache.present) {
        std::int64_t before = 0, blocks = 1;
        for (std::int64_t n = 0; n < p.sequences(); ++n) {
            if (n == b) before = blocks - 1;
            blocks += (p.lengths_k[at(n)] + p.e4m3.block - 1) / p.e4m3.block;
        }
        return at(h * blocks + before + j / p.e4m3.block);
    }
    const std::int64_t length = p.cache.present ? cache_shape[1] : p.seqlen_k;
    const std::int64_t row = key_rows[at(reference.sequences[at(b)].k_begin + j)];
    const std::int64_t blocks = (length + p.e4m3.block - 1) / p.e4m3.block;
    return at((row / length * p.kv_heads + h) * blocks + row % length / p.e4m3.block);
}

// Packed lists have one block more than they need.
void ProblemData::make_scales() {
    const Case& p = problem;
    RandomSource random(p.data_seed + 3);
    const auto shape_of = [&](Scaling scaling, std::int64_t heads, const std::vector<std::int64_t>& lengths,
                              std::int64_t outer, std::int64_t rows) {
        const auto blocks = [&](std::int64_t length) { return (length + p.e4m3.block - 1) / p.e4m3.block; };
        if (scaling == Scaling::whole) return Shape{};
        if (scaling == Scaling::heads) return Shape{p.sequences(), p.kv_heads};
        if (lengths.empty()) return Shape{outer, heads, blocks(rows)};
        std::int64_t all = 1;
        for (const std::int64_t length : lengths) all += blocks(length);
        return Shape{heads, all};
    };
    const auto make_of = [&](GuardedTensor& scale, Scaling scaling, const Shape& shape) {
        if (scaling == Scaling::none) return;
        Layout layout;
        layout.row_gap = p.inputs.row_gap;
        layout.heads_before_rows = p.inputs.heads_before_rows;
        scale = make(fp32, shape, layout);
        for (std::size_t n = 0; n < scale.size(); ++n) scale.set(n, 0.5 + random.uniform());
    };
    if (!p.e4m3.keys_only) make_of(q_scale, p.e4m3.q, shape_of(p.e4m3.q, p.heads, p.lengths_q, p.batch, p.seqlen_q));
    const bool cached = p.cache.present;
    for (auto [scale, scaling] : {std::pair(&k_scale, p.e4m3.k), std::pair(&v_scale, p.e4m3.v)})
        make_of(*scale, scaling,
                shape_of(scaling, p.kv_heads, cached ? std::vector<std::int64_t>{} : p.lengths_k,
                         cached ? cache_shape[0] : p.batch, cached ? cache_shape[1] : p.seqlen_k));
}

// What the oracle gets is dequantised.
void ProblemData::apply_scales() {
    const Case& p = problem;
    const auto multiply = [](std::vector<double>& rows, std::int64_t row, std::int64_t width, double scale) {
        for (std::int64_t c = 0; c < width; ++c) rows[at(row * width + c)] *= scale;
    };
    for (std::int64_t b = 0; b < p.sequences(); ++b) {
        const oracle::Sequence& s = reference.sequences[at(b)];
        for (std::int64_t h = 0; h < p.heads && q_scale.present(); ++h)
            for (std::int64_t i = 0; i < s.q_length; ++i)
                multiply(reference.q, (s.q_begin + i) * p.heads + h, p.head_dim, q_scale.get(q_scale_of(b, i, h)));
        for (std::int64_t h = 0; h < p.kv_heads; ++h)
            for (std::int64_t j = 0; j < s.k_length; ++j) {
                const std::int64_t row = (s.k_begin + j) * p.kv_heads + h;
                if (k_scale.present())
                    multiply(reference.k, row, p.head_dim, k_scale.get(key_scale_of(p.e4m3.k, b, j, h)));
                if (v_scale.present())
                    multiply(reference.v, row, p.head_dim_v, v_scale.get(key_scale_of(p.e4m3.v, b, j, h)));
            }
    }
}

// Scales of blocks of which no query sees a key, by the library's rows.
void ProblemData::poison_unseen_scales(const std::vector<bool>& seen) {
    const Case& p = problem;
    for (auto [scale, scaling] : {std::pair(&k_scale, p.e4m3.k), std::pair(&v_scale, p.e4m3.v)}) {
        if (scaling != Scaling::blocks) continue;
        std::vector<bool> used(scale->size(), false);
        for (std::int64_t b = 0; b < p.sequences(); ++b)
            for (std::int64_t h = 0; h < p.kv_heads; ++h)
                for (std::int64_t j = 0; j < reference.sequences[at(b)].k_length; ++j) {
                    const std::int64_t row = key_rows[at(reference.sequences[at(b)].k_begin + j)];
                    if (seen[at(row * p.kv_heads + h)]) used[key_scale_of(scaling, b, j, h)] = true;
                }
        for (std::size_t n = 0; n < used.size(); ++n)
            if (!used[n]) scale->set(n, kNaN);
    }
}

GuardedTensor ProblemData::make_broadcast(const BroadcastSpec& spec, dtype type) const {
    const std::array<std::int64_t, 4> full{problem.sequences(), problem.heads, problem.longest_q(),
                                           problem.longest_k()};
    Shape shape;
    for (std::size_t n = 4 - at(spec.rank); n < 4; ++n)
        shape.push_back(spec.spans[n] || (spec.expanded && n < 2) ? full[n] : 1);
    Layout layout;
    layout.row_gap = problem.inputs.row_gap;
    layout.nonsense_strides = problem.inputs.nonsense_strides;
    if (spec.expanded && spec.rank == 4) {
        layout.broadcast_first = !spec.spans[0];
    } else {
        layout.heads_before_rows = problem.inputs.heads_before_rows;
    }
    return make(type, shape, layout);
}

GuardedTensor ProblemData::make(dtype type, std::vector<std::int64_t> shape, const Layout& layout) const {
    return GuardedTensor(type, std::move(shape), layout, problem.guard, where_);
}

oracle::Broadcast ProblemData::read_broadcast(const BroadcastSpec& spec, const GuardedTensor& from) const {
    oracle::Broadcast result;
    const Shape& shape = from.shape();
    for (std::size_t n = 0; n < shape.size(); ++n) result.shape[4 - at(spec.rank) + n] = shape[n];
    result.values = from.values();
    return result;
}

void ProblemData::make_tensors() {
    const Case& p = problem;
    const auto rows_like = [&](std::int64_t rows_dense, std::int64_t rows_packed, std::int64_t heads,
                               std::int64_t width) {
        return p.packed() ? Shape{rows_packed, heads, width} : Shape{p.batch, rows_dense, heads, width};
    };
    const Shape q_shape = rows_like(p.seqlen_q, reference.rows_q, p.heads, p.head_dim);
    const Shape k_shape = rows_like(p.seqlen_k, reference.rows_k, p.kv_heads, p.head_dim);
    const Shape v_shape = rows_like(p.seqlen_k, reference.rows_k, p.kv_heads, p.head_dim_v);
    const Shape out_shape = rows_like(p.seqlen_q, reference.rows_q, p.heads, p.head_dim_v);
    const Shape lse_shape = p.packed() ? Shape{p.heads, reference.rows_q} : Shape{p.batch, p.heads, p.seqlen_q};

    Layout inputs = p.inputs;
    if (p.packed()) inputs.broadcast_first = false;
    Layout dout_layout = inputs;
    dout_layout.broadcast_first = dout_layout.broadcast_heads = false;
    q = make(p.e4m3_queries() ? fp8_e4m3 : p.type, q_shape, inputs);
    const auto keys_like = [&](const Shape& dense, std::int64_t width) {
        return p.cache.present ? Shape{cache_shape[0], cache_shape[1], p.kv_heads, width} : dense;
    };
    const dtype keys_type = p.e4m3.present ? fp8_e4m3 : p.type;
    k = make(keys_type, keys_like(k_shape, p.head_dim), inputs);
    v = make(keys_type, keys_like(v_shape, p.head_dim_v), inputs);
    if (p.e4m3.present) make_scales();
    dout = make(p.type, out_shape, dout_layout);
    if (p.with_dlse) dlse = make(fp32, lse_shape, dout_layout);

    out = make(p.out_in_fp32 ? fp32 : p.type, out_shape, p.outputs);
    lse = make(fp32, lse_shape, p.outputs);
    dq = make(p.type, q_shape, p.outputs);
    dk = make(p.type, k_shape, p.outputs);
    dv = make(p.type, v_shape, p.outputs);

    const dtype bias_type = p.score_type(p.bias_in_fp32);
    if (p.bias.present) {
        bias = make_broadcast(p.bias, bias_type);
        dbias = make(bias_type, bias.shape(), p.outputs);
    }
    if (p.mask.present) mask = make_broadcast(p.mask, boolean);
    if (p.slopes == Slopes::per_head) slopes = make(fp32, {p.heads});
    if (p.slopes == Slopes::per_batch_and_head) slopes = make(fp32, {p.sequences(), p.heads});
    const dtype length_type = p.wide_lengths ? dtype::int64 : dtype::int32;
    if (p.packed()) {
        cu_seqlens_q = make(length_type, {p.sequences() + 1});
        if (!p.cache.present) cu_seqlens_k = make(length_type, {p.sequences() + 1});
    }
    if (!p.used_k.empty() || p.cache.present) used_k = make(dtype::int32, {p.sequences()});
    if (!p.used_q.empty()) used_q = make(dtype::int32, {p.sequences()});
    if (!p.first_k.empty()) first_k = make(dtype::int32, {p.sequences()});
    if (p.cache.present && p.cache.page_size == 0) cache_batch_idx = make(length_type, {p.sequences()});
    if (p.cache.page_size != 0) {
        const std::int64_t most = (p.longest_k() + p.cache.page_size - 1) / p.cache.page_size;
        block_table = make(dtype::int32, {p.sequences(), most + 1});
    }
    if (!p.cache.groups.empty()) {
        prefix_groups = make(dtype::int32, {static_cast<std::int64_t>(p.cache.groups.size())});
        prefix_lengths = make(dtype::int32, {static_cast<std::int64_t>(p.cache.prefixes.size())});
    }
    if (!p.diagonals.empty()) diagonals = make(dtype::int64, {p.sequences()});
    if (!p.origins_i.empty()) origins_i = make(dtype::int64, {p.sequences()});
    if (!p.origins_j.empty()) origins_j = make(dtype::int64, {p.sequences()});
    if (p.positions) positions = make(dtype::int32, p.packed() ? Shape{reference.rows_q} : Shape{p.batch, p.seqlen_q});
    if (p.tree) tree = make(boolean, {p.sequences(), p.data_seed % 2 == 0 ? p.heads : 1, p.longest_q(), p.longest_q()});
    for (const FunctionTensor& named : conformance::function_tensors(p)) {
        function_tensors.push_back(make(named.type, named.shape, {.row_gap = p.inputs.row_gap}));
        named_tensors_.push_back(flashtile::named(named.name, function_tensors.back().view()));
        const bool of_floats = named.type == fp32 || named.type == p.type;
        dtensors.emplace_back();
        const bool in_no_order = p.deterministic && where_.type == FLASHTILE_CUDA;  // which is refused
        if (!p.tensor_gradients || p.forward_only() || !of_floats || in_no_order) continue;
        dtensors.back() = make(fp32, named.shape, {.row_gap = p.inputs.row_gap});
        named_gradients_.push_back(flashtile::named(named.name, dtensors.back().view()));
    }
    if (p.blocks.block_q != 0) make_block_lists();
    if (p.sinks != Sinks::none) {
        sinks = make(p.score_type(p.sinks == Sinks::in_fp32), {p.heads});
        dsinks = make(p.score_type(p.sinks == Sinks::in_fp32), {p.heads});
    }
}

void ProblemData::fill_tensors() {
    const Case& p = problem;
    RandomSource random(p.data_seed);
    fill_normal(q, random, p.magnitude_qk);
    fill_normal(k, random, p.magnitude_qk);
    if (p.early_key != 1.0) {
        const auto row = static_cast<std::size_t>(p.kv_heads * p.head_dim);
        for (std::size_t n = 0; n < k.size(); ++n)
            if (n / row % at(p.seqlen_k) == 5) k.set(n, k.get(n) * p.early_key);
    }
    fill_normal(v, random, p.magnitude_v);
    if (p.latent)
        for (std::size_t n = 0; n < v.size(); ++n)
            v.set(n, k.get(n / at(p.head_dim_v) * at(p.head_dim) + n % at(p.head_dim_v)));
    fill_normal(dout, random, 1.0);
    if (dlse.present()) fill_normal(dlse, random, 1.0);
    if (bias.present()) fill_bias(bias, p.score_type(p.bias_in_fp32), p.bias_values, random);
    for (std::size_t n = 0; n < mask.size(); ++n) mask.set(n, random.chance(p.mask_density) ? 1.0 : 0.0);
    for (std::size_t n = 0; n < slopes.size(); ++n) slopes.set(n, random.uniform() * 0.5);
    std::int64_t sum_q = 0, sum_k = 0;
    for (std::size_t n = 0; n < cu_seqlens_q.size(); ++n) {
        cu_seqlens_q.set(n, static_cast<double>(sum_q));
        if (cu_seqlens_k.present()) cu_seqlens_k.set(n, static_cast<double>(sum_k));
        if (n < p.lengths_q.size()) {
            sum_q += p.lengths_q[n];
            sum_k += p.lengths_k[n];
        }
    }
    for (std::size_t n = 0; n < used_k.size(); ++n) used_k.set(n, static_cast<double>(reference.sequences[n].k_length));
    for (std::size_t n = 0; n < used_q.size(); ++n) used_q.set(n, static_cast<double>(reference.sequences[n].q_length));
    for (std::size_t n = 0; n < first_k.size(); ++n) first_k.set(n, static_cast<double>(p.first_k[n]));
    for (std::size_t n = 0; n < diagonals.size(); ++n) diagonals.set(n, static_cast<double>(p.diagonals[n]));
    for (std::size_t n = 0; n < origins_i.size(); ++n) origins_i.set(n, static_cast<double>(p.origins_i[n]));
    for (std::size_t n = 0; n < origins_j.size(); ++n) origins_j.set(n, static_cast<double>(p.origins_j[n]));
    for (std::size_t b = 0; b < cache_batch_idx.size(); ++b)
        cache_batch_idx.set(b, static_cast<double>(named_pages[b][0]));
    // Entries behind a sequence's pages are never read.
    for (std::size_t n = 0; n < block_table.size(); ++n) block_table.set(n, n % 2 == 0 ? 2147483647.0 : -7.0);
    for (std::size_t b = 0; b < named_pages.size() && block_table.present(); ++b)
        for (std::size_t n = 0; n < named_pages[b].size(); ++n)
            if (named_pages[b][n] >= 0)
                block_table.set(b * at(block_table.shape()[1]) + n, static_cast<double>(named_pages[b][n]));
    for (std::size_t n = 0; n < prefix_groups.size(); ++n) prefix_groups.set(n, static_cast<double>(p.cache.groups[n]));
    for (std::size_t n = 0; n < prefix_lengths.size(); ++n)
        prefix_lengths.set(n, static_cast<double>(p.cache.prefixes[n]));
    for (std::size_t n = 0; n < tree.size(); ++n) tree.set(n, random.chance(0.6) ? 1.0 : 0.0);
    if (positions.present()) draw_positions();
    for (std::size_t h = 0; h < sinks.size(); ++h) sinks.set(h, h % 5 == 4 ? -kInfinity : 1.5 * random.normal());

    std::vector<oracle::ExpressionTensor> named;
    for (std::size_t n = 0; const FunctionTensor& what : conformance::function_tensors(p)) {
        fill_function_tensor(what, p, random, function_tensors[n]);
        if (p.tensor_gradients) reference.tensor_elements.push_back(function_tensors[n].size());
        named.push_back(as_the_oracle_reads(what, function_tensors[n++]));
    }

    if (p.blocks.block_q != 0) fill_block_lists();

    oracle::Problem& r = reference;
    if (!p.score_function.empty())
        r.score_function = std::make_shared<oracle::Expression>(p.score_function, named, true);
    if (!p.mask_function.empty()) r.mask_function = std::make_shared<oracle::Expression>(p.mask_function, named, false);
    r.heads = p.heads;
    r.kv_heads = p.kv_heads;
    r.head_dim = p.head_dim;
    r.head_dim_v = p.head_dim_v;
    r.q = q.values();
    r.k = by_key(k, p.kv_heads * p.head_dim);
    r.v = by_key(v, p.kv_heads * p.head_dim_v);
    if (p.e4m3.present) apply_scales();
    r.scale = p.scale ? static_cast<double>(*p.scale) : 1.0 / std::sqrt(static_cast<double>(p.head_dim));
    r.softcap = static_cast<double>(p.softcap);
    r.causal = p.causal.value != FLASHTILE_CAUSAL_NONE;
    r.top_left = r.causal ? p.causal.value == FLASHTILE_CAUSAL_TOP_LEFT : p.align_top_left;
    r.window_left = p.window.left;
    r.window_right = p.window.right;
    r.chunk = p.chunk;
    r.diagonal = p.diagonal;
    r.origin = {p.origin.b, p.origin.h, p.origin.i, p.origin.j};
    r.sinks = sinks.values();
    if (tree.present()) {
        r.tree.shape = {tree.shape()[0], tree.shape()[1], tree.shape()[2], tree.shape()[3]};
        r.tree.values = tree.values();
    }
    r.positions = positions.values();
    r.slopes = slopes.values();
    r.slopes_per_batch = p.slopes == Slopes::per_batch_and_head;
    if (bias.present()) r.bias = read_broadcast(p.bias, bias);
    r.bias_in_fp32 = p.bias_in_fp32;
    if (mask.present()) r.mask = read_broadcast(p.mask, mask);
    r.dropout = p.dropout;
    r.seed = p.seed;
    r.offset = p.offset;
    r.dout = dout.values();
    if (dlse.present()) {
        r.dlse.resize(at(r.rows_q * p.heads));
        for (std::int64_t row = 0; row < r.rows_q; ++row)
            for (std::int64_t h = 0; h < p.heads; ++h) r.dlse[at(row * p.heads + h)] = dlse.get(lse_element(row, h));
    }
}

// Those of a tree behind a sequence's older keys; now and then one that is any.
void ProblemData::draw_positions() {
    RandomSource random(problem.data_seed + 2);
    for (std::size_t row = 0; row < positions.size(); ++row) positions.set(row, -5.0);  // of no query: not read
    for (const oracle::Sequence& s : reference.sequences) {
        const std::int64_t old = std::max<std::int64_t>(0, s.k_length - s.q_length);
        for (std::int64_t i = 0; i < s.q_length; ++i)
            positions.set(at(s.q_begin + i), static_cast<double>(random.chance(0.1) ? random.integer(0, 400)
                                                                                    : old + random.integer(0, i)));
    }
}

void ProblemData::make_block_lists() {
    const BlockListsSpec& spec = problem.blocks;
    const std::int64_t batch = spec.per_sequence ? problem.sequences() : 1, heads = spec.per_head ? problem.heads : 1;
    const std::int64_t rows = (problem.longest_q() + spec.block_q - 1) / spec.block_q;
    const std::int64_t columns = (problem.longest_k() + spec.block_k - 1) / spec.block_k;
    const Layout layout{.row_gap = problem.inputs.row_gap};
    block_counts = make(dtype::int32, {batch, heads, rows}, layout);
    block_indices = make(dtype::int32, {batch, heads, rows, columns}, layout);
    if (!spec.full) return;
    full_counts = make(dtype::int32, {batch, heads, rows});
    full_indices = make(dtype::int32, {batch, heads, rows, columns});
}

// In no order. Entries behind those that count are never read.
void ProblemData::fill_block_lists() {
    RandomSource random(problem.data_seed + 3);
    const Shape& shape = block_indices.shape();
    const auto columns = at(shape[3]);
    for (GuardedTensor* indices : {&block_indices, &full_indices})
        for (std::size_t n = 0; n < indices->size(); ++n) indices->set(n, n % 2 == 0 ? 2147483647.0 : -7.0);
    for (std::size_t row = 0; row < block_counts.size(); ++row) {
        std::vector<std::size_t> order(columns);
        std::iota(order.begin(), order.end(), std::size_t{0});
        for (std::size_t n = columns; n > 1; --n)
            std::swap(order[n - 1], order[at(random.integer(0, static_cast<std::int64_t>(n) - 1))]);
        std::size_t partial = 0, full = 0;
        for (const std::size_t block : order) {
            if (random.chance(0.35)) continue;
            if (full_indices.present() && random.chance(0.5))
                full_indices.set(row * columns + full++, static_cast<double>(block));
            else
                block_indices.set(row * columns + partial++, static_cast<double>(block));
        }
        block_counts.set(row, static_cast<double>(partial));
        if (full_counts.present()) full_counts.set(row, static_cast<double>(full));
    }
    reference.block_q = problem.blocks.block_q;
    reference.block_k = problem.blocks.block_k;
    reference.partial_blocks = {
        {shape[0], shape[1]}, shape[2], shape[3], block_counts.values(), block_indices.values()};
    reference.full_blocks = {{shape[0], shape[1]}, shape[2], shape[3], full_counts.values(), full_indices.values()};
}

// Rows of no sequence, keys past seqused and keys that no query sees: NaN and infinities must have no effect there.
void ProblemData::poison_unseen() {
    const oracle::Problem& r = reference;
    std::vector<bool> seen(k.size() / at(r.head_dim), false);  // of the library's rows
    for (std::int64_t b = 0; b < problem.sequences(); ++b) {
        const oracle::Sequence& s = r.sequences[at(b)];
        for (std::int64_t h = 0; h < r.heads; ++h)
            for (std::int64_t j = 0; j < s.k_length; ++j) {
                const auto key = at(key_rows[at(s.k_begin + j)] * r.kv_heads + h / (r.heads / r.kv_heads));
                for (std::int64_t i = 0; i < s.q_length && !seen[key]; ++i) seen[key] = oracle::sees(r, b, h, i, j);
            }
    }
    const auto poison_row = [](GuardedTensor& t, std::size_t row, std::int64_t width) {
        const double value = std::array{kNaN, kInfinity, -kInfinity}[row % 3];
        for (std::size_t c = 0; c < at(width); ++c) t.set(row * at(width) + c, value);
    };
    for (std::size_t key = 0; key < seen.size(); ++key) {
        if (seen[key]) continue;
        poison_row(k, key, problem.head_dim);
        poison_row(v, key, problem.head_dim_v);
    }
    if (problem.e4m3.present) poison_unseen_scales(seen);
    for (std::size_t row = 0; row < row_owned_q.size(); ++row) {
        if (row_owned_q[row]) continue;
        poison_row(q, row, problem.heads * problem.head_dim);
        poison_row(dout, row, problem.heads * problem.head_dim_v);
    }
}

// Places of the bias past every sequence's own lengths are of no score.
void ProblemData::poison_unused_bias() {
    if (!bias.present() || !problem.packed() || problem.bias.expanded) return;
    std::vector<bool> used(bias.size(), false);
    for (std::int64_t b = 0; b < problem.sequences(); ++b)
        for (std::int64_t h = 0; h < problem.heads; ++h)
            for (std::int64_t i = 0; i < reference.sequences[at(b)].q_length; ++i)
                for (std::int64_t j = 0; j < reference.sequences[at(b)].k_length; ++j)
                    used[reference.bias.index(b, h, i, j)] = true;
    for (std::size_t n = 0; n < used.size(); ++n)
        if (!used[n]) bias.set(n, kNaN);
}

flashtile::options ProblemData::options(isa which) const {
    const Case& p = problem;
    flashtile::options o;
    o.causal = p.causal;
    o.window = p.window;
    o.align_top_left = p.align_top_left;
    o.scale = p.scale;
    o.softcap = p.softcap;
    o.alibi_slopes = slopes.view();
    o.bias = bias.view();
    o.mask = mask.view();
    o.dropout = p.dropout;
    if (p.seed_in_memory) {
        o.seed = ~p.seed;  // must not be looked at
        o.offset = ~p.offset;
        const auto* memory = where_.type == FLASHTILE_CUDA
                                 ? static_cast<const std::uint64_t*>(seed_and_offset_on_gpu_.data())
                                 : seed_and_offset_.data();
        o.seed_ptr = memory;
        o.offset_ptr = memory + 1;
    } else {
        o.seed = p.seed;
        o.offset = p.offset;
    }
    o.cu_seqlens_q = cu_seqlens_q.view();
    o.cu_seqlens_k = cu_seqlens_k.view();
    if (p.packed()) {
        o.max_seqlen_q = p.longest_q();
        o.max_seqlen_k = p.longest_k();
    }
    if (p.cache.present) o.max_seqlen_k = p.longest_k();
    o.block_table = block_table.view();
    o.cache_batch_idx = cache_batch_idx.view();
    o.first_k = first_k.view();
    o.seqused_q = used_q.view();
    o.tree_mask = tree.view();
    o.sinks = sinks.view();
    o.positions = positions.view();
    o.prefix_groups = prefix_groups.view();
    o.prefix_lengths = prefix_lengths.view();
    o.attention_chunk = p.chunk;
    o.diagonal = p.diagonal;
    o.origin = p.origin;
    o.diagonals = diagonals.view();
    o.origins_i = origins_i.view();
    o.origins_j = origins_j.view();
    if (!p.score_function.empty()) o.score_function = p.score_function.c_str();
    if (!p.mask_function.empty()) o.mask_function = p.mask_function.c_str();
    o.function_tensors = named_tensors_;
    o.block_lists = {p.blocks.block_q,     p.blocks.block_k,   block_counts.view(),
                     block_indices.view(), full_counts.view(), full_indices.view()};
    o.q_scale = q_scale.view();
    o.k_scale = k_scale.view();
    o.v_scale = v_scale.view();
    if (p.e4m3.present && p.e4m3.blocks()) o.scale_block = p.e4m3.block;
    o.num_splits = p.num_splits;
    o.seqused_k = used_k.view();
    o.deterministic = p.deterministic;
    o.batch_invariant = p.batch_invariant;
    o.exact_max = p.exact_max;
    o.threads = p.threads;
    o.isa = which;
    return o;
}

backward_args ProblemData::gradients() const {
    return {.out = out.view(),
            .lse = lse.view(),
            .dout = dout.view(),
            .dlse = dlse.view(),
            .dq = dq.view(),
            .dk = dk.view(),
            .dv = dv.view(),
            .dbias = dbias.view(),
            .dsinks = dsinks.view(),
            .dtensors = named_gradients_};
}

std::vector<bool> ProblemData::owned(const std::vector<bool>& rows, std::int64_t width) const {
    std::vector<bool> result;
    result.reserve(rows.size() * at(width));
    for (const bool own : rows) result.insert(result.end(), at(width), own);
    return result;
}

std::size_t ProblemData::lse_element(std::int64_t row, std::int64_t head) const {
    if (problem.packed()) return at(head * reference.rows_q + row);
    return at((row / problem.seqlen_q * problem.heads + head) * problem.seqlen_q + row % problem.seqlen_q);
}

std::vector<double> ProblemData::lse_by_row() const {
    std::vector<double> result(lse.size());
    for (std::int64_t row = 0; row < reference.rows_q; ++row)
        for (std::int64_t h = 0; h < problem.heads; ++h)
            result[at(row * problem.heads + h)] = lse.get(lse_element(row, h));
    return result;
}

std::vector<bool> ProblemData::owned_lse() const {
    std::vector<bool> result(lse.size(), false);
    for (std::int64_t row = 0; row < reference.rows_q; ++row)
        for (std::int64_t h = 0; h < problem.heads; ++h) result[lse_element(row, h)] = row_owned_q[at(row)];
    return result;
}

}  // namespace flashtile::conformance
