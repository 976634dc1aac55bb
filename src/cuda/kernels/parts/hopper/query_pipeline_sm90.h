// query_pipeline_sm90.h: all of Hopper's forward pass but the computation itself: where Q, K, V and O lie in shared
// memory, how many registers each role has, the producer, which loads the tiles of the schedule with TMA, and the warps
// that draw for dropout or prepare what is e4m3. (Backward has key_block_sm90.h.)
#pragma once

#include "cuda/kernels/parts/common/dropout.h"
#include "cuda/kernels/parts/hopper/block_scales.h"
#include "cuda/kernels/parts/hopper/latent_ring.h"
#include "cuda/kernels/parts/hopper/ring.h"
#include "cuda/kernels/parts/hopper/tile_copy.h"
#include "cuda/kernels/parts/hopper/transposed_values.h"
#include "cuda/kernels/parts/hopper/widened_tile.h"
#include "cuda/kernels/parts/schedule/found_tiles.h"
#include "cuda/kernels/parts/schedule/sequence_order.h"
#include "cuda/kernels/parts/schedule/share_schedule.h"
#include "cuda/kernels/parts/schedule/ticket_schedule.h"
#include "cuda/kernels/parts/schedule/tile_schedule.h"
#include "cuda/kernels/ptx/dependent_launch.h"
#include "cuda/kernels/ptx/shared_memory.h"
#include "cuda/kernels/ptx/warpgroup.h"

namespace flashtile {

// Optimism: the first pass over a tile takes for granted what hardly ever fails, and saves the work of making sure. It
// notices when that was wrong, and then the producer brings the tile once more, for a careful pass, which takes nothing
// for granted and whose results replace those of the first.
enum class Pass { optimistic, careful };

template <KernelConfig config>
struct Optimism {
    // Once every row has a maximum, later blocks are not searched for a greater one: P in fp32 reaches far beyond 1
    // (Softmax::find_growth).
    static constexpr bool kKeepsMaxima = config.lazy_rescale && !config.scale_first && !keys_hold_values(config);
    // V of keys that a mask or a bias hides is finite, so that P = 0 leaves it out.
    static constexpr bool kTrustsHiddenValues = config.has_bias_or_mask() || config.has_functions();
    // Whether there is an optimistic pass at all; else every pass is careful.
    static constexpr bool kAny = kKeepsMaxima || kTrustsHiddenValues;
    static constexpr Pass kFirstPass = kAny ? Pass::optimistic : Pass::careful;
};

// What the producer and the consumers tell each other of a stage of Q.
template <KernelConfig config>
struct TileSlot {
    static constexpr int kBytes = config.shares ? 32 : 16;
    // In place of a head: the stage holds no tile; the stage holds no tile and none will follow.
    static constexpr unsigned kNone = ~1u, kEnd = ~0u;

    TileNumber number;
    bool careful;  // this is the careful pass
    bool failed;   // the optimistic pass took something for granted that was wrong

