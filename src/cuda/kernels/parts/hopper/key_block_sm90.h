// key_block_sm90.h: what Hopper's backward kernels share: which blocks of queries see a thread block's keys,
// where K, V, Q, dO and dS lie in shared memory, how TMA loads them, how P and dS are made of the products, and whose
// turn it is to add to dQ.
#pragma once

#include "cuda/kernels/parts/common/block_map.h"
#include "cuda/kernels/parts/common/query_gradient.h"
#include "cuda/kernels/parts/common/scores.h"
#include "cuda/kernels/parts/hopper/group_gradients.h"
#include "cuda/kernels/parts/hopper/ring.h"
#include "cuda/kernels/parts/hopper/sequence_edges.h"
#include "cuda/kernels/parts/hopper/swizzled_tile.h"
#include "cuda/kernels/parts/hopper/tile_copy.h"
#include "cuda/kernels/parts/hopper/transposed_bias_and_mask.h"
#include "cuda/kernels/parts/hopper/transposed_functions.h"
#include "cuda/kernels/parts/hopper/transposed_options.h"
#include "cuda/kernels/parts/hopper/wgmma_product.h"
#include "cuda/kernels/parts/schedule/key_block_order.h"
#include "cuda/kernels/ptx/cluster.h"
#include "cuda/kernels/ptx/special_function.h"

namespace flashtile {

template <KernelConfig config>
struct KeyBlock {
    using M = Math<config.element>;
    using Scalar = typename M::Scalar;
    using Gradient = QueryGradient<config>;
    static constexpr int kColumns = chunk_columns(config.head_dim), kColumnsV = chunk_columns(config.head_dim_v);
    static constexpr int NT = config.Br / 8, KT = kColumns / 8, VT = kColumnsV / 8;
    static constexpr int kSize = size_of(config.element);
    static constexpr int kBytesQ = config.Br * kColumns * kSize, kBytesDO = config.Br * kColumnsV * kSize;
    static constexpr int kBytesK = config.Bc * kColumns * kSize, kBytesV = config.Bc * kColumnsV * kSize;
    static constexpr int kPaired = paired_blocks(config), kBytesOtherK = other_key_bytes(config);
    static constexpr int kStagesDO = dout_stages(config);
    static constexpr bool kRowsWithQ = kStagesDO == 1;  // D comes with Q, so that dO's one stage is free early
    static constexpr int kBytesDS = config.Bc * config.Br * kSize;
    static constexpr int kBytesP = handed_over_bytes(config);
    // dK and dV of wider heads leave the consumers of backward_sm90.h no registers for P in fp32 beside dP.
    static constexpr bool kPacksP = config.kernel == Kernel::backward_sm90 && kColumns > 128;
    // Where P is handed over or packed in fp16, it is 2^15 P, which is at most half of fp16's largest number, and down
    // to 2^-29 P has all of fp16's digits.
    static constexpr bool kScalesP = (kBytesP > 0 || kPacksP) && !config.exact_max;
    static constexpr float kExponentP = kScalesP ? 15.0f : 0.0f, kFactorP = kScalesP ? 1.0f / 32768.0f : 1.0f;
    static constexpr int kBytesRow = config.Br * 4;  // of LSE or D
    static constexpr bool kKeepsAddresses = true;    // of shared memory
    static constexpr unsigned kConsumerThreads = barriers::kTwoWarpgroups;
    // Blocks of keys start at different blocks of queries, so that they do not add to the same dQ at once.
    static constexpr bool kShifts = !config.band && !config.deterministic;
    // Where scores may hide some keys from some queries, beyond what the band hides.
    static constexpr bool kMayHide = config.has_bias_or_mask() || config.has_functions();
    static constexpr bool kMasks = config.mask || config.mask_function;
    static constexpr bool kHasDerivative = has_score_derivative<config>();
    static constexpr bool kAddsByDiagonal = ScoreModifier<config>::kAddsByDiagonal;
    // A mask is loaded one block ahead where registers are left for it.
    static constexpr bool kMaskAhead = config.mask && config.Br == 64 && config.bias == BiasElement::none &&
                                       !config.window && !config.packed && !config.seqused && !config.softcap &&
                                       !config.alibi && !config.dropout;
    static_assert(config.warps == 12, "two consumers, and the producer's warpgroup");

