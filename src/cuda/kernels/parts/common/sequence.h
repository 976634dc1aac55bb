// sequence.h: one head of one sequence as a thread block sees it: its lengths, band and base pointers. Lengths that lie
// in device memory are clamped, so that wrong ones cannot lead out of bounds.
#pragma once

#include "shared/kernel_config.h"
#include "shared/kernel_params.h"
#include "shared/visited_blocks.h"

namespace flashtile {

// Rows and keys within a sequence fit 32 bits, which the plan checks; offsets in memory do not.
__device__ __forceinline__ int smaller(int a, int b) {
    return a < b ? a : b;
}
__device__ __forceinline__ Index smaller(Index a, Index b) {
    return a < b ? a : b;
}
__device__ __forceinline__ Index greater(Index a, Index b) {
    return a > b ? a : b;
}

// query_of is the query that a block's row belongs to; query_end is the end of the queries that the rows before `end`
// belong to.
template <KernelConfig config>
__device__ __forceinline__ int query_of(int row) {
    if constexpr (config.group_rows == 1)
        return row;
    else
        return row / config.group_rows;
}
template <KernelConfig config>
__device__ __forceinline__ int query_end(int end) {
    return query_of<config>(end + config.group_rows - 1);
}

// Sequences [first, end), which share their first keys, as row `first` of the block table has them.
struct PrefixGroup {
    Index first = 0, end = 0;
    int keys = 0;

    // An impossible group is empty.
    __device__ static __forceinline__ PrefixGroup at(const KernelParams& p, Index n) {
        const Index first = value_at(p.prefix_groups, n), end = value_at(p.prefix_groups, n + 1);
        if (first < 0 || end < first || end > p.batch) return {};
        return {first, end, static_cast<int>(greater(0, smaller(value_at(p.prefix_lengths, n), p.seqlen_k)))};
    }
    // The only one that sequence b may be in: the last one that starts at or before it.
    __device__ static __forceinline__ Index number_of(const KernelParams& p, Index b) {
        Index group = 0, end = p.prefixes;
        while (end - group > 1) {
            const Index middle = (group + end) / 2;
            (value_at(p.prefix_groups, middle) <= b ? group : end) = middle;
        }
        return group;
    }
};

struct Sequence {
    Index b, h;
    Index batch_row;         // in units of the batch stride: b, or 0 when packed
    Index first_q, first_k;  // rows before this sequence, when packed
    int seqlen_q, seqlen_k;
    int rows_k;  // keys that lie in memory: seqlen_k before it was shortened
    Band band;
    Index key_row;                   // as batch_row, of k and v; not where keys lie in pages
    Index chunk = 0;                 // the band's, where it is cut in chunks
    int hidden_k = 0;                // keys at the sequence's start that no query sees
    const int* positions = nullptr;  // of the queries, beside a tree; null: i + off
    int first_of_any = 0;            // with positions: no query may see a key before it
    // In a paged cache the keys before `prefix` are those that row prefix_row of the table names.
    Index prefix_row = 0;
    int prefix = 0;
    bool sees_prefix = false;  // every query sees all of it, and all that its group shares

