// block_kinds.h: the bytes of shared/block_kinds.h, made of a call's lists of blocks before its kernels run.
#pragma once

#include <cstddef>

#include "core/problem.h"

namespace flashtile::cpu {

// How many bytes; none without lists.
std::size_t block_kinds_bytes(const Problem& problem);

// A byte for each (sequence, head, block of queries, block of keys), of sequences and heads that share lists once.
void write_block_kinds(const Problem& problem, const Operands& operands, unsigned char* kinds);

}  // namespace flashtile::cpu