    __device__ __forceinline__ bool is_tile() const { return number.head < kNone; }
    __device__ static __forceinline__ TileSlot read(unsigned address) {
        const uint4 words = ptx::load_shared(address);
        if constexpr (!config.shares) return {{words.x, words.y}, words.z != 0, words.w != 0};
        const uint4 share = ptx::load_shared(address + 16);
        return {{words.x, words.y, share.x, share.y, share.z}, words.z != 0, words.w != 0};
    }
    __device__ __forceinline__ void write(unsigned address) const {
        ptx::store_shared(address, make_uint4(number.head, number.block, careful, failed));
        if constexpr (config.shares)
            ptx::store_shared(address + 16, make_uint4(number.first, number.count, number.part, 0));
    }
    __device__ static __forceinline__ void fail(unsigned address) { ptx::store_shared(address + 12, 1); }
};

template <KernelConfig config>
struct QueryPipeline {
    using M = Math<config.element>;
    using Scalar = typename M::Scalar;
    using Tile = QueryTile<config>;
    using Slot = TileSlot<config>;
    static constexpr int kConsumers = forward_consumers(config);
    static constexpr int kColumns = chunk_columns(config.head_dim, chunk_of(config.element));
    static constexpr int kColumnsV = chunk_columns(config.head_dim_v, chunk_of(config.element));
    static constexpr int NT = config.Bc / 8, OT = output_columns(config) / 8;
    static constexpr int kQueryStages = query_stages(config);
    static constexpr int kSize = size_of(config.element);
    static constexpr int kBytesQ = config.Br * kColumns * kSize;
    static constexpr int kBytesK = config.Bc * kColumns * kSize;
    static constexpr bool kTransposes = config.element == Element::e4m3, kWidens = config.converts_kv;
    static constexpr int kBytesV = keys_hold_values(config) ? 0
                                   : kTransposes            ? transposed_bytes(config)
                                                            : config.Bc * kColumnsV * kSize;
    // Of K and V as TMA brings them, where these are prepared before consumers read them.
    static constexpr int kColumnsOfChunk = chunk_of(kWidens ? Element::e4m3 : config.element);
    static constexpr int kRawColumns = chunk_columns(config.head_dim, kColumnsOfChunk);
    static constexpr int kRawColumnsV = chunk_columns(config.head_dim_v, kColumnsOfChunk);
    static constexpr int kBytesRawK = raw_key_bytes(config), kBytesRawV = raw_value_bytes(config);
    static constexpr int kPartsO = output_parts(config), kBytesO = output_bytes(config);
    // The drawers are the warps that draw for dropout: a warpgroup of their own, or the three warps that stand idle
    // beside the producer.
    static constexpr bool kDrawersApart = config.dropout && config.warps == 4 * (kConsumers + 2);
    static constexpr int kDrawers = !config.dropout ? 0 : (kDrawersApart ? 4 : 3);
    // The preparers are those three warps where V must be transposed, or K and V widened: they read what TMA has
    // loaded, and consumers read what they write. Widening for few queries takes longer than all else, and has a
    // warpgroup of its own beside them.
    static constexpr bool kPrepares = kTransposes || kWidens;
    static constexpr bool kPreparersApart = kWidens && config.warps == 4 * (kConsumers + 2);
    static constexpr int kPreparers = !kPrepares ? 0 : kPreparersApart ? 7 : 3;
    static_assert(!(kPrepares && config.dropout), "the same warps");
    // A warp beside the producer finds tiles.
    static constexpr bool kFinds = finds_tiles(config);
    // It then has registers to spare where consumers need them for a second P (ForwardSm90::kTwoOfP).
    static constexpr bool kSpares = kFinds && !config.lengths_in_memory() && !config.score_function &&
                                    kConsumers == 2 && NT * (4 + 2 * kSize) + OT * 4 == 192;
    // Registers of a thread. The launch gives every warpgroup the same number, a multiple of 8, and the kernel
    // redistributes them. A producer needs more where it has to look lengths or shown blocks up, where heads share a
    // tile, where it loads a bias, and where drawers or preparers share its warpgroup. Three consumers of many columns
    // leave it few.
    static constexpr int kAllRegisters =
        65536 / (config.warps * 32 * config.blocks_per_sm) / 8 * 8 * (config.warps / 4);
    static constexpr int kDrawerRegisters = 56, kMostRegisters = 240;
    static constexpr bool kBusyProducer = config.dropout ? !kDrawersApart
                                                         : config.lengths_in_memory() || config.group_rows > 1 ||
                                                               config.bias_mapped ||
                                                               (config.mask_function && !kSpares) || kPrepares;
    // Two consumers of e4m3 take all that preparers can do without, for Q (kHoldsQuery).
    static constexpr bool kPreparersSpare =
        kTransposes && kConsumers == 2 && !(config.scale_blocks && config.lengths_in_memory());
    static constexpr int kProducerRegisters = kWidens           ? 80
                                              : kPreparersSpare ? 40
                                              : kConsumers > 2  ? (NT*(4 + kSize) + OT * 4 > 124 ? 32 : 56)
                                              : kBusyProducer   ? (config.blocks_per_sm > 2 ? 48 : 56)
                                                                : 40;
    static constexpr int kOtherRegisters = kProducerRegisters + (kPreparersApart ? kProducerRegisters
                                                                 : kDrawersApart ? kDrawerRegisters
                                                                                 : 0);
    static constexpr int kLeftRegisters = (kAllRegisters - kOtherRegisters) / kConsumers / 8 * 8;
    static constexpr int kConsumerRegisters = kLeftRegisters < kMostRegisters ? kLeftRegisters : kMostRegisters;
    static_assert(config.warps == 4 * (kConsumers + 1) || kPreparersApart || kDrawersApart, "");

    static constexpr bool kTold = config.paged || config.mask_function;
    // Then all warps of a consumer read of a stage of K what is told of it, beside wgmma, which reads K.
    static constexpr bool kKeysReadByWarps = kTold || config.scale_blocks;

    // A stage of Q has a TileSlot, and behind it the tile as the producer found it.
    static constexpr int kBytesSlot = Slot::kBytes + Tile::kBytes;
    __device__ __forceinline__ unsigned slot() const { return slots + q_ring.stage * kBytesSlot; }
    __device__ __forceinline__ Tile tile_at_hand() const { return Tile::read(params, slot() + Slot::kBytes); }

