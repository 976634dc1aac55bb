// row_parts.h: where the workspace has the parts of a row of O, for combine_shares.h.
#pragma once

#include "cuda/kernels/parts/schedule/share_schedule.h"

namespace flashtile {

// The parts of a row whose tile is in a run of neighbouring thread blocks.
struct PartRun {
    int count = 0;
    Index first = 0, second = 0;  // rows of the first two parts
    Index step = 0;               // from the second part to the third, and so on

    __device__ __forceinline__ Index operator[](int n) const { return n == 0 ? first : second + (n - 1) * step; }
};

template <KernelConfig config>
struct RowParts {
    PartRun own;
    PartRun of_prefix;     // with config.prefixes, of keys that lie before its own
    bool complete = true;  // the row has its result already

    __device__ __forceinline__ RowParts() {}
    // Query i of the sequence and its head.
    __device__ __forceinline__ RowParts(const KernelParams& p, const Sequence& seq, int i) {
        const unsigned* const units = p.ws_first_unit + first_unit_of<config>(p, seq.b);
        if (config.prefixes && p.ws_first_unit[first_unit_of<config>(p, all_sequences<config>(p))] == 0)
            return;  // nothing was done
        own = run(p, seq.b, seq.h, i, seq.seqlen_q, units);
        complete = own.count <= 1;
        if constexpr (config.prefixes) {
            if (seq.prefix == 0) return;
            complete = false;
            if (units[2] > units[1]) {
                of_prefix = run(p, all_sequences<config>(p) + seq.b, seq.h, i, seq.seqlen_q, units + 1);
                return;
            }
            const Index group = p.batch + PrefixGroup::number_of(p, seq.b);
            const Sequence all = Sequence::make_apart<config>(p, group, seq.h);
            const Index before = seq.first_q - all.first_q + (seq.batch_row - all.batch_row) * p.seqlen_q;
            of_prefix = run(p, group, seq.h, i + static_cast<int>(before), all.seqlen_q,
                            p.ws_first_unit + first_unit_of<config>(p, group));
        }
    }

    __device__ __forceinline__ int count() const { return own.count + of_prefix.count; }
    __device__ __forceinline__ Index operator[](int n) const {
        return !config.prefixes || n < own.count ? own[n] : of_prefix[n - own.count];
    }

private:
    // Query i of a sequence of so many, which is numbered as Sequence::make_apart has it; units[0] blocks of keys are
    // before its own, and units[1] before the next one's.
    __device__ static __forceinline__ PartRun run(const KernelParams& p, Index number, Index head, int i, int seqlen_q,
                                                  const unsigned* units) {
        const bool grouped = config.group_rows > 1;
        const unsigned group = static_cast<unsigned>(p.group), h = static_cast<unsigned>(head);
        const unsigned row = i * config.group_rows + (grouped ? h % group : 0), of_part = row % config.Br;
        const unsigned tiles = static_cast<unsigned>(query_blocks<config>(seqlen_q));
        const unsigned blocks = (units[1] - units[0]) / (static_cast<unsigned>(tile_heads<config>(p)) * tiles);
        if (config.prefixes && blocks == 0) return {};
        const unsigned tile = (grouped ? h / group : h) * tiles + row / config.Br, begin = units[0] + tile * blocks;
        const unsigned total = p.ws_first_unit[first_unit_of<config>(p, all_sequences<config>(p))];
        const KeyShares shares = KeyShares::of(total, p.share_blocks, p.rounded_shares != 0);
        const Index thread_block = shares.owner_of(begin);
        const int count = static_cast<int>(shares.owner_of(begin + blocks - 1) - thread_block) + 1;
        if constexpr (config.prefixes) {
            const auto places = PartPlaces<config>::of(p, number, tile);
            const Index first = places.first + thread_block * places.step + of_part;
            return {count, first, first + places.step, places.step};
        }
        return {count, shared_part(thread_block, true) * p.part_rows + of_part,
                shared_part(thread_block + 1, false) * p.part_rows + of_part, shared_part(1, false) * p.part_rows};
    }
};

}  // namespace flashtile