    const KernelParams& params;
    Sequence seq;  // h is the query head of the current step
    const int kv_head, block;
    const int j0, j1;                  // this block's keys; those past seqlen_k only get zero gradients
    const VisitedBlocks<int> queries;  // the same for all thread blocks of a cluster
    const int heads, first_head;       // the query heads of this thread block
    const int steps, shift;            // beside a mask function, steps of blocks that it shows something of
    const int seen_first, seen_end;    // queries of the sequence that see any key
    unsigned k, v, other_k, q, dout, ds, p, bias, lse, D;  // shared addresses
    unsigned kv_full;
    unsigned turn_come, added;     // barriers between the consumers and the thread that keeps turns
    unsigned other_full, read_ds;  // barriers between the thread blocks of a pair, two each
    unsigned exchanged;            // and of GroupGradients
    unsigned told;                 // shared address: beside a mask function, a ToldStep for each stage of Q
    Ring<config.stages> q_ring;
    Ring<kStagesDO> dout_ring;
    Ring<1> bias_ring;
    MaskTransposed<NT> mask;  // of the next block of queries, or of this one
    ShownTransposed<config, NT> shown;
    AddedByDiagonal<config, NT, true> by_diagonal;  // beside a score function that is such
    bool unsure = false;                            // beside a score function: V may not be finite where it hides a key

    __device__ __forceinline__ KeyBlock(const KernelParams& given, const Sequence& s, unsigned memory, int n)
        : params(given),
          seq(s),
          kv_head(static_cast<int>(s.kv_head(given))),
          block(n),
          j0(n * config.Bc),
          j1(smaller(j0 + config.Bc, s.rows_k)),
          queries(queries_of(s, n / kPaired * kPaired)),
          heads(given.group / config.head_parts),
          first_head(kv_head * given.group + head_part() * heads),
          steps(count_steps()),
          shift(kShifts ? n / kPaired * kPaired * queries.count / ((s.rows_k + config.Bc - 1) / config.Bc) : 0),
          seen_first(s.first_query<config>(0)),
          seen_end(s.end_query<config>(s.seqlen_k)),
          k(memory),
          v(k + kBytesK),
          other_k(v + kBytesV),
          q(other_k + kBytesOtherK),
          dout(q + config.stages * kBytesQ),
          ds(dout + kStagesDO * kBytesDO),
          p(ds + kPaired * 2 * kBytesDS),
          bias(p + 2 * kBytesP),
          lse(bias + bias_bytes(config)),
          D(lse + config.stages * kBytesRow),
          kv_full(D + config.stages * kBytesRow),
          turn_come(kv_full + 8),
          added(turn_come + 8) {
        unsigned more = dout_ring.place(q_ring.place(added + 8));
        if constexpr (config.bias_mapped) more = bias_ring.place(more);
        other_full = more;
        read_ds = other_full + 2 * 8;
        exchanged = more;
        told = exchanged + (config.head_parts == 2 ? GroupGradients::kBytesBarriers : 0);
        static_assert(!config.mask_function || (kPaired == 1 && !config.bias_mapped), "");
    }

    // Which part of a group's heads is this thread block's.
    __device__ static __forceinline__ int head_part() {
        return config.head_parts == 1 ? 0 : static_cast<int>(blockIdx.x % config.head_parts);
    }

    // Of all keys of the pair that starts at block n.
    __device__ static __forceinline__ VisitedBlocks<int> queries_of(const Sequence& s, int n) {
        const int first = n * config.Bc, end = smaller(first + kPaired * config.Bc, s.rows_k);
        return {config.Br, s.first_query<config>(first) / config.Br, block_count(s, first, smaller(end, s.seqlen_k))};
    }
    // VisitedBlocks::holding, with its operations in the order with which ptxas spills least.
    __device__ static __forceinline__ int block_count(const Sequence& s, int j0, int j_end) {
        const int first = s.first_query<config>(j0), end = j_end > j0 ? s.end_query<config>(j_end) : 0;
        return first < end ? (end - 1) / config.Br - first / config.Br + 1 : 0;
    }

    // The walk through all steps: the blocks of queries from number `shift` on and around, head by head. It counts,
    // because a division takes as long as a part of a product.
    struct Step {
        int block, head;
        unsigned unit;      // of the sequence's first queries in that head
        bool whole = true;  // the mask function shows all of it
        unsigned seen = 3;  // a bit for each consumer of whose keys lists of blocks show something
    };
    __device__ __forceinline__ Step first_step() const {
        const Index unit = first_head * params.units + seq.first_unit(params, config.packed, config.Br);
        return {shift, first_head, static_cast<unsigned>(unit)};
    }
    __device__ __forceinline__ void to_next_head(Step& step) const {
        ++step.head;
        step.unit += static_cast<unsigned>(params.units);
    }
    __device__ __forceinline__ void advance(Step& step) const {
        if (++step.block == queries.count) step.block = 0;
        if (step.block == shift) to_next_head(step);
    }

