"""flashtile.append_kv: new keys and values to a cache, dense or paged, rotated by their positions."""

from __future__ import annotations

from typing import Any, Optional, Union

import torch
from torch import Tensor

from ._call import explain
from ._define import writing_operator
from ._forward_mode import forward_mode, refuse_forward_mode
from ._one_call import Function, call
from ._ops import eager
from ._options import CallOptions
from ._run import innermost, new_version
from ._structs import APPEND, APPEND_NAMES, SCALE_NAMES, Part
from ._while_tracing import run_between_graphs

_WRITTEN = {"k_cache": "a", "v_cache": "b", "q_out": "c"}
_WRITTEN_AT = tuple(map(APPEND_NAMES.index, _WRITTEN))
_PRESENT = ("k", "k_cache")
_TENSORS = ", ".join("Tensor" + (f"({_WRITTEN[name]}!)" if name in _WRITTEN else "") +
                     ("" if name in _PRESENT else "?") + f" {name}" for name in APPEND_NAMES)


_NAMES = (*APPEND_NAMES, *SCALE_NAMES[1:])
_NO_SCALES = (None, None, 0)


def _parts(options: CallOptions, begin: int, interleaved: bool, block: int) -> tuple[Part]:
    return (Part(APPEND, _NAMES, {"rotary_begin": begin, "rotary_interleaved": interleaved, "scale_block": block}),)


_FUNCTION = Function("append_kv", _parts, _NAMES,
                     {at: innermost for at, name in enumerate(APPEND_NAMES) if name not in _WRITTEN})
_SIDE_BY_SIDE = tuple(map(APPEND_NAMES.index, ("slots", "positions", "positions_q")))  # rows, as the library wants them
_ONE_POSITION, _EACH_ITS_OWN = (CallOptions,), (CallOptions, -1, -1, 1)  # recipes: without causal, and with it


def _append(*arguments: Any, scales: tuple[Optional[Tensor], Optional[Tensor], int] = _NO_SCALES) -> None:
    *tensors, begin, interleaved, one_position, check_values = arguments
    k_scale, v_scale, block = scales
    for at in _SIDE_BY_SIDE:
        if tensors[at] is not None:
            tensors[at] = tensors[at].contiguous()
    call(_FUNCTION, (*tensors, k_scale, v_scale), _ONE_POSITION if one_position else _EACH_ITS_OWN,
         (begin, interleaved, block), check_values=check_values)
    new_version(*(tensors[at] for at in _WRITTEN_AT))


_append_without_operator = run_between_graphs(_append)
append_op = writing_operator("append_kv", f"({_TENSORS}, SymInt rotary_begin, bool rotary_interleaved, "
                             "bool one_position, bool check_values) -> ()", _append)


@torch.no_grad()
def append_kv(
    k_cache: Tensor,
    v_cache: Optional[Tensor],
    k: Tensor,
    v: Optional[Tensor],
    *,
    cache_seqlens: Optional[Union[int, Tensor]] = None,
    block_table: Optional[Tensor] = None,
    slots: Optional[Tensor] = None,
    cache_batch_idx: Optional[Tensor] = None,
    cu_seqlens_k_new: Optional[Tensor] = None,
    rotary_cos: Optional[Tensor] = None,
    rotary_sin: Optional[Tensor] = None,
    rotary_interleaved: bool = False,
    rotary_begin: int = 0,
    rotary_offsets: Optional[Tensor] = None,
    positions: Optional[Tensor] = None,
    q: Optional[Tensor] = None,
    q_out: Optional[Tensor] = None,
    cu_seqlens_q: Optional[Tensor] = None,
    positions_q: Optional[Tensor] = None,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    k_scale: Optional[Tensor] = None,
    v_scale: Optional[Tensor] = None,
    scale_block: int = 0,
    check_values: bool = False,
) -> Optional[Tensor]:
    """Writes new keys and values into the caches, in place; no gradient.

    Sequence b has L = cache_seqlens[b] keys so far, and its new rows go behind them. cache_seqlens is not changed. What
    every argument means, to the position, stands in flashtile's docs/semantics.md.

    Args:
        k_cache, v_cache: dense (batch, seqlen, kv_heads, d), or with block_table or slots pages (num_pages, page_size,
            kv_heads, d); any strides with the innermost contiguous. v_cache and v are None where v is a view of k.
        k, v: (batch, seqlen_new, kv_heads, d), or with cu_seqlens_k_new packed (total_new, kv_heads, d).
        cache_seqlens: int32 or int64 (batch), or one number for all.
        block_table: int32 (batch, max_pages): the pages of each sequence.
        slots: int64, one a new row: page * page_size + row in it; -1 skips the row.
        cache_batch_idx: (batch): the row of a dense cache that each sequence has.
        rotary_cos, rotary_sin: (positions, angles), fp32, fp16 or bf16: keys are rotated, the n-th new one of a
            sequence at position L + n.
        rotary_interleaved: columns 2 n and 2 n + 1 are a pair; else n and n + angles.
        rotary_begin: the first column that is rotated.
        rotary_offsets: (batch): stands for L in positions. positions: one a new row, stands for all of it.
        q: (batch, seqlen_q, heads, d), packed with cu_seqlens_q: is rotated too, query i at L + i if there is causal or
            a window, else all at L; or at positions_q (or positions, where q has the rows that k has).
        q_out: where rotated queries are written, which may be q; a new tensor if None.
        k_scale, v_scale, scale_block: of caches of torch.float8_e4m3fn, as `flashtile.attention` has them: new keys
            and values are divided by them, and kept within 448.
        check_values: on CUDA, look whether lengths, pages, slots and positions are right, with a synchronisation.
            Without it rows that have no place are skipped there.

    Returns:
        The rotated queries; None without q.
    """
    if isinstance(cache_seqlens, int) and isinstance(k, Tensor):
        batch = k.shape[0] if cu_seqlens_k_new is None else cu_seqlens_k_new.shape[0] - 1
        cache_seqlens = torch.full((batch,), cache_seqlens, dtype=torch.int32, device=k.device)
    if q is not None and q_out is None:
        q_out = q.new_empty(q.shape) if isinstance(q, Tensor) else explain(q, "q")
    given = (k, v, k_cache, v_cache, block_table, slots, cache_batch_idx, cache_seqlens, cu_seqlens_k_new, rotary_cos,
             rotary_sin, rotary_offsets, positions, q, q_out, cu_seqlens_q, positions_q)
    for tensor, name in zip(given, APPEND_NAMES):
        if not isinstance(tensor, Tensor) and (tensor is not None or name in _PRESENT):
            explain(tensor, name)
    if forward_mode(given):
        refuse_forward_mode()
    numbers = (rotary_begin, bool(rotary_interleaved), not causal and tuple(window) == (-1, -1), bool(check_values))
    if k_scale is v_scale is None and scale_block == 0:
        (_append if eager(given) else append_op)(*given, *numbers)
    else:
        for tensor, name in ((k_scale, "k_scale"), (v_scale, "v_scale")):
            if tensor is not None and not isinstance(tensor, Tensor):
                explain(tensor, name)
        _append_without_operator(*given, *numbers, scales=(k_scale, v_scale, scale_block))
    return q_out