    template <KernelConfig config>
    __device__ static __forceinline__ Sequence make(const KernelParams& p, Index b, Index h) {
        const int longest_q = static_cast<int>(p.seqlen_q), longest_k = static_cast<int>(p.seqlen_k);
        Index first_q = 0, first_k = 0;
        int seqlen_q = longest_q, rows_k = longest_k;
        if constexpr (config.packed) read(p.cu_seqlens_q, b, b + 1, p.total_q, longest_q, first_q, seqlen_q);
        if constexpr (config.packed_keys()) read(p.cu_seqlens_k, b, b + 1, p.total_k, longest_k, first_k, rows_k);
        int seqlen_k = rows_k;
        if constexpr (config.seqused) seqlen_k = used(p.seqused_k, b, rows_k);
        if constexpr (config.seqused_q) seqlen_q = used(p.seqused_q, b, seqlen_q);
        if constexpr (config.cache) seqlen_k = static_cast<int>(smaller(seqlen_k + appended(p, b), Index{rows_k}));
        if constexpr (!config.cache && !config.first_k && !config.chunk && !config.tree_mask)
            return of_lengths<config>(p, b, h, first_q, first_k, seqlen_q, seqlen_k, rows_k);
        Index key_row = config.packed_keys() ? 0 : b;
        if (config.cache && p.cache_batch_idx.data != nullptr) {
            key_row = value_at(p.cache_batch_idx, b);
            if (key_row < 0 || key_row >= p.cache_rows) seqlen_k = 0, key_row = 0;  // a row that is none has no keys
        }
        Sequence s = of_lengths<config>(p, b, h, first_q, first_k, seqlen_q, seqlen_k, rows_k);
        s.key_row = key_row;
        if constexpr (config.chunk) s.chunk = p.attention_chunk;
        if constexpr (config.first_k) s.hidden_k = used(p.first_k, b, seqlen_k);
        if constexpr (config.tree_mask) s.find_positions<config>(p);
        if constexpr (config.paged) s.find_prefix<config>(p);
        return s;
    }
    // With config.prefixes a sequence's keys are worked on apart. Number
    // - b is sequence b with its own keys, those behind its prefix;
    // - batch + n is group n: what its sequences share, with the queries of all of them, which see all of it;
    // - batch + prefixes + b is sequence b with its prefix, where the group's is not for it: some query does not see
    //   all of that.
    template <KernelConfig config>
    __device__ static __forceinline__ Sequence make_apart(const KernelParams& p, Index number, Index h) {
        if constexpr (!config.prefixes) return make<config>(p, number, h);
        const Index groups_end = p.batch + p.prefixes;
        if (number >= p.batch && number < groups_end) return of_group<config>(p, number, h);
        const Sequence s = make<config>(p, number < p.batch ? number : number - groups_end, h);
        return number < p.batch ? s.behind_prefix() : s.within_prefix(number);
    }
    __device__ __forceinline__ Sequence behind_prefix() const {
        Sequence s = *this;
        if (s.hidden_k < prefix) s.hidden_k = prefix;
        s.prefix_row = b;
        return s;
    }
    __device__ __forceinline__ Sequence within_prefix(Index number) const {
        Sequence s = *this;
        s.b = number;
        s.seqlen_k = prefix;  // the band stays
        return s;
    }

    // How many queries lie before those of a group.
    template <KernelConfig config>
    __device__ static __forceinline__ Index queries_before_group(const KernelParams& p, Index number) {
        const PrefixGroup group = PrefixGroup::at(p, number);
        Index first = group.first * p.seqlen_q;
        int queries = 0;
        if constexpr (config.packed) read_group(p, group, first, queries);
        return first;
    }

    template <KernelConfig config>
    __device__ static __forceinline__ Sequence of_lengths(const KernelParams& p, Index b, Index h, Index first_q,
                                                          Index first_k, int seqlen_q, int seqlen_k, int rows_k) {
        Band band = Band::of(p, seqlen_q, seqlen_k);
        if constexpr (config.diagonals) band.offset += own_diagonal(p, b);
        const Index row = config.packed ? 0 : b;
        return {b, h, row, first_q, first_k, seqlen_q, seqlen_k, rows_k, band, row};
    }

    // The number of this sequence's first unit of `rows` queries among those of a head, if every sequence starts at a
    // unit of its own.
    __device__ __forceinline__ Index first_unit(const KernelParams& p, bool packed, int rows) const {
        return (packed ? first_q : b * p.seqlen_q) / rows + b;
    }

    __device__ __forceinline__ Index kv_head(const KernelParams& p) const {
        // a division of 64 bits would take a hundred cycles
        return static_cast<unsigned>(h) / static_cast<unsigned>(p.group);
    }

    template <KernelConfig config>
    __device__ __forceinline__ auto mask() const {
        if constexpr (config.chunk)
            return ChunkedBand{band, chunk};
        else
            return band;
    }

    // With positions: where query i and key j are taken to be; those past the end are where the last ones are.
    __device__ __forceinline__ Index query_position(int i) const { return positions[smaller(i, seqlen_q - 1)]; }
    __device__ __forceinline__ Index key_position(int j) const {
        const int own = smaller(j, seqlen_k - 1) - (seqlen_k - seqlen_q);
        return own < 0 ? j : positions[own];
    }

    // The keys that queries [i0, i1) may see: [first_key, end_key). With positions, which need not grow with i, those
    // that any query may see.
    template <KernelConfig config>
    __device__ __forceinline__ int first_key(int i0) const {
        if (config.tree_mask && positions != nullptr) return first_of_any > hidden_k ? first_of_any : hidden_k;
        const int first = config.band ? static_cast<int>(smaller(mask<config>().first_key(i0), Index{seqlen_k})) : 0;
        return config.hides_first_keys() && first < hidden_k ? hidden_k : first;
    }
    template <KernelConfig config>
    __device__ __forceinline__ int end_key(int i1) const {
        if (config.tree_mask && positions != nullptr) return seqlen_k;
        return config.band ? static_cast<int>(mask<config>().end_key(i1 - 1, seqlen_k)) : seqlen_k;
    }