    // Beside a mask function the walk visits what its map shows, and the producer tells consumers where it is.
    __device__ __forceinline__ ShownBlocks shown_of(int head) const {
        return {BlockMap<config>::line(params, seq.b, head, j0)};
    }
    __device__ __forceinline__ int count_steps() const {
        if constexpr (!config.mask_function) return queries.count * heads;
        const int end = queries.first_block + queries.count;
        int sum = 0;
        for (int n = 0; n < heads; ++n) sum += shown_of(first_head + n).count(queries.first_block, end);
        return sum;
    }
    // Calls body(step) for every step of the walk; for the producer.
    template <class Body>
    __device__ __forceinline__ void each_shown_step(Body body) const {
        constexpr int kRuns = kShifts ? 2 : 1;  // of each head
        for (Step step = first_step(); in_group(step); to_next_head(step))
#pragma unroll 1
            for (int run = 0; run < kRuns; ++run) {
                const int end = queries.first_block + (run == 0 ? queries.count : shift);
                for (int from = queries.first_block + (run == 0 ? shift : 0);; ++from) {
                    const ShownBlock block = shown_of(step.head).first(from, end);
                    if (block.number < 0) break;
                    from = block.number;
                    step.block = from - queries.first_block;
                    step.whole = block.whole;
                    body(step);
                }
            }
    }
    // Lists may show something of one consumer's 64 keys alone.
    __device__ __forceinline__ unsigned seen_at(const Step& step) const {
        if constexpr (!config.narrow_lists) return 3;
        const BlockKinds<int> kinds = block_kinds_of(params, seq.b, step.head);
        unsigned seen = 0;
#pragma unroll 1
        for (int i = query_of(step), end = smaller(i + config.Br, seq.seqlen_q); i < end; i += kLeastListedBlock)
#pragma unroll
            for (int consumer = 0; consumer < 2; ++consumer)
                if (const int j = j0 + consumer * kLeastListedBlock; j < seq.seqlen_k)
                    seen |= (kinds.at(i, j) != BlockKind::hidden ? 1u : 0u) << consumer;
        return seen;
    }
    __device__ __forceinline__ void tell(const Step& step) const {
        const unsigned block = static_cast<unsigned>(step.block) * 8 + seen_at(step) * 2 + (step.whole ? 1 : 0);
        ptx::store_shared(told + q_ring.stage * 8, block);
        ptx::store_shared(told + q_ring.stage * 8 + 4, static_cast<unsigned>(step.head));
    }
    __device__ __forceinline__ Step told_step() const {
        const unsigned block = ptx::load_shared_word(told + q_ring.stage * 8);
        const int head = static_cast<int>(ptx::load_shared_word(told + q_ring.stage * 8 + 4));
        const Index unit = head * params.units + seq.first_unit(params, config.packed, config.Br);
        return {static_cast<int>(block / 8), head, static_cast<unsigned>(unit), block % 2 != 0, block / 2 % 4};
    }

    // Calls body(step) for every step. The innermost loop keeps only the block and where the run of blocks ends.
    template <class Body>
    __device__ __forceinline__ void each_step(Body body) const {
        if constexpr (config.mask_function) {
#pragma unroll 1
            for (int n = 0; n < steps; ++n) {
                q_ring.wait_full();
                body(told_step());
            }
            return;
        }
        constexpr int kRuns = kShifts ? 2 : 1;  // of each head
        Step step = first_step();
#pragma unroll 1
        for (int runs = queries.count > 0 ? kRuns * heads : 0; runs > 0; --runs) {
            const bool last = runs % kRuns == kRuns - 1, first = !kShifts || !last;
            int end = first ? queries.count : shift;
            asm volatile("" : "+r"(end));  // else both of them stay in registers
#pragma unroll 1
            for (step.block = first ? shift : 0; step.block < end; ++step.block) body(step);
            if (last) to_next_head(step);
        }
    }
    // False past the last step.
    __device__ __forceinline__ bool in_group(const Step& step) const {
        return step.head < first_head + heads;
    }
    __device__ __forceinline__ unsigned unit_of(const Step& step) const {
        return step.unit + static_cast<unsigned>(query_of(step)) / config.Br;
    }
    __device__ __forceinline__ int query_of(const Step& step) const {
        return queries.forwards(step.block);
    }

