"""flashtile.attention: the function for PyTorch tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Optional, TypedDict, Union, overload

import torch
from torch import Tensor

from ._arguments import blame_an_option, flag
from ._call import E4M3, INPUT_NAMES, explain
from ._functions import Functions
from ._ops import attend, deterministic as always_deterministic
from ._options import WHOLE, Recipe, of_attention, split_shard
from ._run import complete
from ._structs import ONE_FOR_ALL
from ._with_functions import Text, attend_with_functions, functions_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._append import Append
    from ._block_lists import BlockLists

Alignment = Literal["bottom-right", "top-left"]
BOTTOM_RIGHT, TOP_LEFT = 1, 2  # flashtile_causal


def draw(q: Tensor) -> Tensor:
    """The seed and offset of a call's dropout, from PyTorch's generator of q's device."""
    if not isinstance(q, Tensor):
        explain(q, "q")
    return torch.randint(torch.iinfo(torch.int64).max, (2,), device=q.device)


class Options(TypedDict, total=False):
    """attention's options, for those who read types: see there."""

    causal: bool
    window: tuple[int, int]
    align: Alignment
    scale: Optional[float]
    softcap: float
    alibi_slopes: Optional[Tensor]
    bias: Optional[Tensor]
    mask: Union[None, Tensor, Text]
    score: Optional[Text]
    tensors: Optional[dict[str, Tensor]]
    block_lists: Optional[BlockLists]
    dropout_p: float
    deterministic: bool
    batch_invariant: bool
    exact_max: bool
    cu_seqlens_q: Optional[Tensor]
    cu_seqlens_k: Optional[Tensor]
    max_seqlen_q: Optional[int]
    max_seqlen_k: Optional[int]
    seqused_k: Optional[Tensor]
    block_table: Optional[Tensor]
    cache_batch_idx: Optional[Tensor]
    first_k: Optional[Tensor]
    seqused_q: Optional[Tensor]
    tree_mask: Optional[Tensor]
    positions: Optional[Tensor]
    prefix_groups: Optional[Tensor]
    prefix_lengths: Optional[Tensor]
    append: Optional[Append]
    sinks: Optional[Tensor]
    attention_chunk: int
    num_splits: int
    sm_limit: int
    diagonal: Union[int, Tensor]
    origin: tuple[int, int, Union[int, Tensor], Union[int, Tensor]]
    q_scale: Optional[Tensor]
    k_scale: Optional[Tensor]
    v_scale: Optional[Tensor]
    scale_block: int
    out_dtype: Optional[torch.dtype]


_serving: Any = None  # the module, imported when it is first needed; an import statement that finds it takes 0.7 us


def _serve(given: tuple, serving: tuple, append: Optional[Append], recipe: Recipe, return_lse: bool,
           functions: Optional[Functions], named: tuple[Tensor, ...],
           scaled: Optional[tuple]) -> tuple[Tensor, Optional[Tensor]]:
    global _serving
    if _serving is None:
        from . import _serving
    if functions is scaled is None:
        return _serving.serve(given, serving, append, recipe, return_lse)
    scales = () if scaled is None else (_serving.Scales(*scaled),)
    return _serving.serve_without_operator(given, serving, append, recipe, return_lse, functions, named, *scales)


@overload
def attention(q: Tensor, k: Tensor, v: Tensor, *, return_lse: Literal[False] = False,
              **options: Unpack[Options]) -> Tensor: ...