    const KernelParams& params;
    unsigned q, k, v, raw_k, raw_v, bias, out;  // shared addresses
    unsigned handed;                            // likewise, of what one consumer of latent heads hands to the other
    unsigned slots;                             // likewise, one a stage of Q
    unsigned kept;                              // likewise, of the kept bits' stages
    unsigned order;  // likewise, of sequences whose lengths lie in device memory, or of lines
    unsigned found;  // likewise, of the next tile, where a warp finds it
    // Likewise, a word for each stage of K, where kTold: of pages, which keys lie in none, a bit for each eight; beside
    // a mask function, which block of keys it is, and whether all of it is shown.
    unsigned told;
    unsigned share;        // likewise, where this thread block's share begins
    unsigned told_scales;  // likewise, for each stage of K, what BlockScales tell
    Ring<kQueryStages> q_ring;
    Ring<config.stages> k_ring, v_ring, raw_k_ring, raw_v_ring;
    LatentRing<config> latent_ring;  // in the place of both, where V is the first columns of K
    Ring<1> bias_ring, found_ring;
    Ring<kDropoutStages> kept_ring;
    using Kept = KeptBits<NT>;

    __device__ __forceinline__ QueryPipeline(const KernelParams& p, unsigned memory)
        : params(p),
          q(memory),
          k(q + kQueryStages * kBytesQ),
          v(k + config.stages * kBytesK),
          raw_k(v + config.stages * kBytesV),
          raw_v(raw_k + config.stages * kBytesRawK),
          bias(raw_v + config.stages * kBytesRawV),
          out(bias + bias_bytes(config)),
          handed(out + kBytesO) {
        unsigned barriers = handed + handed_to_second_bytes(config);
        barriers = q_ring.place(barriers);
        if constexpr (keys_hold_values(config)) {
            barriers = latent_ring.place(barriers);
        } else {
            barriers = k_ring.place(barriers);
            barriers = v_ring.place(barriers);
        }
        if constexpr (kWidens) barriers = raw_k_ring.place(barriers);
        if constexpr (kPrepares) barriers = raw_v_ring.place(barriers);
        if constexpr (config.bias_mapped) barriers = bias_ring.place(barriers);
        if constexpr (kFinds) barriers = found_ring.place(barriers);
        slots = config.dropout ? kept_ring.place(barriers) : barriers;
        kept = slots + kQueryStages * kBytesSlot;
        order = kept + dropout_bytes(config);
        found = order + order_bytes(config);
        told = found + found_bytes(config);
        constexpr int kToldBytes = config.stages * 4 * (kWidens ? 2 : 1);
        share = told + kToldBytes + (16 - kToldBytes % 16) % 16;
        told_scales = told + serving_bytes(config);
        static_assert(!config.shares || kToldBytes + 12 + ShareSchedule<config>::kBytes + 2 * kQueryStages * 32 <=
                                            serving_bytes(config),
                      "");
    }

    // A stage of Q is released by every warp that reads it, a stage of K or V by one thread of each consumer, but for K
    // of which something is told (release_keys).
    __device__ __forceinline__ void init_barriers() const {
        for (int n = 0; n < kQueryStages; ++n) Slot{}.write(slots + n * kBytesSlot);
        q_ring.init((kConsumers * 4 + kDrawers + kPreparers) * kArrivalsOfWarp);
        if constexpr (keys_hold_values(config)) {
            latent_ring.init();
        } else {
            constexpr int kPrepared = kPreparers * kArrivalsOfWarp;
            constexpr int kTellers = config.scale_blocks && !kWidens ? kArrivalsOfWarp : 0;
            k_ring.init(kKeysReadByWarps ? kConsumers * 4 * kArrivalsOfWarp : kConsumers,
                        kWidens ? kPrepared : 1 + kTellers);
            v_ring.init(kConsumers, kPrepares ? kPrepared : 1);
            if constexpr (kWidens) raw_k_ring.init(kPrepared);
            if constexpr (kPrepares) raw_v_ring.init(kPrepared);
        }
        if constexpr (config.bias_mapped) bias_ring.init(kConsumers * 4 * kArrivalsOfWarp);
        if constexpr (kFinds) found_ring.init(1);
        if constexpr (config.dropout) kept_ring.init(kConsumers * 4 * kArrivalsOfWarp, kDrawers * kArrivalsOfWarp);
        ptx::fence_mbarrier_init();
    }

    __device__ __forceinline__ void prefetch_maps() const {
        ptx::tma_prefetch_map(&params.k_map);
        ptx::tma_prefetch_map(&params.q_map);
        if constexpr (!keys_hold_values(config)) ptx::tma_prefetch_map(&params.v_map);
        if constexpr (kPartsO > 0) ptx::tma_prefetch_map(&params.out_map);
        if constexpr (config.bias_mapped) ptx::tma_prefetch_map(&params.bias_map);
    }