    // The queries that may see keys [j0, j1): [first_query, end_query).
    template <KernelConfig config>
    __device__ __forceinline__ int first_query(int j0) const {
        return config.band ? static_cast<int>(smaller(mask<config>().first_query(j0), Index{seqlen_q})) : 0;
    }
    template <KernelConfig config>
    __device__ __forceinline__ int end_query(int j1) const {
        if (j1 <= 0) return 0;
        return config.band ? static_cast<int>(mask<config>().end_query(j1 - 1, seqlen_q)) : seqlen_q;
    }

    // Of what kind a block of rows [i0, i1) and keys [j0, j1) is: hidden unless some row sees a key of it, whole if all
    // rows see all keys, else mixed.
    template <KernelConfig config>
    __device__ __forceinline__ bool sees_any(int i0, int i1, int j0, int j1) const {
        if (i0 >= i1) return false;
        if constexpr (!config.band) return true;
        if (config.tree_mask && positions != nullptr) return true;
        const auto seen = mask<config>();
        return seen.end_key(query_end<config>(i1) - 1, seqlen_k) > j0 && seen.first_key(query_of<config>(i0)) < j1;
    }
    template <KernelConfig config>
    __device__ __forceinline__ bool sees_all(int i0, int i1, int j0, int j1) const {
        if (j1 > seqlen_k || (config.hides_first_keys() && j0 < hidden_k)) return false;
        if (config.band && config.tree_mask && positions != nullptr) return false;
        if constexpr (config.band) return mask<config>().covers(query_of<config>(i0), query_end<config>(i1), j0, j1);
        return true;
    }

private:
    // Within the range that positions of 32 bits leave it, which is that of the interface.
    __device__ static __forceinline__ Index own_diagonal(const KernelParams& p, Index b) {
        constexpr Index kMost = 1 << 30;
        return greater(-kMost, smaller(p.diagonals[b], kMost));
    }
    // Keys that the call has appended to sequence b.
    __device__ static __forceinline__ Index appended(const KernelParams& p, Index b) {
        if (p.cu_seqlens_k_new.data == nullptr) return p.seqlen_k_new;
        return greater(0, value_at(p.cu_seqlens_k_new, b + 1) - value_at(p.cu_seqlens_k_new, b));
    }

    template <KernelConfig config>
    __device__ __forceinline__ void find_positions(const KernelParams& p) {
        if (p.positions == nullptr) return;
        positions = p.positions + b * p.positions_stride + first_q;
        if constexpr (!config.window) return;
        Index first = seqlen_k;
        for (int i = 0; i < seqlen_q; ++i) first = smaller(first, mask<config>().first_key(positions[i] - band.offset));
        // the tree's keys may be anywhere, too
        first_of_any = static_cast<int>(greater(0, smaller(first, Index{seqlen_k - seqlen_q})));
    }

    template <KernelConfig config>
    __device__ static __forceinline__ Sequence of_group(const KernelParams& p, Index number, Index h) {
        const PrefixGroup group = PrefixGroup::at(p, number - p.batch);
        const bool any = group.end - group.first >= 2;
        Index first_q = 0;
        int seqlen_q = static_cast<int>((group.end - group.first) * p.seqlen_q);
        if constexpr (config.packed) read_group(p, group, first_q, seqlen_q);
        const Index row = config.packed ? 0 : group.first;
        // Every query sees all keys, and there is no window. Where the diagonal is so far away, nobody sees any.
        constexpr Index kFar = 1 << 30;
        const Index below = smaller(Index{0}, greater(p.diagonal, -kFar));
        const Band band{p.diagonal + group.keys - below, p.window_left, p.window_right};
        Sequence s{number, h, row, first_q, 0, any ? seqlen_q : 0, group.keys, group.keys, band, row};
        s.prefix_row = group.first;
        return s;
    }
    // The group that the sequence is in, if it shares something with another.
    template <KernelConfig config>
    __device__ __forceinline__ void find_prefix(const KernelParams& p) {
        if (p.prefixes == 0) return;
        const PrefixGroup group = PrefixGroup::at(p, PrefixGroup::number_of(p, b));
        if (b < group.first || b >= group.end || group.end - group.first < 2) return;
        prefix_row = group.first;
        prefix = smaller(group.keys, seqlen_k);
        if constexpr (config.prefixes) {
            Index first_of_group = 0;
            int queries = 0;
            if constexpr (config.packed) read_group(p, group, first_of_group, queries);
            const bool among =
                !config.packed || (first_q >= first_of_group && first_q + seqlen_q <= first_of_group + queries);
            sees_prefix = among && prefix == group.keys && end_key<config>(1) >= prefix;
        }
    }
    // The queries of all sequences of a group, which lie one behind the other.
    __device__ static __forceinline__ void read_group(const KernelParams& p, const PrefixGroup& group, Index& first,
                                                      int& queries) {
        const int most = static_cast<int>((group.end - group.first) * p.seqlen_q);
        read(p.cu_seqlens_q, group.first, group.end, p.total_q, most, first, queries);
    }

