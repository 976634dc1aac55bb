// append_test.cpp: keys and values appended to caches of every kind, on every instruction set and on CUDA: where each
// row goes, what stays as it was, and how keys and queries are rotated, beside a rotation in fp64; the same bits
// everywhere.
#include <algorithm>
#include <cmath>
#include <optional>

#include "conformance/random_source.h"
#include "oracle/precision.h"
#include "oracle/rotary.h"
#include "unit/on_target.h"

namespace flashtile::unit {
namespace {

using conformance::Guard;
using conformance::GuardedTensor;
using conformance::Layout;
using Numbers = std::vector<std::int64_t>;

// A call in words. Dense caches have a page for each row of the cache.
struct Append {
    dtype type = bf16, table_type = fp32;
    std::int64_t kv_heads = 2, heads = 4, d = 64, dv = 64;
    std::int64_t pages = 3, page_size = 40;
    std::vector<Numbers> block_table{};  // of each sequence
    Numbers rows_of_cache{};             // cache_batch_idx
    Numbers slots{};                     // one a new row
    Numbers lengths{7, 0, 30};           // cache_seqlens; empty: none
    Numbers counts{4, 4, 4};             // new rows of each sequence
    bool packed = false, packed_q = false;
    std::int64_t pairs = 0, begin = 0;  // of the rotation
    bool interleaved = false;
    Numbers offsets{}, positions{}, positions_q{};
    Numbers queries{};                  // of each sequence; empty: no q
    bool causal = false, wide = false;  // wide: int64
    Layout layout{}, cache_layout{};
    bool with_v = true;

    static std::int64_t sum(const Numbers& list) {
        std::int64_t total = 0;
        for (const std::int64_t n : list) total += n;
        return total;
    }
    std::int64_t batch() const { return static_cast<std::int64_t>(counts.size()); }
    std::int64_t new_rows() const { return sum(counts); }
    bool paged() const { return !block_table.empty() || !slots.empty(); }
};

constexpr std::int64_t kPositions = 64;

// The tensors of a call.
struct Tensors {
    Tensors(const Append& given, device where) : a(given), where_(where), random_(17) {
        const auto rows = [&](const Numbers& counts, bool packed, std::int64_t heads, std::int64_t d) {
            if (packed) return Numbers{Append::sum(counts), heads, d};
            return Numbers{a.batch(), counts.front(), heads, d};
        };
        k = drawn(a.type, rows(a.counts, a.packed, a.kv_heads, a.d), a.layout);
        k_cache = drawn(a.type, {a.pages, a.page_size, a.kv_heads, a.d}, a.cache_layout);
        if (a.with_v) {
            v = drawn(a.type, rows(a.counts, a.packed, a.kv_heads, a.dv), a.layout);
            v_cache = drawn(a.type, {a.pages, a.page_size, a.kv_heads, a.dv}, a.cache_layout);
        }
        const dtype integer = a.wide ? dtype::int64 : dtype::int32;
        if (a.packed) cu_seqlens_k_new = list(integer, cumulative(a.counts));
        lengths = list(integer, a.lengths);
        rows_of_cache = list(integer, a.rows_of_cache);
        offsets = list(integer, a.offsets);
        slots = list(dtype::int64, a.slots, a.packed ? 0 : a.counts.front());
        positions = list(integer, a.positions, a.packed ? 0 : a.counts.front());
        if (!a.block_table.empty()) {
            const auto most = static_cast<std::int64_t>(a.block_table.front().size());
            block_table = GuardedTensor(dtype::int32, {a.batch(), most}, {}, Guard::nan_bands, where);
            for (std::size_t n = 0; n < block_table.size(); ++n)
                block_table.set(
                    n, static_cast<double>(
                           a.block_table[n / static_cast<std::size_t>(most)][n % static_cast<std::size_t>(most)]));
        }
        if (a.pairs != 0) draw_table();
        if (!a.queries.empty()) {
            q = drawn(a.type, rows(a.queries, a.packed_q, a.heads, a.d), a.layout);
            q_out = GuardedTensor(a.type, q.shape(), a.layout, Guard::nan_bands, where);
            if (a.packed_q) cu_seqlens_q = list(integer, cumulative(a.queries));
            positions_q = list(integer, a.positions_q, a.packed_q ? 0 : a.queries.front());
        }
        if (a.pairs != 0 && k.size() != 0) make_cancel(k);
        k_before = k_cache.values();
        if (a.with_v) v_before = v_cache.values();
    }