    __device__ __forceinline__ void init_barriers() const {
        ptx::mbarrier_init(kv_full, 1);
        ptx::mbarrier_init(turn_come, 1);
        ptx::mbarrier_init(added, kConsumerThreads / 32 * kArrivalsOfWarp);
        // Every warp releases a stage, since it reads LSE and D there by itself.
        q_ring.init(kConsumerThreads / 32 * kArrivalsOfWarp);
        dout_ring.init(kConsumerThreads / 32 * kArrivalsOfWarp);
        if constexpr (config.bias_mapped) bias_ring.init(kConsumerThreads / 32 * kArrivalsOfWarp);
        if constexpr (kPaired == 2) {
            for (int n = 0; n < 2; ++n) {
                ptx::mbarrier_init(other_full + n * 8, 1);
                ptx::mbarrier_init(read_ds + n * 8, barriers::kWarpgroup / 32 * kArrivalsOfWarp);
            }
        }
        if constexpr (config.head_parts == 2) group_gradients().init_barriers();
        ptx::fence_mbarrier_init();
    }

    __device__ __forceinline__ GroupGradients group_gradients() const {
        return {q, k, exchanged};
    }

    // One thread loads K and V, then every block of Q with its LSE and of dO with its D.
    __device__ __forceinline__ void produce() {
        const int b = static_cast<int>(seq.batch_row);
        const int first_q = static_cast<int>(seq.first_q) - params.first_query;
        const int first_k = static_cast<int>(seq.first_k) - params.first_key;
        if (steps == 0) return;
        ptx::mbarrier_arrive_expect(kv_full, kBytesK + kBytesV + kBytesOtherK);
        copy_tile(k, params.k_map, kv_full, kColumns, config.Bc, first_k + j0, kv_head, b);
        copy_tile(v, params.v_map, kv_full, kColumnsV, config.Bc, first_k + j0, kv_head, b);
        if constexpr (kPaired == 2)
            copy_tile(other_k, params.k_map, kv_full, kColumns / 2, config.Bc, first_k + (block ^ 1) * config.Bc,
                      kv_head, b, block % 2 * (kColumns / 2));
        const auto load = [&](const Step& step) {
            const int head = step.head, i0 = query_of(step);
            const Index row = Index{unit_of(step)} * config.Br;
            q_ring.wait_empty();
            if constexpr (config.mask_function) tell(step);
            ptx::mbarrier_arrive_expect(q_ring.full_barrier(), kBytesQ + kBytesRow * (kRowsWithQ ? 2 : 1));
            copy_tile(q + q_ring.stage * kBytesQ, params.q_map, q_ring.full_barrier(), kColumns, config.Br,
                      first_q + i0, head, b);
            ptx::tma_load_bytes(lse + q_ring.stage * kBytesRow,
                                (config.scale_first ? params.ws_lse_natural : params.ws_lse) + row, kBytesRow,
                                q_ring.full_barrier());
            if constexpr (kRowsWithQ)
                ptx::tma_load_bytes(D + q_ring.stage * kBytesRow, params.ws_D + row, kBytesRow, q_ring.full_barrier());
            q_ring.advance();
            if constexpr (config.bias_mapped) load_bias(head, i0);
            dout_ring.wait_empty();
            ptx::mbarrier_arrive_expect(dout_ring.full_barrier(), kBytesDO + (kRowsWithQ ? 0 : kBytesRow));
            copy_tile(dout + dout_ring.stage * kBytesDO, params.dout_map, dout_ring.full_barrier(), kColumnsV,
                      config.Br, first_q + i0, head, b);
            if constexpr (!kRowsWithQ)
                ptx::tma_load_bytes(D + dout_ring.stage * kBytesRow, params.ws_D + row, kBytesRow,
                                    dout_ring.full_barrier());
            dout_ring.advance();
        };
        if constexpr (config.mask_function) {
            each_shown_step(load);
        } else {
            Step step = first_step();
#pragma unroll 1  // twice would take registers, which the producer has few of
            for (int n = 0; n < steps; ++n, advance(step)) load(step);
        }
    }

    // Hides from the compiler that an address does not change: else it keeps those of each product in registers, and
    // spills others.
    __device__ static __forceinline__ unsigned anew(unsigned address) {
        asm volatile("" : "+r"(address));
        return address;
    }