    __device__ static __forceinline__ int used(const DeviceLengths& lengths, Index n, int most) {
        return static_cast<int>(greater(0, smaller(Index{most}, value_at(lengths, n))));
    }
    // Of the sequences [b, end).
    __device__ static __forceinline__ void read(const DeviceLengths& cu, Index b, Index end, Index total, int longest,
                                                Index& first, int& length) {
        first = greater(0, smaller(value_at(cu, b), total));
        const Index last = greater(first, smaller(value_at(cu, end), total));
        length = static_cast<int>(smaller(last - first, Index{longest}));
    }
};

// What a thread block owns where each head has one for every `rows` of its `length` queries or keys, head after head.
// `share` thread blocks in turn own the same.
struct HeadBlock {
    Index blocks;  // of a head
    Index n;       // this one, through all heads
    Index head;    // through all sequences

    __device__ __forceinline__ HeadBlock(Index length, int rows, int share = 1)
        : blocks((length + rows - 1) / rows), n(blockIdx.x / share), head(n / blocks) {}

    __device__ __forceinline__ HeadBlock() {}
    // Number `number` of so many heads' blocks. The heads are in sections of so many. Within a section the first blocks
    // of all its heads come first, then the second ones, and so on.
    __device__ static __forceinline__ HeadBlock in_sections(unsigned blocks, unsigned heads, unsigned section,
                                                            unsigned number) {
        const unsigned first = number / (section * blocks) * section;
        const unsigned here = section < heads - first ? section : heads - first, at = number - first * blocks;
        HeadBlock own;
        own.blocks = blocks;
        own.head = first + at % here;
        own.n = own.head * own.blocks + at / here;
        return own;
    }
    // The same block of the head that is so many further.
    __device__ __forceinline__ void move_heads(Index heads) {
        head += heads;
        n += heads * blocks;
    }

    __device__ __forceinline__ Index block() const { return n % blocks; }

    // The sequence, where heads are query heads; where they are key heads, with the first query head of the group.
    template <KernelConfig config>
    __device__ __forceinline__ Sequence of_queries(const KernelParams& p) const {
        return Sequence::make<config>(p, head / p.heads, head % p.heads);
    }
    template <KernelConfig config>
    __device__ __forceinline__ Sequence of_rows(const KernelParams& p) const {
        if constexpr (config.group_rows == 1)
            return of_queries<config>(p);
        else
            return of_keys<config>(p);
    }
    template <KernelConfig config>
    __device__ __forceinline__ Sequence of_keys(const KernelParams& p) const {
        return Sequence::make<config>(p, head / p.kv_heads, head % p.kv_heads * p.group);
    }
};

// Where row 0 and column 0 of sequence b lie in the whole problem. Those that lie in memory may be anything: they are
// used for nothing but draws and the user's functions.
__device__ __forceinline__ Index origin_i_of(const KernelParams& p, Index b) {
    return p.origins_i != nullptr ? p.origins_i[b] : p.origin_i;
}
__device__ __forceinline__ Index origin_j_of(const KernelParams& p, Index b) {
    return p.origins_j != nullptr ? p.origins_j[b] : p.origin_j;
}

template <class T>
__device__ __forceinline__ T* rows_of(const DeviceTensor& x, Index b, Index h, Index first_row) {
    return static_cast<T*>(x.data) + b * x.stride_batch + h * x.stride_head + first_row * x.stride_row;
}

}  // namespace flashtile