    append_args arguments() const {
        append_args x;
        x.k = k.view(), x.v = view_of(v), x.k_cache = k_cache.view(), x.v_cache = view_of(v_cache);
        x.block_table = view_of(block_table), x.slots = view_of(slots), x.cache_batch_idx = view_of(rows_of_cache);
        x.cache_seqlens = view_of(lengths), x.cu_seqlens_k_new = view_of(cu_seqlens_k_new);
        x.rotary_cos = view_of(cos), x.rotary_sin = view_of(sin), x.rotary_offsets = view_of(offsets);
        x.positions = view_of(positions), x.q = view_of(q), x.q_out = view_of(q_out);
        x.cu_seqlens_q = view_of(cu_seqlens_q), x.positions_q = view_of(positions_q);
        x.rotary_begin = a.begin, x.rotary_interleaved = a.interleaved;
        return x;
    }
    std::vector<GuardedTensor*> inputs() {
        return {&k,   &v,       &block_table, &slots, &rows_of_cache, &lengths,    &cu_seqlens_k_new, &cos,
                &sin, &offsets, &positions,   &q,     &cu_seqlens_q,  &positions_q};
    }
    void upload() {
        for (GuardedTensor* t : inputs()) t->upload();
        for (GuardedTensor* t : {&k_cache, &v_cache, &q_out}) t->upload();
    }
    void download() {
        for (GuardedTensor* t : inputs()) t->download();
        for (GuardedTensor* t : {&k_cache, &v_cache, &q_out}) t->download();
    }

    // A list of numbers, in rows of `row` where that is not 0.
    GuardedTensor list(dtype type, const Numbers& numbers, std::int64_t row = 0) const {
        if (numbers.empty()) return {};
        const auto size = static_cast<std::int64_t>(numbers.size());
        GuardedTensor t(type, row == 0 ? Numbers{size} : Numbers{size / row, row}, {}, Guard::nan_bands, where_);
        for (std::size_t n = 0; n < numbers.size(); ++n) t.set(n, static_cast<double>(numbers[n]));
        return t;
    }
    static Numbers cumulative(const Numbers& counts) {
        Numbers starts{0};
        for (const std::int64_t n : counts) starts.push_back(starts.back() + n);
        return starts;
    }

    const Append a;
    GuardedTensor k, v, k_cache, v_cache, block_table, slots, rows_of_cache, lengths, cu_seqlens_k_new, cos, sin,
        offsets, positions, q, q_out, cu_seqlens_q, positions_q;
    std::vector<double> k_before, v_before;

private:
    static tensor view_of(const GuardedTensor& t) { return t.present() ? t.view() : tensor(); }