    // The bias of a block of queries. It is read when their scores are there, and the next one comes behind that.
    __device__ __forceinline__ void load_bias(int head, int i0) {
        bias_ring.wait_empty();
        ptx::mbarrier_arrive_expect(bias_ring.full_barrier(), bias_bytes(config));
        copy_tile(bias, params.bias_map, bias_ring.full_barrier(), config.Bc, config.Br, i0,
                  params.bias.stride_head != 0 ? head : 0, params.bias.stride_batch != 0 ? static_cast<int>(seq.b) : 0,
                  j0);
        bias_ring.advance();
    }

    // Where lengths lie in device memory, a consumer clears what TMA brought of other sequences: rows of K and V once
    // they have come, and rows of Q or dO at every step.
    __device__ __forceinline__ void clear_hidden_keys() const {
        if constexpr (!config.lengths_differ()) return;
        const int first = seq.first_key<config>(0), end = seq.seqlen_q > 0 ? seq.end_key<config>(seq.seqlen_q) : 0;
        const int together = block / kPaired * kPaired * config.Bc;  // the pair's first key
        if (first <= together && end >= together + kPaired * config.Bc) return;
        clear_outside<config.Bc, kColumns>(k, j0, first, end);
        if constexpr (kPaired == 2)
            clear_outside<config.Bc, kColumns / 2>(other_k, (block ^ 1) * config.Bc, first, end);
        clear_outside<config.Bc, kColumnsV>(v, j0, first, end);
        ptx::fence_async_proxy();
        ptx::named_barrier(barriers::kBoth, kConsumerThreads);  // each has written what the other may read from now on
    }
    template <int kTileColumns>
    __device__ __forceinline__ void clear_hidden_queries(int consumer, int i0, unsigned tile) const {
        if constexpr (!config.lengths_differ()) return;
        if (seen_first <= i0 && seen_end >= i0 + config.Br) return;
        clear_outside<config.Br, kTileColumns>(tile, i0, seen_first, seen_end);
        publish(consumer);
    }

    // What lies in K and V may be anything where a mask hides a key from every query, and in V where a bias does. Where
    // something is not finite, such keys are cleared.
    __device__ __forceinline__ void clear_unseen_keys() {
        if constexpr (!kMayHide) return;
        if (sees_all_keys()) return;
        const bool finite =
            tile_is_finite<config.element, kBytesV>(v) && (!kMasks || tile_is_finite<config.element, kBytesK>(k));
        if (ptx::named_barrier_all(barriers::kBoth, kConsumerThreads, finite)) return;
        unsure = true;
#pragma unroll 1
        for (int row = static_cast<int>(warp_id()); row < config.Bc; row += kConsumerThreads / 32) {
            if (kMasks && !is_seen<false>(j0 + row)) clear_row<config.Bc, kColumns>(k, row);
            if (!is_seen<true>(j0 + row)) clear_row<config.Bc, kColumnsV>(v, row);
        }
        ptx::fence_async_proxy();
        ptx::named_barrier(barriers::kBoth, kConsumerThreads);
    }
    // Whether the mask function's map says that a query sees all of these keys, as in most patterns it does.
    __device__ __forceinline__ bool sees_all_keys() const {
        if constexpr (!config.mask_function || config.band || config.score_function || config.has_bias_or_mask())
            return false;
        const int end = queries.first_block + queries.count;
        bool any = false;
        for (int n = 0; n < heads; ++n) any = any || shown_of(first_head + n).any_whole(queries.first_block, end);
        return any;
    }
    // Whether the band and the masks, and where kByBias the bias, let a query of the group's heads see key j. The
    // warp's lanes look for it together.
    template <bool kByBias>
    __device__ __forceinline__ bool is_seen(int j) const {
        if (j >= seq.seqlen_k) return false;
        const int end = seq.end_query<config>(j + 1);
        Sequence of_head = seq;
        for (int head = 0; head < params.group; ++head) {
            of_head.h = kv_head * params.group + head;
            for (int i0 = seq.first_query<config>(j); i0 < end; i0 += 32) {
                const int i = i0 + static_cast<int>(lane_id());
                bool sees = i < end;
                if constexpr (config.mask)
                    sees = sees && *score_place<unsigned char>(params.mask, of_head, {j, i}) != 0;
                if constexpr (config.mask_function) sees = sees && mask_shows<config>(params, of_head, i, j);
                if constexpr (kByBias && config.bias != BiasElement::none)
                    sees = sees && bias_value<config>(*score_place<BiasType<config>>(params.bias, of_head, {j, i})) >
                                       kHiddenScore;
                if (__any_sync(~0u, sees)) return true;
            }
        }
        return false;
    }