    __device__ __forceinline__ SequenceOrder<config> sequence_order() const { return {order, params.batch}; }
    __device__ __forceinline__ LineOrder<config> line_order() const {
        return {order, static_cast<int>(query_blocks<config>(params.seqlen_q))};
    }
    __device__ __forceinline__ ShareSchedule<config> shares() const { return {params, share}; }
    // All threads call this before they begin; a barrier must follow.
    __device__ __forceinline__ void find_work() const {
        if constexpr (config.shares)
            shares().find();
        else if constexpr (config.lengths_differ())
            if (sequence_order().fits()) sequence_order().find(params);
        if constexpr (orders_lines(config))
            if (line_order().fits()) line_order().find(params);
    }

    // Pages are looked up lane by lane, and so the producer is a warp there. What is done once, its first lane does.
    static constexpr bool kWarpProduces = config.paged;
    __device__ static __forceinline__ bool leads() { return !kWarpProduces || lane_id() == 0; }

    // The producer brings the tiles of the schedule, and those whose optimistic pass failed a second time. The order
    // within a tile is that in which consumers need things: K0, Q, K1, V0, K2, V1 and so on. The next tile is found
    // before there is a place for the last V, so that nothing waits for that. The bias of a block comes last, because
    // its place becomes free when the scores of the block before are there.
    __device__ __forceinline__ void produce() {
        if constexpr (config.shares)
            produce(typename ShareSchedule<config>::Walk(shares()));
        else if constexpr (kFinds)
            produce(FoundTiles<config>{params, found, found_ring});
        else if constexpr (config.uneven_in_memory())
            produce(TicketSchedule<config>(params, sequence_order(), line_order()));
        else
            produce(TileSchedule<config>(params));
    }
    // For a thread of another warp.
    __device__ __forceinline__ void find_tiles() const {
        FoundTiles<config>{params, found, found_ring}.find(
            TicketSchedule<config>(params, sequence_order(), line_order()));
    }
    // The tile of a slot that the producer fills next; any where there is none.
    template <class Schedule>
    __device__ __forceinline__ Tile tile_for(const Slot& now, Schedule& schedule) const {
        if constexpr (kFinds)
            return now.is_tile() && !now.careful ? schedule.take() : Tile::read(params, again());
        else
            return Tile(params, now.is_tile() ? now.number : TileNumber{0, 0});
    }
    // Where a tile lies that is brought a second time.
    __device__ __forceinline__ unsigned again() const { return found + kFoundTileBytes; }
    template <class Schedule>
    __device__ __forceinline__ void produce(Schedule schedule) {
        // The producer learns that a pass has failed when it fills that tile's stage again. So it fills every stage
        // once more, with no tile, after the last tile.
        int empty_stages = Optimism<config>::kAny ? kQueryStages : 0;
        const auto follow = [&](const Slot& before) -> Slot {
            if (before.failed) return {before.number, true, false};
            TileNumber number;
            if (!schedule.next(number)) number.head = empty_stages-- > 0 ? Slot::kNone : Slot::kEnd;
            return {number, false, false};
        };
        Slot now = follow(Slot{});
        KeyRows pending{};  // the last V of a tile, which is loaded after the next tile has been found
        while (true) {
            const Tile tile = tile_for(now, schedule);
            const int blocks = now.is_tile() ? tile.keys.count : 0;
            TileWalk<config> walk(params, tile);
            KeyRows keys(params, tile);
            if (config.mask_function && blocks > 0) keys.advance(tile, walk, 0);
            if (pending.head >= 0) load_v(pending);
            if (blocks > 0) load_k(keys);
            const Slot before = hand_on(now, tile);
            if (now.number.head == Slot::kEnd) return;
            if (blocks > 0) load_bias(tile, 0);
            for (int n = 1; n < blocks; ++n) {
                const KeyRows last = keys;
                keys.advance(tile, walk, n);
                load_k(keys);
                load_v(last);
                load_bias(tile, n);
            }
            pending = keys;
            if (blocks == 0) pending.head = -1;
            now = follow(before);
        }
    }

    // Loads Q of a tile and fills its slot in. Returns what the slot held before.
    __device__ __forceinline__ Slot hand_on(const Slot& now, const Tile& tile) {
        q_ring.wait_empty();
        const Slot before = Slot::read(slot());
        if constexpr (kWarpProduces) __syncwarp();  // all lanes have read what the first one writes over
        if constexpr (kFinds)
            if (before.failed) Tile::read(params, slot() + Slot::kBytes).write(params, again());
        if (leads()) fill_slot(now, tile);
        q_ring.advance();
        return before;
    }
    __device__ __forceinline__ void fill_slot(const Slot& now, const Tile& tile) const {
        now.write(slot());
        if (now.is_tile()) {
            tile.write(params, slot() + Slot::kBytes);
            ptx::mbarrier_arrive_expect(q_ring.full_barrier(), kBytesQ);
            // a group's queries are those of several sequences: its map has them all as one run
            const int before = config.prefixes
                                   ? static_cast<int>(tile.seq.first_q + tile.seq.batch_row * params.seqlen_q)
                                   : static_cast<int>(tile.seq.first_q) - params.first_query;
            copy_queries<config>(q + q_ring.stage * kBytesQ, params.q_map, q_ring.full_barrier(), kColumns,
                                 before * config.group_rows + tile.i0, tile.map_head(params),
                                 config.prefixes ? 0 : static_cast<int>(tile.seq.batch_row));
        } else {
            ptx::mbarrier_arrive(q_ring.full_barrier());
        }
    }