    GuardedTensor drawn(dtype type, const Numbers& shape, const Layout& layout) {
        GuardedTensor t(type, shape, layout, Guard::nan_bands, where_);
        for (std::size_t n = 0; n < t.size(); ++n) t.set(n, random_.normal());
        return t;
    }
    void draw_table() {
        cos = GuardedTensor(a.table_type, {kPositions, a.pairs}, a.layout, Guard::nan_bands, where_);
        sin = GuardedTensor(a.table_type, {kPositions, a.pairs}, {}, Guard::nan_bands, where_);
        for (std::size_t n = 0; n < cos.size(); ++n) {
            const auto position = static_cast<double>(n / static_cast<std::size_t>(a.pairs)) + 0.3;
            const double angle =
                position * std::pow(100.0, -static_cast<double>(n % static_cast<std::size_t>(a.pairs)) /
                                               static_cast<double>(a.pairs));
            cos.set(n, std::cos(angle)), sin.set(n, std::sin(angle));
        }
    }
    // In every third pair what is rotated by the first position that is asked for cancels nearly wholly.
    void make_cancel(GuardedTensor& x) {
        const std::int64_t position = !a.positions.empty() ? a.positions.front()
                                      : !a.offsets.empty() ? a.offsets.front()
                                                           : a.lengths.front();
        if (position < 0 || position >= kPositions) return;
        for (std::int64_t n = 0; n < a.pairs; n += 3) {
            const std::int64_t first = a.begin + (a.interleaved ? 2 * n : n),
                               second = first + (a.interleaved ? 1 : a.pairs);
            const auto at = static_cast<std::size_t>(position * a.pairs + n);
            x.set(static_cast<std::size_t>(second), x.get(static_cast<std::size_t>(first)) * cos.get(at) / sin.get(at));
        }
    }