    // Clears queries that masks, bias or functions leave without a key, since anything may lie there. All warps of a
    // consumer see whether there are such.
    __device__ __forceinline__ bool some_see_no_key() const {
        if constexpr (!kMayHide) return false;
        bool none = false;
#pragma unroll
        for (int n = 0; n < config.Br; n += 64) {
            const float2 pair = ptx::load_shared_pair(lse + q_ring.stage * kBytesRow + n * 4 + lane_id() * 8);
            none = none || pair.x == infinity() || pair.y == infinity();
        }
        return __any_sync(~0u, none);
    }
    template <int kTileColumns>
    __device__ __forceinline__ void clear_empty_queries(int consumer, unsigned tile) const {
        const unsigned row_lse = lse + q_ring.stage * kBytesRow;
        for (int n = static_cast<int>(threadIdx.x % 128); n < config.Br * 8; n += 128) {
            const unsigned row = static_cast<unsigned>(n) / 8;
            if (ptx::load_shared_word(row_lse + (row ^ row_flip(config)) * 4) != __float_as_uint(infinity())) continue;
            for (int c = 0; c < kTileColumns; c += kChunk)
                ptx::store_shared(tile + c / kChunk * config.Br * kChunkRowBytes + n * 16, make_uint4(0, 0, 0, 0));
        }
        publish(consumer);
    }

    // One thread of a deterministic pass: waits for this block's turn at each unit of dQ and passes it on, so that the
    // consumers need not wait for memory.
    __device__ __forceinline__ void keep_turns() {
        Step step = first_step();
        unsigned parity = 0;
        for (int n = 0; n < queries.count * heads; ++n, advance(step)) {
            seq.h = step.head;
            const Turn<config> turn(params, seq, block, query_of(step));
            turn.wait();
            // a block that is hidden has its turn, too
            if (BlockMap<config>::shows(params, seq.b, step.head, query_of(step), j0)) {
                ptx::mbarrier_arrive(turn_come);
                ptx::mbarrier_wait(added, parity);
                parity ^= 1;
            }
            turn.pass();
        }
    }

    // Which queries see a consumer's 64 keys. Found once, since a consumer asks at every step, between its scores and
    // their exponentials.
    struct Seen {
        int first, end;  // blocks of queries, as steps count them, of which every query sees every key
        SeenQueries of_lane;

        __device__ __forceinline__ bool whole(const Step& step) const {
            return (!config.band || first <= step.block) && step.block < end;
        }
    };
    // Of the keys from the block's key `own` on, of which `warp_row` is this warp's first.
    __device__ __forceinline__ Seen seen_by(int own, int warp_row) const {
        const int first_key = j0 + own, end_key = first_key + 64;
        const int first = seq.first_query<config>(end_key - 1);
        const int end = end_key <= seq.seqlen_k ? seq.end_query<config>(first_key + 1) : 0;
        return {(first + config.Br - 1) / config.Br - queries.first_block, end / config.Br - queries.first_block,
                SeenQueries::make<config>(seq, j0 + warp_row)};
    }

    // The mask of a step's block, which comes until find_values() needs it.
    __device__ __forceinline__ void bring_mask(const Step& step, int warp_row) {
        if constexpr (!kMaskAhead) return;
        seq.h = step.head;
        mask.load(params.mask, seq, {j0 + warp_row, query_of(step)});
    }
    // What scores need beside their product, while that runs, and where the registers of dP are free.
    __device__ __forceinline__ void find_values(int i0, int warp_row, [[maybe_unused]] bool mask_is_whole) {
        if constexpr (kAddsByDiagonal) by_diagonal.find(params, seq, {j0 + warp_row, i0});
        if constexpr (config.mask_function)
            if (!mask_is_whole) shown.find(params, seq, {j0 + warp_row, i0});
        if constexpr (config.mask) mask.template condense<kMaskAhead>(params.mask, seq, {j0 + warp_row, i0});
    }
    __device__ __forceinline__ void add_bias(Fragments<1, NT>& s, const Place& place, int warp_row) {
        if constexpr (config.bias_mapped) {
            bias_ring.wait_full();
            add_shared_bias_transposed<config.element, config.Br>(s, bias, warp_row);
            release_bias();
        } else if constexpr (config.bias != BiasElement::none) {
            add_bias_transposed<config>(s, params.bias, seq, place);
        }
    }
    // Every warp calls this once for each block.
    __device__ __forceinline__ void release_bias() {
        if constexpr (!config.bias_mapped) return;
        bias_ring.release_by_warp();
        bias_ring.advance();
    }

