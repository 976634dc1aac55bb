// listed_mask.h: the mask function that kernels evaluate: the one that the user gives, or lists of blocks, or both. In
// a block that is listed as full the user's function does not count.
#pragma once

#include "cuda/kernels/parts/common/sequence.h"
#include "shared/block_kinds.h"

namespace flashtile {

// What functions are given beside the score, the query and the key.
struct FunctionArguments {
    Index b, h, seqlen_q, seqlen_k;
    const DeviceFunctionTensor* tensors;
    BlockKinds<int> blocks;    // of this head
    Index origin_i, origin_j;  // what i and j are more than the sequence's own
};

// The user's, which the JIT writes.
template <KernelConfig config>
struct GivenMask;

// The blocks of this head.
__device__ __forceinline__ BlockKinds<int> block_kinds_of(const KernelParams& p, const Sequence& seq) {
    const int rows = (static_cast<int>(p.seqlen_q) + p.block_q - 1) / p.block_q;
    const int columns = (static_cast<int>(p.seqlen_k) + p.block_k - 1) / p.block_k;
    const Index list = (p.list_batch > 1 ? seq.b : 0) * p.list_heads + (p.list_heads > 1 ? seq.h : 0);
    return {p.ws_block_kinds + list * rows * columns, p.block_q, p.block_k, columns};
}

// Rows and columns past the sequence's end are taken for the last ones.
template <KernelConfig config>
struct ListedMask {
    struct Row {
        const unsigned char* kinds;
    };
    struct Column {
        int block;
    };
    const BlockKinds<int> blocks;
    const Index origin_i, origin_j;
    const int last_i, last_j;

    __device__ __forceinline__ explicit ListedMask(const FunctionArguments& given)
        : blocks(given.blocks),
          origin_i(given.origin_i),
          origin_j(given.origin_j),
          last_i(static_cast<int>(given.seqlen_q) - 1),
          last_j(static_cast<int>(given.seqlen_k) - 1) {}
    __device__ __forceinline__ Row row_of(Index i) const {
        const int own = smaller(static_cast<int>(i - origin_i), last_i);
        return {blocks.kind + Index{own / blocks.block_q} * blocks.row};
    }
    __device__ __forceinline__ Column column_of(Index j) const {
        return {smaller(static_cast<int>(j - origin_j), last_j) / blocks.block_k};
    }
    __device__ __forceinline__ static BlockKind kind(const Row& row, const Column& column) {
        return static_cast<BlockKind>(row.kinds[column.block]);
    }
    __device__ __forceinline__ bool value(const Row& row, const Column& column) const {
        return kind(row, column) != BlockKind::hidden;
    }
};

// Both.
template <KernelConfig config>
struct ListedGivenMask {
    using Listed = ListedMask<config>;
    using Given = GivenMask<config>;
    struct Row {
        typename Listed::Row listed;
        typename Given::Row given;
    };
    struct Column {
        typename Listed::Column listed;
        typename Given::Column given;
    };
    const Listed lists;
    const Given function;

    __device__ __forceinline__ explicit ListedGivenMask(const FunctionArguments& given)
        : lists(given), function(given) {}
    __device__ __forceinline__ Row row_of(Index i) const { return {lists.row_of(i), function.row_of(i)}; }
    __device__ __forceinline__ Column column_of(Index j) const { return {lists.column_of(j), function.column_of(j)}; }
    __device__ __forceinline__ bool value(const Row& row, const Column& column) const {
        const BlockKind kind = Listed::kind(row.listed, column.listed);
        return kind == BlockKind::full || (kind == BlockKind::partial && function.value(row.given, column.given));
    }
};

template <KernelConfig config, bool kLists, bool kAlone>
struct ChosenMask {
    using Type = GivenMask<config>;
};
template <KernelConfig config>
struct ChosenMask<config, true, true> {
    using Type = ListedMask<config>;
};
template <KernelConfig config>
struct ChosenMask<config, true, false> {
    using Type = ListedGivenMask<config>;
};
template <KernelConfig config>
using MaskFunction = typename ChosenMask<config, config.block_lists, config.lists_alone>::Type;

}  // namespace flashtile