    // Where a block of keys lies in the tensor maps' coordinates; in a paged cache, in the sequence. It begins as the
    // first block of a tile, or, beside a mask function, as block 0.
    struct KeyRows {
        int row = 0, head = -1, b = 0;
        int first = 0, end = 0;  // pages: the keys that some query of the sequence sees
        unsigned block = 0;      // beside a mask function, as it is told

        __device__ __forceinline__ KeyRows() {}
        __device__ __forceinline__ KeyRows(const KernelParams& p, const Tile& tile)
            : row(static_cast<int>(tile.seq.first_k) - p.first_key + (config.mask_function ? 0 : tile.key_of(0))),
              head(static_cast<int>(tile.seq.kv_head(p))),
              b(static_cast<int>(config.cache && !config.paged ? tile.seq.key_row : tile.seq.batch_row)) {
            if constexpr (config.paged) {
                b = static_cast<int>(config.prefixes ? tile.seq.prefix_row : tile.seq.b);
                first = tile.seq.template first_key<config>(0);
                end = tile.seq.template end_key<config>(tile.seq.seqlen_q);
            }
        }
        // To the n-th block of the tile, from the one before.
        __device__ __forceinline__ void advance(const Tile& tile, TileWalk<config>& walk, int n) {
            if constexpr (config.mask_function) {
                row += walk.key_of(tile, n) - static_cast<int>(block / 2) * config.Bc;
                block = static_cast<unsigned>(walk.block.number) * 2 + (walk.block.whole ? 1 : 0);
            } else {
                row = tile.keys.next_backwards(row);
            }
        }
    };
    __device__ __forceinline__ void load_k(const KeyRows& keys) {
        if constexpr (keys_hold_values(config))
            load_latent(keys);
        else if constexpr (kWidens)
            load_k(keys, raw_k_ring, raw_k, kBytesRawK, told + config.stages * 4);
        else
            load_k(keys, k_ring, k, kBytesK, told);
    }
    // `words` is where each stage has its word of `told`.
    __device__ __forceinline__ void load_k(const KeyRows& keys, Ring<config.stages>& ring, unsigned stages, int bytes,
                                           unsigned words) {
        if constexpr (config.paged)
            load_pages(ring, stages, bytes, params.k_map, kRawColumns, keys,
                       [&](unsigned none) { ptx::store_shared(words + ring.stage * 4, none); });
        else
            load(ring, stages, bytes, params.k_map, kRawColumns, keys, [&] {
                if constexpr (config.mask_function) ptx::store_shared(words + ring.stage * 4, keys.block);
            });
    }
    __device__ __forceinline__ void load_v(const KeyRows& keys) {
        if constexpr (keys_hold_values(config)) return;
        if constexpr (kPrepares)
            load_v(keys, raw_v_ring, raw_v, kBytesRawV);
        else
            load_v(keys, v_ring, v, kBytesV);
    }
    __device__ __forceinline__ void load_v(const KeyRows& keys, Ring<config.stages>& ring, unsigned stages, int bytes) {
        if constexpr (config.paged)
            load_pages(ring, stages, bytes, params.v_map, kRawColumnsV, keys, [](unsigned) {});
        else
            load(ring, stages, bytes, params.v_map, kRawColumnsV, keys, [] {});
    }
    // Loads a block of latent keys chunk by chunk, in the order in which the chunks before were released.
    __device__ __forceinline__ void load_latent(const KeyRows& keys) {
        if constexpr (config.paged) {
            BlockPages pages(params, keys);
            load_chunks(
                [&] {
                    const unsigned none = pages.missing(params);
                    if (leads()) ptx::store_shared(told + latent_ring.stage * 4, none);
                },
                [&](unsigned to, unsigned full, int column) {
                    pages.copy(params, to, params.k_map, full, kChunk, keys.head, column);
                });
        } else {
            load_chunks([] {},
                        [&](unsigned to, unsigned full, int column) {
                            copy_tile(to, params.k_map, full, kChunk, config.Bc, keys.row, keys.head, keys.b, column);
                        });
        }
    }
    // begin() comes first, once there is a place.
    template <class Begin, class Copy>
    __device__ __forceinline__ void load_chunks(Begin begin, Copy copy) {
        using Latent = LatentRing<config>;
        LatentShare last{};
#pragma unroll
        for (int n = 0; n < Latent::kChunks; ++n) {
            const int chunk = Latent::chunk_at(n);
            const LatentShare share = Latent::share_of(chunk);
            if (n == 0 || share != last) latent_ring.wait_empty(share);
            last = share;
            if (n == 0) begin();
            const unsigned full = latent_ring.full_barrier(chunk);
            if (leads()) ptx::mbarrier_arrive_expect(full, Latent::kBytesChunk);
            copy(k + latent_ring.stage * kBytesK + chunk * Latent::kBytesChunk, full, chunk * kChunk);
        }
        latent_ring.advance();
    }
    // Loads a block into the ring's next stage. tell() comes before the stage can be full.
    template <class Tell>
    __device__ static __forceinline__ void load(Ring<config.stages>& ring, unsigned stages, int bytes,
                                                const TensorMap& map, int columns, const KeyRows& keys, Tell tell) {
        ring.wait_empty();
        tell();
        ptx::mbarrier_arrive_expect(ring.full_barrier(), bytes);
        copy_tile<kColumnsOfChunk>(stages + ring.stage * bytes, map, ring.full_barrier(), columns, config.Bc, keys.row,
                                   keys.head, keys.b);
        ring.advance();
    }