    // LSE of this lane's two queries of the t-th eight, and what a pair of two queries' values has for accumulator e:
    // KernelParams::row_flip may have exchanged the two.
    __device__ __forceinline__ float2 lse_of(int t) const {
        return ptx::load_shared_pair(lse + q_ring.stage * kBytesRow + Place::column(0, 0) * 4 + t * 32);
    }
    __device__ static __forceinline__ float of_query(const float2& pair, int e) {
        return e % 2 == row_flip(config) ? pair.x : pair.y;
    }

    // q.k of the current block of Q becomes S, transposed. This warp's first row is key `warp_row`.
    __device__ __forceinline__ void make_scores(Fragments<1, NT>& s, const Step& step, const Seen& seen, int warp_row) {
        const Place place{j0 + warp_row, query_of(step)};
        if constexpr (config.softcap)
            ScoreModifier<config>::template soften<false>(s, params.scale, params.softcap, s);
        else if constexpr (kAddsByDiagonal)
            by_diagonal.add(s, params.scale);
        else if constexpr (config.scale_first)
            each_score<1, NT>([&](int m, int n, int e) { s.c[m][n][e] *= params.scale; });
        if constexpr (config.alibi)
            apply_alibi_transposed<config>(s, ScoreModifier<config>::make(params, seq).slope, seq, place);
        add_bias(s, place, warp_row);
        if constexpr (config.score_function && !kHasDerivative && !kAddsByDiagonal)
            apply_score_function_transposed<config>(s, params, seq, place);
        if constexpr (config.mask) mask.apply(s);
        if constexpr (config.mask_function)
            if (!step.whole) shown.hide_others(s);
        if (!seen.whole(step)) apply_band_transposed<config>(s, seq, seen.of_lane, place);
    }

    // P = e^(S - LSE), over kFactorP, of a score and the LSE that was loaded for its query.
    __device__ __forceinline__ float probability(float s, float row_lse) const {
        // in natural units where options have worked on the scores (softmax.h says why)
        if constexpr (config.scale_first && !kScalesP) return ptx::exp2((s - row_lse) * kLog2e);
        if constexpr (config.scale_first) return ptx::exp2(fmaf(s - row_lse, kLog2e, kExponentP));
        return ptx::exp2(fmaf(s, params.scale_log2, kScalesP ? kExponentP - row_lse : -row_lse));
    }

    // S becomes P, transposed.
    __device__ __forceinline__ void exponentiate(Fragments<1, NT>& s) const {
#pragma unroll
        for (int t = 0; t < NT; ++t) {
            const float2 row_lse = lse_of(t);
#pragma unroll
            for (int e = 0; e < 4; ++e) s.c[0][t][e] = probability(s.c[0][t][e], of_query(row_lse, e));
        }
    }

    // P in fp16, times 1 / kFactorP, each lane's in the places of a left factor.
    using Packed = Math<Element::fp16>;
    using PackedP = typename Packed::template Left<1, NT>;
    // Accumulators 2 half and 2 half + 1 of t.
    __device__ static __forceinline__ float2 of_packed(const PackedP& packed, int t, int half) {
        const float2 pair = Packed::unpack(packed.a[0][t / 2][t % 2 * 2 + half]);
        return make_float2(pair.x * kFactorP, pair.y * kFactorP);
    }
    // The left factor of dV, times 1 / kFactorP.
    __device__ static __forceinline__ auto left_of_packed(const PackedP& packed) {
        typename M::template Left<1, NT> left_p;
#pragma unroll
        for (int c = 0; c < NT / 2; ++c)
#pragma unroll
            for (int r = 0; r < 4; ++r) {
                const float2 pair = Packed::unpack(packed.a[0][c][r]);
                left_p.a[0][c][r] = M::pack(pair.x, pair.y);
            }
        return left_p;
    }

