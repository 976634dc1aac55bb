// moves.h: how many elements and bytes the CPU backend moves between slow and fast memory (src/cpu/kernels/moves.h says
// which is which), counted by its own kernels, which walk the tasks of a plan.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/backend.h"
#include "cpu/moved.h"

namespace flashtile::counting {

// One pass for one key head and the query heads that share it.
struct CountedPass {
    Pass pass = Pass::forward;
    DType dtype = DType::fp32;
    std::int64_t group = 1;  // query heads
    std::int64_t N = 0;      // queries, and keys
    std::int64_t d = 0;      // head dimension
    bool causal = false;
    std::int64_t task_rows = 0;  // queries of a task of forward, keys of one of backward
};

struct TensorMoves {
    std::int64_t loads = 0;  // elements
    std::int64_t stores = 0;
    std::int64_t bytes = 0;  // of both

    void add(const TensorMoves& more, std::int64_t times) {
        loads += times * more.loads;
        stores += times * more.stores;
        bytes += times * more.bytes;
    }
};

struct Moves {
    std::array<TensorMoves, static_cast<std::size_t>(Moved::dv) + 1> of{};
    std::size_t scratch = 0;  // bytes of a task

    TensorMoves& operator[](Moved what) { return of[static_cast<std::size_t>(what)]; }
    const TensorMoves& operator[](Moved what) const { return of[static_cast<std::size_t>(what)]; }
    TensorMoves all() const {
        TensorMoves sum;
        for (const TensorMoves& one : of) sum.add(one, 1);
        return sum;
    }
    void add(const Moves& more, std::int64_t times) {
        for (std::size_t n = 0; n < of.size(); ++n) of[n].add(more.of[n], times);
        scratch = std::max(scratch, more.scratch);
    }
};

Moves count_moves(const CountedPass& pass);

}  // namespace flashtile::counting