    // The same from pages. tell() hears, before the stage can be full, which keys are in no page although queries see
    // them.
    template <class Tell>
    __device__ __forceinline__ void load_pages(Ring<config.stages>& ring, unsigned stages, int bytes,
                                               const TensorMap& map, int columns, const KeyRows& keys,
                                               Tell tell) const {
        BlockPages pages(params, keys);
        ring.wait_empty();
        const unsigned none = pages.missing(params);
        if (leads()) {
            tell(none);
            ptx::mbarrier_arrive_expect(ring.full_barrier(), bytes);
        }
        pages.copy(params, stages + ring.stage * bytes, map, ring.full_barrier(), columns, keys.head);
        ring.advance();
    }
    // In which page, which is a batch entry of the map, a block of keys has its n-th box, of some rows of the page or
    // all; lane n has that box. Nobody waits for the block table: its words are asked for before there is a free
    // stage. A box of keys that no query of the sequence sees is not looked up. What lies in no page is loaded from
    // behind the last one, where TMA finds zeros.
    struct BlockPages {
        static_assert(config.Bc / kLeastPageBox <= 32, "a lane has one box");
        static constexpr int kUnasked = -1 - 0x7fffffff;
        int first, page = kUnasked, row = 0;  // `first` of the block's keys is the box's first

        __device__ __forceinline__ BlockPages(const KernelParams& p, const KeyRows& keys)
            : first(static_cast<int>(lane_id()) * p.page_box) {
            const int j = keys.row + first;
            const unsigned page_size = static_cast<unsigned>(p.page_size);
            const unsigned of_sequence = static_cast<unsigned>(j) / page_size;
            row = static_cast<int>(static_cast<unsigned>(j) - of_sequence * page_size);
            if (first < config.Bc && j < keys.end && j + p.page_box > keys.first)
                page = (p.block_table + keys.b * p.block_table_stride)[of_sequence];
        }
        // Waits for the block table; a bit for each eight keys in no page.
        __device__ __forceinline__ unsigned missing(const KernelParams& p) {
            const bool none = page < 0 || page >= p.cache_rows;
            unsigned keys = 0;
            for (unsigned boxes = __ballot_sync(~0u, none && page != kUnasked); boxes != 0; boxes &= boxes - 1)
                keys |= ((1u << p.page_box / 8) - 1) << (__ffs(static_cast<int>(boxes)) - 1) * p.page_box / 8;
            if (none) page = static_cast<int>(p.cache_rows);
            return keys;
        }
        __device__ __forceinline__ void copy(const KernelParams& p, unsigned to, const TensorMap& map, unsigned barrier,
                                             int columns, int head, int column = 0) const {
            if (first >= config.Bc) return;
            for (int c = 0; c < columns; c += kColumnsOfChunk)
                ptx::tma_load(to + (c / kColumnsOfChunk * config.Bc + first) * kChunkRowBytes, &map, barrier,
                              column + c, row, head, page);
        }
    };
    // The block of keys whose K has come, the n-th of a tile.
    struct KeysAtHand {
        int j0;
        unsigned unnamed;  // which of them lie in no page
        bool whole;        // the mask function hides nothing that the band leaves
    };
    __device__ __forceinline__ KeysAtHand keys_at_hand(const Tile& tile, int n) const {
        const unsigned word = kTold ? ptx::load_shared_word(told + k_ring.stage * 4) : 0;
        if constexpr (config.mask_function) return {static_cast<int>(word / 2) * config.Bc, 0, word % 2 != 0};
        return {tile.key_of(n), word, true};
    }
    __device__ __forceinline__ void load_bias(const Tile& tile, int n) {
        if constexpr (!config.bias_mapped) return;
        bias_ring.wait_empty();
        ptx::mbarrier_arrive_expect(bias_ring.full_barrier(), bias_bytes(config));
        copy_tile(bias, params.bias_map, bias_ring.full_barrier(), config.Bc, config.Br, tile.i0,
                  params.bias.stride_head != 0 ? static_cast<int>(tile.seq.h) : 0,
                  params.bias.stride_batch != 0 ? static_cast<int>(tile.seq.b) : 0, tile.key_of(n));
        bias_ring.advance();
    }