    // dP of the current block of dO becomes dS = P (dP - D), transposed. probability(t, half) is P at accumulators 2
    // half and 2 half + 1 of t.
    template <class Probability>
    __device__ __forceinline__ void differentiate(Fragments<1, NT>& dp, Probability probability) const {
        const unsigned row = D + (kRowsWithQ ? q_ring.stage : dout_ring.stage) * kBytesRow + Place::column(0, 0) * 4;
#pragma unroll
        for (int t = 0; t < NT; ++t) {
            const float2 row_D = ptx::load_shared_pair(row + t * 32);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float2 now = probability(t, half);
                dp.c[0][t][2 * half] = now.x * (dp.c[0][t][2 * half] - of_query(row_D, 0));
                dp.c[0][t][2 * half + 1] = now.y * (dp.c[0][t][2 * half + 1] - of_query(row_D, 1));
            }
        }
    }

    // Writes dS^T to its tile, whose rows are keys and whose chunks are of 64 queries.
    __device__ __forceinline__ void write_ds(const typename M::template Left<1, NT>& x, unsigned tile,
                                             int warp_row) const {
        write_pairs<config.Bc, NT>(tile, warp_row, [&](int t, int half) { return x.a[0][t / 2][t % 2 * 2 + half]; });
    }

    // Where this lane adds to dQ of a step: 64 rows from tile (row, column) on.
    __device__ __forceinline__ float* place_of_dq(const Step& step, int row, int column) const {
        return Gradient::at(params, unit_of(step), row + static_cast<int>(warp_id() % 4), column);
    }
    // A step's last addition lets the turn pass on.
    template <bool kLast = true, int OT>
    __device__ __forceinline__ void add(int n, float* to, int column, const Fragments<1, OT>& dq) const {
        if constexpr (config.deterministic) ptx::mbarrier_wait(turn_come, n % 2);
        Gradient::add(to, column, dq);
        if constexpr (config.deterministic && kLast) arrive_by_warp(added);
    }

    // Stores 64 rows of dK or dV, from row `own` of the block on, by way of K's or V's place in shared memory.
    template <int kColumnsOfAll, int OT>
    __device__ __forceinline__ void store(const Fragments<1, OT>& x, float factor, unsigned tile,
                                          const DeviceTensor& to, int own) const {
        const int row = own + static_cast<int>(warp_id() % 4) * 16, first = j0 + row;
        const float factors[2] = {factor, factor};
        store_warp_rows<config.element, kColumnsOfAll, config.Bc>(
            x, factors, tile, row, rows_of<Scalar>(to, seq.batch_row, kv_head, seq.first_k) + first * to.stride_row,
            to.stride_row, j1 - first);
    }
};

extern __shared__ __align__(1024) unsigned char shared_memory[];

// One thread block works on one block of keys. Those of a cluster work on neighbouring blocks, of which the last one
// may lie past all keys.
template <class Backward, KernelConfig config>
__device__ __forceinline__ void run_backward_sm90(const KernelParams& params) {
    constexpr int kPaired = Backward::kPaired;
    HeadBlock own;
    if (!KeyBlockOrder<config>::find(params, own)) return;
    const Sequence seq = own.of_keys<config>(params);
    unsigned memory = (static_cast<unsigned>(__cvta_generic_to_shared(shared_memory)) + 1023) & ~1023u;
    // The shuffle tells the compiler that all lanes have the same address, which it then keeps. Else it asks for it
    // again at every step, before the step's first product.
    if constexpr (Backward::kKeepsAddresses) memory = __shfl_sync(~0u, memory, 0);
    const int first = launched_key_block<config>(own) * kPaired;
    if (first * config.Bc >= seq.rows_k) return;  // of a sequence that is shorter than others
    Backward backward(params, seq, memory, first + static_cast<int>(blockIdx.x % kPaired));
    if (threadIdx.x == 0) backward.init_barriers();
    // barriers are initialised
    if constexpr (cluster_blocks(config) == 1) {
        __syncthreads();
    } else {
        ptx::cluster_arrive();
        ptx::cluster_wait();
    }
    // A warp's lanes have the same number; the shuffle tells the compiler so.
    const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 128), 0);
    // 384 threads start with 168 registers each, and the kernel redistributes them. Warpgroups that together asked for
    // more would wait for ever.
    static_assert(Backward::kProducerRegisters + 2 * Backward::kConsumerRegisters <= 3 * 168, "");
    if (warpgroup == 2) {
        ptx::registers_give_back<Backward::kProducerRegisters>();
        if (threadIdx.x == 256)
            backward.produce();
        else if (config.deterministic && threadIdx.x == 256 + 32)
            backward.keep_turns();
    } else {
        ptx::registers_take<Backward::kConsumerRegisters>();
        backward.consume(warpgroup);
    }
}

}  // namespace flashtile
