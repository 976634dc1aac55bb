"""Pages of a KV cache: (num_pages, page_size, nheads_k, d), named for each sequence by a block table."""

from __future__ import annotations

import torch
from torch import Tensor


def rows_of_pages(cache: Tensor, block_table: Tensor) -> Tensor:
    """(batch, pages x page_size, nheads_k, d): a copy of each sequence's pages. Entries of the table past a sequence's
    end may be anything."""
    pages = block_table.long().clamp(0, max(cache.shape[0] - 1, 0))
    return cache[pages].flatten(1, 2)