    // The preparers work for all consumers, in the order in which the producer loads. Where V is transposed and TMA
    // cannot know which keys are a sequence's own, they leave the others out, since V of those may be NaN. (Consumers
    // clear a V that lies as it came.)
    __device__ __forceinline__ void prepare(int preparer) {
        while (true) {
            q_ring.wait_full();
            const Slot now = Slot::read(slot());
            if (now.number.head == Slot::kEnd) return;
            int blocks = 0, first = 0, end = 0;  // keys, counted from the first one of the block at hand
            int told_at = 0;                     // where the block starts whose scales are told next
            BlockScales<config> scales;
            if (now.is_tile()) {
                const Tile tile = tile_at_hand();
                blocks = tile.keys.count;
                if constexpr (config.scale_blocks) {
                    told_at = tile.key_of(0);
                    if (preparer == 0) scales = BlockScales<config>(params, tile.seq);
                }
                if constexpr (kTransposes && config.maps_hold_hidden_keys()) {
                    first = tile.seq.template first_key<config>(0) - tile.key_of(0);
                    end = tile.seq.template end_key<config>(tile.seq.seqlen_q) - tile.key_of(0);
                }
            }
            release_query();
            if constexpr (kTransposes) {
                // Scales are told a block ahead, as consumers need them.
                if (config.scale_blocks && preparer == 0 && blocks > 0) hand_scales_over(scales, told_at);
#pragma unroll 1
                for (int n = 0; n < blocks; ++n, first += config.Bc, end += config.Bc) {
                    if (config.scale_blocks && preparer == 0 && n + 1 < blocks)
                        hand_scales_over(scales, told_at -= config.Bc);
                    transpose_values(preparer, first, end);
                }
            } else {
#pragma unroll 1
                for (int n = 0; n <= blocks && blocks > 0; ++n, told_at -= config.Bc) {
                    if (n < blocks) widen_keys(preparer, scales, told_at);
                    if (n > 0) widen_values(preparer);
                }
            }
        }
    }
    // A warp tells the scales of the keys from j0 on, whose stage of K is empty.
    __device__ __forceinline__ void tell_scales(BlockScales<config>& scales, int j0) const {
        if constexpr (config.scale_blocks)
            scales.tell(params, j0, told_scales + k_ring.stage * told_scales_bytes(config));
    }
    // The same where K comes by itself.
    __device__ __forceinline__ void hand_scales_over(BlockScales<config>& scales, int j0) {
        k_ring.wait_empty();
        tell_scales(scales, j0);
        arrive_by_warp(k_ring.full_barrier());
        k_ring.advance();
    }
    __device__ __forceinline__ void transpose_values(int preparer, int first, int end) {
        raw_v_ring.wait_full();
        v_ring.wait_empty();
        TransposedValues<config>::template transpose < kPreparers,
            kProducerRegisters<40 ? 2 : 4>(raw_v + raw_v_ring.stage * kBytesRawV, v + v_ring.stage * kBytesV, preparer,
                                           first, end);
        hand_over(raw_v_ring, v_ring);
    }
    // K, and with it the scales of its keys.
    __device__ __forceinline__ void widen_keys(int preparer, BlockScales<config>& scales, int j0) {
        raw_k_ring.wait_full();
        k_ring.wait_empty();
        if (preparer == 0) tell_scales(scales, j0);
        if constexpr (config.paged)
            if (preparer == 0 && lane_id() == 0)
                ptx::store_shared(told + k_ring.stage * 4,
                                  ptx::load_shared_word(told + (config.stages + raw_k_ring.stage) * 4));
        widen_tile<config.element, config.Bc, kColumns, kPreparers>(raw_k + raw_k_ring.stage * kBytesRawK,
                                                                    k + k_ring.stage * kBytesK, preparer);
        hand_over(raw_k_ring, k_ring);
    }
    __device__ __forceinline__ void widen_values(int preparer) {
        raw_v_ring.wait_full();
        v_ring.wait_empty();
        widen_tile<config.element, config.Bc, kColumnsV, kPreparers>(raw_v + raw_v_ring.stage * kBytesRawV,
                                                                     v + v_ring.stage * kBytesV, preparer);
        hand_over(raw_v_ring, v_ring);
    }
    __device__ static __forceinline__ void hand_over(Ring<config.stages>& from, Ring<config.stages>& to) {
        arrive_by_warp(to.full_barrier());
        to.advance();
        from.release_by_warp();
        from.advance();
    }

