// block_kinds.cpp: see block_kinds.h.
#include "cpu/block_kinds.h"

#include <cstdint>
#include <cstring>

#include "functions/functions.h"
#include "shared/block_kinds.h"

namespace flashtile::cpu {

std::size_t block_kinds_bytes(const Problem& p) {
    if (p.block_q == 0) return 0;
    return static_cast<std::size_t>(p.list_batch * p.list_heads * p.query_blocks() * p.key_blocks());
}

void write_block_kinds(const Problem& p, const Operands& x, unsigned char* kinds) {
    const BlockKind partial = functions::has_mask(p.functions) ? BlockKind::partial : BlockKind::full;
    std::memset(kinds, static_cast<int>(BlockKind::hidden), block_kinds_bytes(p));
    unsigned char* row_kinds = kinds;
    for (std::int64_t b = 0; b < p.list_batch; ++b)
        for (std::int64_t h = 0; h < p.list_heads; ++h)
            for (std::int64_t row = 0; row < p.query_blocks(); ++row, row_kinds += p.key_blocks()) {
                const auto mark = [&](const BlockList& list, BlockKind kind) {
                    if (list.counts == nullptr) return;
                    const std::int64_t count = list.counts[list.count_at(b, h, row)];
                    for (std::int64_t n = 0; n < count; ++n)
                        row_kinds[list.indices[list.index_at(b, h, row, n)]] = static_cast<unsigned char>(kind);
                };
                mark(x.partial_blocks, partial);
                mark(x.full_blocks, BlockKind::full);
            }
}

}  // namespace flashtile::cpu
