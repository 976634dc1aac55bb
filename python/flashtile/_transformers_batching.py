"""transformers' continuous batching on flashtile: packed queries on a paged cache (generate_batch, `transformers serve`).

For such a model transformers asks in three places whether its attention is a build of flash-attn: one that needs no
mask, takes lengths of packed sequences and reads the cache itself. flashtile does, so there the answer is yes. The path
for decoding alone, which calls flash-attn by name, asks for a version of it and is still not taken.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor

from ._append import Append

_ASKING = ("cache", "continuous_api", "initialization")


def accept(name: str) -> None:
    """Has continuous batching take the attention of that name."""
    for asking in _ASKING:
        module = importlib.import_module(f"transformers.generation.continuous_batching.{asking}")
        module.is_flash_attention_requested = _packs(module.is_flash_attention_requested, name)


def _packs(is_flash: Callable, name: str) -> Callable:
    @functools.wraps(is_flash)
    def is_flash_attention_requested(config: Any = None, requested_attention_implementation: Any = None,
                                     version: Any = None) -> bool:
        asked = requested_attention_implementation if config is None else config._attn_implementation
        if asked == name and version is None:
            return True
        return is_flash(config, requested_attention_implementation, version)

    return is_flash_attention_requested


def pages(cache: Any, layer: int, key: Tensor, value: Tensor, cu_seqlens_q: Tensor,
          kwargs: dict[str, Any]) -> Optional[tuple[Tensor, Tensor, dict[str, Any]]]:
    """A layer's keys and values where they lie in the cache, and the arguments by which attention appends the new ones
    and reads them all; None where cache.update must copy them. Where no sequence has old keys nothing is copied anyway.

    The cache says by an index where each row of each sequence lies. Its blocks have a page for keys and one for values
    of each layer, one after the other; `stride` is from a layer's page to that of the next block, in rows.
    """
    allocator = getattr(cache, "layer_to_allocator", {}).get(layer)
    if allocator is None:
        return None
    read, write = kwargs["read_index"][allocator.index], kwargs["write_index"][allocator.index]
    longest = kwargs["max_length_k"][allocator.layer_type]
    if read.numel() == 0 or not (allocator.supports_block_table or _ring_is_readable(allocator, longest)):
        return None
    if not allocator.supports_block_table:  # where a window's new rows go is not in its index of rows to read
        read = read.masked_scatter(read == allocator.sentinel_index, write)
    starts = kwargs["cu_seq_lens_k"][allocator.layer_type]
    k_pages, v_pages = allocator._kv_page_views[layer]  # get_cache_for_block_table refuses windows
    size, stride, lengths = k_pages.shape[1], allocator.block_physical_stride, starts.diff()
    k_pages, v_pages = k_pages[::stride // size], v_pages[::stride // size]
    # A length that the host knows: on CUDA the model may be captured in a graph, which may not wait.
    first_rows = torch.arange(0, longest, size, device=read.device)
    # Past a sequence's end the table is not read, so any row of the index will do there.
    table = read[(starts[:-1, None] + first_rows).clamp(max=read.numel() - 1)] // stride
    slots = write // stride * size + write % stride
    new = Append(key[0].transpose(0, 1), value[0].transpose(0, 1), slots=slots, cu_seqlens_k_new=cu_seqlens_q)
    return k_pages, v_pages, {"block_table": table.int(), "append": new,
                              "seqused_k": (lengths - cu_seqlens_q.diff()).int()}


def _ring_is_readable(allocator: Any, longest: int) -> bool:
    """Whether a window's keys, of at most `longest` a sequence with the new ones, can be read where they lie.

    They lie in a ring of as many rows as the window has keys, position p in row p % window. Up to a window of keys,
    a sequence has either not been around its ring, and its rows ascend, or has a single query, which sees the whole
    ring: then neither causal nor the window hides a row, and their order does not matter. That order is of pages as a
    table can name them, beginning where the oldest key is, where pages divide the ring or one page holds it. A longer
    sequence has several queries, and its new keys lie over old ones that the first of these see.
    """
    window, size = getattr(allocator, "sliding_window", 0), allocator.tokens_per_page
    return longest < window or (longest == window and (window % size == 0 or window < size))