    device where_;
    conformance::RandomSource random_;
};

// A row of `heads` heads, d columns each, of a tensor that has them innermost.
std::span<const double> head_of(const std::vector<double>& values, std::int64_t row, std::int64_t heads, std::int64_t h,
                                std::int64_t d) {
    return std::span(values).subspan(static_cast<std::size_t>((row * heads + h) * d), static_cast<std::size_t>(d));
}

oracle::Precision precision_of(dtype type) {
    return type == fp32 ? oracle::Precision::fp32 : type == fp16 ? oracle::Precision::fp16 : oracle::Precision::bf16;
}

// Counts what is further from a rotation in fp64 than 0.51 units of the last place, in fp32 than 1.5; what is not
// rotated must be equal.
std::size_t wrong_in_row(std::span<const double> got, std::span<const double> from, const Tensors& t,
                         std::int64_t position) {
    const Append& a = t.a;
    std::vector<double> expected(from.begin(), from.end());
    if (a.pairs != 0) {
        const std::vector<double> cos = t.cos.values(), sin = t.sin.values();
        const auto angles = [&](const std::vector<double>& table) {
            return std::span(table).subspan(static_cast<std::size_t>(position * a.pairs),
                                            static_cast<std::size_t>(a.pairs));
        };
        expected = oracle::rotate(from, angles(cos), angles(sin), a.begin, a.interleaved);
    }
    const double units = a.type == fp32 ? 1.5 : 0.51;
    std::size_t wrong = 0;
    for (std::size_t c = 0; c < got.size(); ++c) {
        const auto column = static_cast<std::int64_t>(c);
        const bool rotated = a.begin <= column && column < a.begin + 2 * a.pairs;
        const double allowed = rotated ? units * oracle::ulp_at(std::abs(expected[c]), precision_of(a.type)) : 0.0;
        if (!(std::abs(got[c] - expected[c]) <= allowed)) ++wrong;
    }
    return wrong;
}

// Of new row `row`, the n-th of sequence b, the row of the cache it goes to, over all pages; nothing where it goes
// nowhere.
std::optional<std::int64_t> place(const Append& a, std::int64_t row, std::int64_t b, std::int64_t n) {
    const auto at = [](const auto& list, std::int64_t i) { return list[static_cast<std::size_t>(i)]; };
    if (!a.slots.empty()) {
        const std::int64_t slot = at(a.slots, row);
        if (slot < 0 || slot >= a.pages * a.page_size) return {};
        return slot;
    }
    const std::int64_t j = at(a.lengths, b) + n;
    if (!a.block_table.empty()) {
        const Numbers& table = a.block_table[static_cast<std::size_t>(b)];
        if (j / a.page_size >= static_cast<std::int64_t>(table.size())) return {};
        const std::int64_t page = at(table, j / a.page_size);
        if (page < 0 || page >= a.pages) return {};
        return page * a.page_size + j % a.page_size;
    }
    if (j >= a.page_size) return {};
    return (a.rows_of_cache.empty() ? b : at(a.rows_of_cache, b)) * a.page_size + j;
}

void expect_appended(const Tensors& t) {
    const Append& a = t.a;
    const auto at = [](const Numbers& list, std::int64_t i) { return list[static_cast<std::size_t>(i)]; };
    const std::vector<double> k = t.k.values(), got_k = t.k_cache.values();
    const std::vector<double> v = a.with_v ? t.v.values() : k, got_v = a.with_v ? t.v_cache.values() : got_k;
    std::vector<bool> written(static_cast<std::size_t>(a.pages * a.page_size));
    std::size_t wrong = 0;
    std::int64_t row = 0;
    for (std::int64_t b = 0; b < a.batch(); ++b)
        for (std::int64_t n = 0; n < at(a.counts, b); ++n, ++row) {
            const auto to = place(a, row, b, n);
            if (!to) continue;
            written[static_cast<std::size_t>(*to)] = true;
            const std::int64_t position = !a.positions.empty() ? at(a.positions, row)
                                          : !a.offsets.empty() ? at(a.offsets, b) + n
                                          : !a.lengths.empty() ? at(a.lengths, b) + n
                                                               : 0;
            for (std::int64_t h = 0; h < a.kv_heads; ++h) {
                wrong += wrong_in_row(head_of(got_k, *to, a.kv_heads, h, a.d), head_of(k, row, a.kv_heads, h, a.d), t,
                                      position);
                if (a.with_v)
                    wrong += !std::ranges::equal(head_of(got_v, *to, a.kv_heads, h, a.dv),
                                                 head_of(v, row, a.kv_heads, h, a.dv));
            }
        }
    EXPECT_EQ(wrong, 0U) << "elements of appended rows";
    wrong = 0;
    for (std::int64_t to = 0; to < a.pages * a.page_size; ++to) {
        if (written[static_cast<std::size_t>(to)]) continue;
        const std::int64_t width = a.kv_heads * a.d, width_v = a.kv_heads * a.dv;
        wrong += !std::ranges::equal(head_of(got_k, to, 1, 0, width), head_of(t.k_before, to, 1, 0, width));
        if (a.with_v)
            wrong += !std::ranges::equal(head_of(got_v, to, 1, 0, width_v), head_of(t.v_before, to, 1, 0, width_v));
    }
    EXPECT_EQ(wrong, 0U) << "rows that are none of the new ones";
    if (a.queries.empty()) return;
    const std::vector<double> q = t.q.values(), got_q = t.q_out.values();
    wrong = 0;
    row = 0;
    for (std::int64_t b = 0; b < a.batch(); ++b)
        for (std::int64_t i = 0; i < at(a.queries, b); ++i, ++row) {
            const std::int64_t first = !a.offsets.empty()   ? at(a.offsets, b)
                                       : !a.lengths.empty() ? at(a.lengths, b)
                                                            : 0;
            const std::int64_t position = !a.positions_q.empty() ? at(a.positions_q, row)
                                          : !a.positions.empty() ? at(a.positions, row)
                                                                 : first + (a.causal ? i : 0);
            for (std::int64_t h = 0; h < a.heads; ++h)
                wrong +=
                    wrong_in_row(head_of(got_q, row, a.heads, h, a.d), head_of(q, row, a.heads, h, a.d), t, position);
        }
    EXPECT_EQ(wrong, 0U) << "elements of queries";
}

std::vector<Append> appends() {
    std::vector<Append> list;
    const auto add = [&](auto change) {
        Append a;
        change(a);
        list.push_back(a);
    };
    add([](Append&) {});
    add([](Append& a) { a.pairs = 32, a.queries = {4, 4, 4}, a.causal = true; });
    add([](Append& a) { a.pairs = 32, a.queries = {3, 3, 3}, a.interleaved = true; });  // at one position
    add([](Append& a) {
        a.pages = 5, a.rows_of_cache = {4, 0, 2}, a.wide = true;
        a.pairs = 16, a.begin = 8, a.dv = 24;
        a.layout.row_gap = 3, a.cache_layout.heads_before_rows = true;
    });
    add([](Append& a) {
        a.pages = 9, a.page_size = 16, a.block_table = {{7, 1, 4}, {0, 3, -5}, {8, 2, 6}};
        a.pairs = 8, a.interleaved = true, a.cache_layout.row_gap = 8;
    });
    add([](Append& a) {
        a.pages = 40, a.page_size = 3, a.lengths = {7, 0, 5, 2}, a.counts = {0, 5, 1, 9}, a.packed = true;
        a.block_table = {{1, 2, 3, 99}, {30, 31, -1, -1}, {4, 5, 6, 7}, {10, 39, 11, 12}};
        a.pairs = 32, a.queries = {2, 0, 3, 1}, a.packed_q = true, a.causal = true, a.wide = true;
    });
    add([](Append& a) {
        a.pages = 12, a.page_size = 1, a.lengths = {}, a.counts = {2, 3}, a.packed = true;
        a.slots = {11, -1, 0, 5, 4}, a.positions = {9, 63, 0, 17, 2}, a.queries = {2, 3}, a.packed_q = true;
        a.pairs = 32;
    });
    add([](Append& a) {
        a.pages = 4, a.page_size = 8, a.lengths = {}, a.counts = {2, 2}, a.slots = {31, 3, -1, 8}, a.offsets = {5, 60};
        a.pairs = 30, a.begin = 1, a.queries = {1, 1};
    });
    add([](Append& a) {  // lengths beside slots say positions only
        a.pages = 2, a.page_size = 3, a.lengths = {60, 5}, a.counts = {2, 2}, a.slots = {5, 0, 2, -1};
        a.pairs = 32, a.queries = {2, 2}, a.causal = true;
    });
    add([](Append& a) {  // the latent heads of MLA
        a.kv_heads = 1, a.heads = 3, a.d = 576, a.with_v = false, a.begin = 512, a.pairs = 32, a.queries = {2, 2, 2};
        a.causal = true, a.positions_q = {3, 4, 5, 6, 7, 8}, a.interleaved = true;
    });
    add([](Append& a) { a.d = 57, a.dv = 3, a.pairs = 13, a.begin = 5, a.queries = {1, 1, 1}; });
    add([](Append& a) {
        a.d = 57, a.dv = 1, a.pairs = 13, a.begin = 5, a.interleaved = true;
        a.positions = {1, 2, 3, 4, 9, 8, 7, 6, 20, 20, 20, 63}, a.cache_layout.row_gap = 1;
    });
    return list;
}

class Appending : public OnTarget {
protected:
    static flashtile::options options(const Append& a, isa on) {
        flashtile::options o;
        o.causal = a.causal;
        o.isa = on;
        o.threads = 3;
        return o;
    }
    static void run(Tensors& t) {
        t.upload();
        append_kv(options(t.a, which()), t.arguments());
        t.download();
    }
};

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
    return std::ranges::equal(a, b, [](double x, double y) { return x == y && std::signbit(x) == std::signbit(y); });
}

TEST_P(Appending, PutsRowsInPlaceAndRotatesThem) {
    each_type([](dtype type) {
        const std::vector<Append> list = appends();
        for (std::size_t n = 0; n < list.size(); ++n)
            for (const dtype table_type : kTypes) {
                if (list[n].pairs == 0 && table_type != fp32) continue;
                SCOPED_TRACE("append " + std::to_string(n) + ", table " + std::to_string(static_cast<int>(table_type)));
                Append a = list[n];
                a.type = type, a.table_type = table_type;
                Tensors t(a, where());
                for (GuardedTensor* input : t.inputs())
                    if (input->present()) input->remember();
                run(t);
                expect_appended(t);
                for (GuardedTensor* input : t.inputs())
                    if (input->present()) {
                        EXPECT_TRUE(input->unchanged());
                    }
                for (GuardedTensor* output : {&t.k_cache, &t.v_cache, &t.q_out})
                    if (output->present()) {
                        EXPECT_TRUE(output->poison_intact());
                    }

                Tensors portable(a, cpu);  // the same bits on every backend
                append_kv(options(a, isa::portable), portable.arguments());
                EXPECT_TRUE(same_bits(t.k_cache.values(), portable.k_cache.values()));
                if (t.q_out.present()) {
                    EXPECT_TRUE(same_bits(t.q_out.values(), portable.q_out.values()));
                }
            }
    });
}

TEST_P(Appending, PagesMayHaveAnySize) {
    conformance::RandomSource random(3);
    for (std::int64_t page_size = 1; page_size <= 300; ++page_size) {
        SCOPED_TRACE("page_size " + std::to_string(page_size));
        Append a;
        a.kv_heads = 1, a.d = 16, a.dv = 8, a.pairs = 8, a.page_size = page_size, a.counts = {3, 3};
        a.lengths = {random.integer(0, 60), random.integer(0, 60)};
        const std::int64_t most = 62 / page_size + 1;
        a.pages = 2 * most;
        for (std::int64_t b = 0; b < 2; ++b) {
            Numbers& table = a.block_table.emplace_back();
            for (std::int64_t n = 0; n < most; ++n)
                table.push_back((a.pages - 1 - n) * (1 - b) + n * b);  // from both ends
        }
        Tensors t(a, where());
        run(t);
        expect_appended(t);
    }
}

TEST_P(Appending, QueriesMayBeRotatedInPlace) {
    each_type([](dtype type) {
        for (const bool interleaved : {false, true}) {
            Append a;
            a.type = type, a.pairs = 24, a.begin = 4, a.interleaved = interleaved, a.queries = {4, 4, 4};
            a.causal = true;
            Tensors apart(a, where()), t(a, where());
            run(apart);
            t.upload();
            append_args x = t.arguments();
            x.q_out = x.q;
            append_kv(options(a, which()), x);
            t.download();
            EXPECT_TRUE(same_bits(t.q.values(), apart.q_out.values()));
        }
    });
}

// vLLM's and FlashInfer's caches: pages of both, (pages, 2, heads, page_size, d).
TEST_P(Appending, OneTensorMayHoldKeysAndValues) {
    each_type([](dtype type) {
        Append a;
        a.type = type, a.pages = 6, a.page_size = 16, a.block_table = {{5, 1, 0}, {2, 9, 9}, {3, 4, 0}};
        a.lengths = {14, 0, 16};
        Tensors apart(a, where()), t(a, where());
        run(apart);
        GuardedTensor both(type, {6, 2, 2, 16, 64}, {}, Guard::nan_bands, where());
        const auto element = [](std::size_t n) {  // of (pages, page_size, heads, d), in k's half
            const std::size_t c = n % 64, h = n / 64 % 2, row = n / 128 % 16, page = n / 2048;
            return (((page * 2) * 2 + h) * 16 + row) * 64 + c;
        };
        constexpr std::size_t kHalf = 2 * 16 * 64;
        for (std::size_t n = 0; n < t.k_cache.size(); ++n) {
            both.set(element(n), t.k_cache.get(n));
            both.set(element(n) + kHalf, t.v_cache.get(n));
        }
        t.upload(), both.upload();
        const auto half = [&](std::size_t from) {
            flashtile_tensor raw = both.view().raw();
            raw.data = static_cast<char*>(raw.data) + from * conformance::bytes_of(type);
            raw.rank = 4;
            const std::int64_t shape[] = {6, 16, 2, 64}, stride[] = {4096, 64, 1024, 1};
            std::copy_n(shape, 4, raw.shape);
            std::copy_n(stride, 4, raw.stride);
            return tensor(raw);
        };
        append_args x = t.arguments();
        x.k_cache = half(0), x.v_cache = half(kHalf);
        append_kv(options(a, which()), x);
        both.download();
        std::size_t wrong = 0;
        for (std::size_t n = 0; n < t.k_cache.size(); ++n)
            wrong +=
                both.get(element(n)) != apart.k_cache.get(n) || both.get(element(n) + kHalf) != apart.v_cache.get(n);
        EXPECT_EQ(wrong, 0U);
    });
}

TEST_P(Appending, OfNothingWritesNothing) {
    for (const bool packed : {false, true}) {
        Append a;
        a.packed = packed, a.counts = {0, 0, 0}, a.pairs = 8;
        Tensors t(a, where());
        run(t);
        expect_appended(t);
    }
}

// The CPU and check_values refuse what has no place; a GPU skips it, and clamps positions.
TEST_P(Appending, WhatHasNoPlaceIsSkippedOrRefused) {
    const auto paged = [](Append& a) {
        a.pages = 9, a.page_size = 16, a.block_table = {{7, 1, 4}, {0, 3, 5}, {8, 2, 6}};
    };
    const auto each = [](auto change, const char* named, bool in_place = true) {
        SCOPED_TRACE(named);
        Append a;
        a.pairs = 32;
        change(a);
        Tensors t(a, where());
        t.upload();
        flashtile::options o = options(a, which());
        o.check_values = true;
        try {
            append_kv(o, t.arguments());
            ADD_FAILURE() << "was accepted";
        } catch (const error& e) {
            EXPECT_NE(std::string(e.what()).find(named), std::string::npos) << e.what();
        }
        t.download();
        EXPECT_TRUE(same_bits(t.k_cache.values(), t.k_before));
        EXPECT_TRUE(same_bits(t.v_cache.values(), t.v_before));
        if (where().type == FLASHTILE_CPU) return;
        o.check_values = false;
        append_kv(o, t.arguments());
        t.download();
        if (in_place) expect_appended(t);
        for (GuardedTensor* output : {&t.k_cache, &t.v_cache}) EXPECT_TRUE(output->poison_intact());
    };
    each([](Append& a) { a.lengths = {38, 0, 3}; }, "cache_seqlens[0] is 38, allowed is at most 36");
    each([](Append& a) { a.lengths = {3, 0, 41}; }, "cache_seqlens[2] is 41, allowed is 0 to 40");
    each([](Append& a) { a.lengths = {3, -2, 4}; }, "cache_seqlens[1] is -2", false);
    each([](Append& a) { a.rows_of_cache = {0, 2, 3}, a.lengths = {1, 2, 3}; }, "cache_batch_idx[2] is 3", false);
    each([](Append& a) { a.rows_of_cache = {0, -1, 2}, a.lengths = {1, 2, 3}; }, "cache_batch_idx[1] is -1", false);
    each([&](Append& a) { paged(a), a.lengths = {46, 0, 3}; }, "cache_seqlens[0] is 46, allowed is at most 44: 4 new");
    each([&](Append& a) { paged(a), a.block_table[1][0] = -1; }, "block_table[1, 0] is -1, allowed is 0 to 8");
    each([&](Append& a) { paged(a), a.block_table[2][2] = 9, a.lengths[2] = 31; }, "block_table[2, 2] is 9");
    each(
        [](Append& a) {
            a.lengths = {}, a.slots.assign(12, 0), a.offsets = {1, 2, 3};
            for (std::size_t n = 0; n < 12; ++n) a.slots[n] = static_cast<std::int64_t>(n) * 7;
            a.slots[5] = 120;
        },
        "slots[5] is 120, allowed is -1 (skipped) to 119");
    each(
        [](Append& a) {
            a.lengths = {}, a.slots.assign(12, -1), a.offsets = {1, 2, 3}, a.slots[0] = -2;
        },
        "slots[0] is -2");
    each([](Append& a) { a.offsets = {3, 61, 1}; }, "rotary_offsets[1] is 61, allowed is 0 to 60", false);
    each([](Append& a) { a.positions.assign(12, 5), a.positions[7] = 64; }, "positions[7] is 64, allowed is 0 to 63",
         false);
    each([](Append& a) { a.positions.assign(12, 5), a.positions[0] = -1; }, "positions[0] is -1", false);
}

INSTANTIATE_TEST_SUITE_P(On, Appending, testing::ValuesIn(all_targets()), target_name);

}  // namespace
}  // namespace flashtile::unit