    // Dropout has warps of its own, because Philox takes as long as the softmax, and the consumers would have to do one
    // after the other. The drawers work for the warps of all consumers in turn, one block ahead of them.
    __device__ __forceinline__ void draw(int drawer) {
        while (true) {
            q_ring.wait_full();
            const Slot now = Slot::read(slot());
            if (now.number.head == Slot::kEnd) return;
            if (now.is_tile()) {
                const Tile tile = tile_at_hand();
                const Dropout dropout = dropout_of(params, tile.seq);
                TileWalk<config> walk(params, tile);
#pragma unroll 1
                for (int n = 0; n < tile.keys.count; ++n) {
                    const int j0 = walk.key_of(tile, n);
                    kept_ring.wait_empty();
#pragma unroll 1
                    for (int warp = drawer; warp < kConsumers * 4; warp += kDrawers)
                        Kept::draw(dropout, params, {tile.i0 + warp * 16, j0}, kept_place(warp));
                    arrive_by_warp(kept_ring.full_barrier());
                    kept_ring.advance();
                }
            }
            release_query();
        }
    }
    // Where the bits for a warp of the consumers lie; `warp` counts through all consumers.
    __device__ __forceinline__ unsigned kept_place(int warp) const {
        return kept + (kept_ring.stage * kConsumers * 4 + warp) * Kept::kBytes;
    }
    __device__ __forceinline__ void drop(int consumer, typename M::template Left<1, NT>& p) {
        kept_ring.wait_full();
        Kept::drop(p, kept_place(consumer * 4 + static_cast<int>(warp_id() % 4)));
        kept_ring.release_by_warp();
        kept_ring.advance();
    }

    // All threads of a consumer call this once S is there. Each warp has read by itself what it is told of them.
    __device__ __forceinline__ void release_keys(bool elected) {
        if constexpr (kKeysReadByWarps)
            k_ring.release_by_warp();
        else if (elected)
            k_ring.release();
        k_ring.advance();
    }

    // Every warp calls this once its last S has been computed.
    __device__ __forceinline__ void release_query() {
        q_ring.release_by_warp();
        q_ring.advance();
    }
};

extern __shared__ __align__(1024) unsigned char shared_memory[];

// A kernel of Hopper's forward pass: each warpgroup of a thread block takes its role.
template <class Forward, KernelConfig config>
__device__ __forceinline__ void run_forward_sm90(const KernelParams& params) {
    const unsigned memory = (static_cast<unsigned>(__cvta_generic_to_shared(shared_memory)) + 1023) & ~1023u;
    Forward forward(params, memory);
    if (threadIdx.x == 0) forward.init_barriers();
    if (threadIdx.x == Forward::kConsumers * 128) forward.prefetch_maps();
    if constexpr (config.shares) {  // launched early, and so is combine_shares.h
        ptx::wait_for_launch_before();
        ptx::let_next_launch_begin();
    } else if constexpr (config.mask_function) {  // launched early, behind its map
        ptx::wait_for_launch_before();
    }
    forward.find_work();
    __syncthreads();  // barriers are initialised, and what find_work has found is there
    // A warp's lanes have the same number; the shuffle tells the compiler so.
    const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 128), 0);
    // counted from the first warp after the consumers
    const int warp = __shfl_sync(~0u, static_cast<int>(warp_id()), 0) - 4 * Forward::kConsumers;
    if (Forward::kDrawersApart && warpgroup > Forward::kConsumers) {
        ptx::registers_give_back<Forward::kDrawerRegisters>();
        if constexpr (Forward::kDrawersApart) forward.draw(warp - 4);
    } else if (Forward::kPreparersApart && warpgroup > Forward::kConsumers) {
        ptx::registers_give_back<Forward::kProducerRegisters>();
        if constexpr (Forward::kPreparersApart) forward.prepare(warp - 1);
    } else if (warpgroup == Forward::kConsumers) {
        ptx::registers_give_back<Forward::kProducerRegisters>();
        if (warp > 0) {
            if constexpr (config.dropout && !Forward::kDrawersApart) forward.draw(warp - 1);
            if constexpr (Forward::kPrepares) forward.prepare(warp - 1);
            if constexpr (Forward::kFinds)
                if (warp == 1 && lane_id() == 0) forward.find_tiles();
        } else if (Forward::kWarpProduces || threadIdx.x == Forward::kConsumers * 128) {
            forward.produce();
        }
    } else {
        ptx::registers_take<Forward::kConsumerRegisters>();
        forward.consume(warpgroup);
    }
}

}  // namespace flashtile