@overload
def attention(q: Tensor, k: Tensor, v: Tensor, *, return_lse: Literal[True],
              **options: Unpack[Options]) -> tuple[Tensor, Tensor]: ...


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    align: Alignment = "bottom-right",
    scale: Optional[float] = None,
    softcap: float = 0.0,
    alibi_slopes: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    mask: Union[None, Tensor, Text] = None,
    score: Optional[Text] = None,
    tensors: Optional[dict[str, Tensor]] = None,
    block_lists: Optional[BlockLists] = None,
    dropout_p: float = 0.0,
    deterministic: bool = False,
    batch_invariant: bool = False,
    exact_max: bool = False,
    cu_seqlens_q: Optional[Tensor] = None,
    cu_seqlens_k: Optional[Tensor] = None,
    max_seqlen_q: Optional[int] = None,
    max_seqlen_k: Optional[int] = None,
    seqused_k: Optional[Tensor] = None,
    block_table: Optional[Tensor] = None,
    cache_batch_idx: Optional[Tensor] = None,
    first_k: Optional[Tensor] = None,
    seqused_q: Optional[Tensor] = None,
    tree_mask: Optional[Tensor] = None,
    positions: Optional[Tensor] = None,
    prefix_groups: Optional[Tensor] = None,
    prefix_lengths: Optional[Tensor] = None,
    append: Optional[Append] = None,
    sinks: Optional[Tensor] = None,
    attention_chunk: int = 0,
    num_splits: int = 0,
    sm_limit: int = 0,
    diagonal: Union[int, Tensor] = 0,
    origin: tuple[int, int, Union[int, Tensor], Union[int, Tensor]] = WHOLE,
    q_scale: Optional[Tensor] = None,
    k_scale: Optional[Tensor] = None,
    v_scale: Optional[Tensor] = None,
    scale_block: int = 0,
    out_dtype: Optional[torch.dtype] = None,
    return_lse: bool = False,
) -> Union[Tensor, tuple[Tensor, Tensor]]:
    """Exact attention, softmax(mask(scale * q k^T + ...)) v, in memory linear in the sequence length.

    FlashAttention-2 (arXiv 2307.08691), on CPU and CUDA tensors, differentiable in q, k, v, bias and sinks, and through
    lse.
    Every option's meaning, to the sign, stands in flashtile's docs/semantics.md.

    Args:
        q: (batch, seqlen_q, heads, head_dim); fp32, fp16, bf16 or, without a gradient, float8_e4m3fn. Any strides; a copy is made only where the innermost
            dimension is not contiguous.
        k: (batch, seqlen_k, kv_heads, head_dim), where heads is a multiple of kv_heads (GQA, MQA).
        v: (batch, seqlen_k, kv_heads, head_dim_v).
        causal: a query sees no later key, as `align` lays the diagonal.
        window: (left, right): query i sees the keys from i - left to i + right, inclusive, of the diagonal; -1 is open.
        align: where the diagonal of causal, window and ALiBi lies if lengths differ: "bottom-right", the last query
            sees the last key (flash-attn), or "top-left", query i sees keys 0..i (PyTorch).
        scale: of the scores; 1/sqrt(head_dim) if None.
        softcap: c, from 1e-30, makes a score s into c * tanh(s / c); 0 is off.
        alibi_slopes: fp32 (heads) or (batch, heads): -slope * |distance to the diagonal| is added to a score.
        bias: added to the scores; broadcasts to (batch, heads, seqlen_q, seqlen_k); q's dtype or fp32. Its gradient
            has its own shape.
        mask: bool, broadcasts likewise; True keeps. Or a mask function: a text in the language of flashtile's
            docs/functions.md, as "i >= j || document[b, j] == 0", or a function of Python's, mask(b, h, i, j). What it
            hides in whole blocks costs nothing.
        score: a score function, "s - slopes[h] * abs(i - j)" or score(s, b, h, i, j), which takes the place of a score
            before the masks. A function of Python's is called with tensors of one element, and may read others by them,
            as slopes[h]; of floats these get a gradient where they require one. It is written as a text at each call,
            in some 50 us an operation.
        tensors: by their names the tensors that texts name; to 4 dimensions. Of floats they get a gradient likewise.
        block_lists: a `flashtile.BlockLists`: the blocks of the scores that are seen.
        dropout_p: the probability with which a normalised probability is dropped. The mask is drawn from PyTorch's
            generator of q's device, and drawn again in backward, never stored.
        deterministic: gradients that are the same bit for bit at each call. Also on where
            torch.use_deterministic_algorithms is.
        batch_invariant: a row's bits depend on its own query, keys and values only, not on the rest of the batch.
        exact_max: on CUDA the accuracy of a row's maximum taken at every block of keys, for 5 to 13% of the speed.
        cu_seqlens_q, cu_seqlens_k: int32 or int64 (batch + 1): packed sequences. q is (total_q, heads, head_dim) then,
            k and v (total_k, kv_heads, ..), and sequence b is the rows from cu_seqlens[b] to cu_seqlens[b + 1].
        max_seqlen_q, max_seqlen_k: the longest lengths of packed sequences.
        seqused_k: int32 (batch): how many keys of each sequence are used.
        num_splits: of a sequence's keys, with few queries; 0 is the library's choice.
        sm_limit: on CUDA, at most so many multiprocessors, which leaves the others to other work; 0 is all. No gradient
            there.
        diagonal, origin: q, k and v are a shard of a problem. The diagonal of causal, window and ALiBi is shifted by
            `diagonal` keys; origin, (b, h, i, j), is where the shard's first sequence, head, query and key lie in the
            whole problem, by whose coordinates dropout draws. flashtile.merge makes one result of those of all keys.
            diagonal, i and j may be int64 (batch) on q's device: each sequence then has its own.
        sinks: (heads), fp32 or q's dtype: a score more in each softmax's denominator, which lse counts. Its gradient
            has its dtype.
        attention_chunk: c, from 1: a query sees keys of its own chunk of c positions only (Llama 4); 0 is off.

        These have no gradient:

        block_table: int32 (batch, max_pages): k and v are pages (num_pages, page_size, kv_heads, ..) of a cache, and
            key j of sequence b is row j % page_size of page block_table[b, j // page_size]; seqused_k says lengths. q
            is dense, or packed by cu_seqlens_q alone.
        cache_batch_idx: (batch): k and v are a cache (rows, seqlen_k, kv_heads, ..); the row of each sequence.
        first_k: int32 (batch): keys before it are hidden, as left padding is; no position moves.
        seqused_q: int32 (batch): how many queries of each sequence are used; the rest of out is zero.
        tree_mask: bool (batch or 1, heads or 1, seqlen_q, seqlen_q), to 64 queries: which of a sequence's last seqlen_q
            keys each query sees (speculative decoding).
        positions: int32 (batch, seqlen_q), packed (total_q), beside tree_mask: where causal, windows, chunks and ALiBi
            take a query, and its key, to be.
        prefix_groups, prefix_lengths: int32 (groups + 1) and (groups), with block_table: the sequences from
            prefix_groups[g] to before prefix_groups[g + 1] share their first prefix_lengths[g] keys, in the pages of
            the first of them.
        append: a `flashtile.Append`: new keys and values that are written to the cache first.
        q_scale, k_scale, v_scale: fp32, what q, k and v are multiplied by where they are torch.float8_e4m3fn (all of
            them, or k and v beside a 16-bit q): one number (), (batch, kv_heads), or with scale_block (batch, heads of
            the tensor, ceil(seqlen / scale_block)), packed (heads, blocks of all sequences), of a cache (num_pages,
            kv_heads, ceil(page_size / scale_block)). `flashtile.quantize` makes them.
        scale_block: 64 or 128: how many rows of a head share a scale; 0: scales are for more than that.
        out_dtype: of out: q's, or torch.float32; of a float8 q torch.bfloat16 (the default), torch.float16 or
            torch.float32.
        return_lse: return lse too.

    Returns:
        out, like q with v's head_dim; with return_lse (out, lse), where lse is fp32 (batch, heads, seqlen_q), or
        (heads, total_q) when packed: the natural logarithm of the sum of the scores' exponentials. A query that sees no
        key has out 0, lse -inf and zero gradients.

    Raises:
        ValueError: an argument is wrong: the message names it, its value and what is allowed.
        TypeError: not a tensor, or a dtype or device that flashtile does not have.
        RuntimeError: a device or compiler failed; NotImplementedError: legal, but nothing here can do it.
    """
    if not (type(causal) is type(deterministic) is type(batch_invariant) is type(exact_max)
            is type(return_lse) is bool):
        causal, return_lse = flag("causal", causal), flag("return_lse", return_lse)
        deterministic = flag("deterministic", deterministic)
        batch_invariant, exact_max = flag("batch_invariant", batch_invariant), flag("exact_max", exact_max)
    functions, named = None, ()
    if not (score is tensors is block_lists is None and (mask is None or isinstance(mask, Tensor))):
        functions, named, mask = functions_of(score, mask, tensors, block_lists, q)
    given: tuple[Any, ...] = (q, k, v)
    number, corner, each = diagonal, origin, ONE_FOR_ALL
    try:
        # written out, since compilers of PyTorch's cannot compare tuples that may hold tensors
        if type(diagonal) is not int or len(origin) != len(WHOLE) or not all(type(at) is int for at in origin):
            number, corner, each = split_shard(diagonal, origin, Tensor)
        if not (alibi_slopes is bias is mask is cu_seqlens_q is cu_seqlens_k is seqused_k is sinks is None
                and each is ONE_FOR_ALL):
            given = (q, k, v, alibi_slopes, bias, mask, cu_seqlens_q, cu_seqlens_k, seqused_k, sinks, *each)
        recipe = (of_attention, causal, window if type(window) is tuple else tuple(window), align, scale, softcap,
                  dropout_p, deterministic or always_deterministic(), batch_invariant, exact_max, max_seqlen_q,
                  max_seqlen_k, attention_chunk, num_splits, sm_limit, number, corner)
        scaled = None
        if not (q_scale is k_scale is v_scale is out_dtype is None and scale_block == 0 and k.dtype is not E4M3):
            scaled = (q_scale, k_scale, v_scale, scale_block, out_dtype)
        if scaled is not None or (cu_seqlens_q is not None and cu_seqlens_k is None) or not (
                block_table is cache_batch_idx is first_k is seqused_q is tree_mask is positions is prefix_groups
                is prefix_lengths is append is None):
            if dropout_p != 0.0:
                raise NotImplementedError(
                    "dropout_p is given with a cache, float8_e4m3fn or another argument of serving: allowed is 0")
            serving = (block_table, cache_batch_idx, first_k, seqused_q, tree_mask, positions, prefix_groups,
                       prefix_lengths)
            out, lse = _serve(complete(given), serving, append, recipe, return_lse, functions, named,
                              scaled)
        elif functions is not None:
            out, lse = attend_with_functions(given, functions, named, recipe, draw(q) if dropout_p != 0.0 else None)
        else:
            out, lse = attend(given, recipe, draw(q) if dropout_p != 0.0 else None, return_lse)
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError):
        for tensor, name in zip(given, INPUT_NAMES):
            if not isinstance(tensor, Tensor) and (tensor is not None or name in ("q", "k", "v")):
                explain(tensor, name)
        blame_an_option(align=align, window=window, scale=scale, softcap=softcap, dropout_p=dropout_p, causal=causal,
                        max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, deterministic=deterministic,
                        batch_invariant=batch_invariant, exact_max=exact_max, attention_chunk=attention_chunk,
                        num_splits=num_splits, sm_limit=sm_limit, diagonal=number, origin=corner)
        raise
    return (out, lse) if return_lse else out
