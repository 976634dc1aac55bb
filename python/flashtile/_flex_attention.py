"""PyTorch's flex_attention on flashtile, as a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional, Union

import torch
from torch import Tensor

from ._attention import attention
from ._block_lists import BlockLists
from ._call import explain
from ._ops import attend, deterministic
from ._options import CallOptions
from ._while_tracing import run_between_graphs

_LEAST_BLOCK = 64  # the library's blocks are multiples of it
_NO_BLOCKS = 1 << 30  # the block size of masks without blocks; PyTorch calls it _LARGE_SPARSE_BLOCK_SIZE


@run_between_graphs
def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Optional[Callable[..., Any]] = None,
    block_mask: Any = None,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Optional[dict[str, Any]] = None,
    *,
    return_aux: Any = None,
) -> Union[Tensor, tuple[Tensor, Any]]:
    """torch.nn.attention.flex_attention.flex_attention, on flashtile, with a gradient on the CPU too.

    Args:
        query: (batch, heads, seqlen_q, head_dim); key, value: (batch, kv_heads, seqlen_k, ..).
        score_mod: score_mod(score, b, h, q_idx, kv_idx), as `flashtile.attention` takes it for `score`.
        block_mask: a torch.nn.attention.flex_attention.BlockMask, with its lists: blocks that are not listed are
            hidden, and in those that are listed as full the mask_mod does not count. Blocks may have any size.
        scale: 1/sqrt(head_dim) if None.
        enable_gqa: key and value may have fewer heads than query.
        return_lse: return lse too, the natural logarithm.
        kernel_options: not read.
        return_aux: an AuxRequest; lse alone can be had.

    Returns:
        (batch, heads, seqlen_q, value's head_dim); with return_lse (out, lse), with return_aux (out, AuxOutput). Rows
        that see no key are 0, and their lse is -inf.

    Other than in PyTorch:
        gradients of tensors that a function reads are added up in fp64, and always the same bits;
        a function is computed in fp32 and ints of 64 bits, whatever dtypes it asks for;
        an index outside of a tensor reads 0, one from -1 down to -size aside, which counts from the end;
        in compiled code the call stands between graphs.

    Raises:
        as `flashtile.attention`; ValueError where PyTorch says that the arguments do not go together, and on the CPU
        where a block_mask lists a block twice or one that is none.
    """
    for tensor, name in ((query, "query"), (key, "key"), (value, "value")):
        if not isinstance(tensor, Tensor):
            explain(tensor, name)
        if tensor.dim() != 4:
            raise ValueError(f"{name} has {tensor.dim()} dimensions, allowed are 4")
    if return_lse and return_aux is not None:
        raise ValueError("return_lse and return_aux are both given, allowed is one of them")
    if return_aux is not None and getattr(return_aux, "max_scores", False):
        raise NotImplementedError("return_aux asks for max_scores, allowed is lse")
    heads, kv_heads = query.shape[1], key.shape[1]
    if heads != kv_heads and not enable_gqa:
        raise ValueError(f"key has {kv_heads} heads, allowed without enable_gqa is query's {heads}")
    mask = lists = None
    if block_mask is not None:
        _check(block_mask, query, key)
        mask, lists = _mask_and_lists(block_mask)
        if key.shape[0] == value.shape[0] == 1:
            key, value = (tensor.expand(query.shape[0], -1, -1, -1) for tensor in (key, value))
    if score_mod is mask is lists is None:
        out, lse = attend((query, key, value), (_options, scale, deterministic()), None, heads_first=True)
    else:
        out, lse = attention(*(tensor.transpose(1, 2) for tensor in (query, key, value)), score=score_mod, mask=mask,
                             block_lists=lists, scale=scale, return_lse=True)
        out = out.transpose(1, 2)
    if return_aux is not None:
        from torch.nn.attention.flex_attention import AuxOutput

        return out, AuxOutput(lse=lse if return_aux.lse else None)
    return (out, lse) if return_lse else out


def _options(scale: Optional[float], deterministic: bool) -> CallOptions:
    return CallOptions(scale=scale, deterministic=deterministic)


def _check(block_mask: Any, query: Tensor, key: Tensor) -> None:
    """Refuses a mask that was made for other lengths."""
    lengths = query.shape[2], key.shape[2]
    if not _without_blocks(block_mask) and tuple(block_mask.shape[-2:]) != lengths:
        raise ValueError(f"block_mask was made for {tuple(block_mask.shape[-2:])} queries and keys, allowed are the "
                         f"{lengths} that query and key have: make another one")
    if key.shape[0] != query.shape[0] and block_mask.kv_num_blocks.shape[0] != query.shape[0]:
        raise ValueError(f"key's batch is {key.shape[0]}, allowed is query's {query.shape[0]}, or 1 with a block_mask "
                         "of query's")


def _without_blocks(block_mask: Any) -> bool:
    return min(block_mask.BLOCK_SIZE) >= _NO_BLOCKS


def _mask_and_lists(block_mask: Any) -> tuple[Optional[Callable[..., Any]], Optional[BlockLists]]:
    """The mask function, and the lists as the library takes them; or, where blocks are of a size that it does not take,
    a function that hides what they do."""
    from torch.nn.attention.flex_attention import noop_mask

    mask_mod = block_mask.mask_mod
    mask = None if mask_mod is noop_mask else mask_mod
    if _without_blocks(block_mask):
        return mask, None
    if any(size % _LEAST_BLOCK for size in block_mask.BLOCK_SIZE):
        return _mask_by_blocks(block_mask, mask), None
    lists = (block_mask.kv_num_blocks, block_mask.kv_indices, block_mask.full_kv_num_blocks, block_mask.full_kv_indices)
    for_all = (of if of is None else of.reshape(*(1,) * (rank - of.dim()), *of.shape)
               for of, rank in zip(lists, (3, 4, 3, 4)))
    return mask, BlockLists(*for_all, block_size=tuple(block_mask.BLOCK_SIZE))


def _mask_by_blocks(block_mask: Any, mask_mod: Optional[Callable[..., Any]]) -> Callable[..., Any]:
    """The mask function: the mask_mod in blocks that are listed as partial ones, true in full ones."""
    rows, columns = block_mask.BLOCK_SIZE
    width = -(-block_mask.shape[-1] // columns)
    kinds = 1 * _listed(block_mask.kv_num_blocks, block_mask.kv_indices, width, "kv_indices")
    if block_mask.full_kv_num_blocks is not None:
        full = _listed(block_mask.full_kv_num_blocks, block_mask.full_kv_indices, width, "full_kv_indices")
        if kinds.device.type == "cpu" and bool((full & (kinds > 0)).any()):
            raise ValueError("block_mask lists a block in kv_indices and in full_kv_indices, allowed is one of them")
        kinds = kinds.masked_fill(full, 2)
    kinds = kinds.reshape(*(1,) * (4 - kinds.dim()), *kinds.shape).to(torch.int32)

    def mask(b: Any, h: Any, i: Any, j: Any) -> Any:
        kind = kinds[b if kinds.shape[0] > 1 else 0, h if kinds.shape[1] > 1 else 0, i // rows, j // columns]
        return kind > 0 if mask_mod is None else (kind == 2) | ((kind == 1) & mask_mod(b, h, i, j))

    return mask


def _listed(counts: Tensor, indices: Tensor, width: int, name: str) -> Tensor:
    """Whether each of `width` blocks is among the first `counts` indices of its row. Later ones are not read. What
    names no block counts for nothing on a GPU, whose lists the host does not read."""
    named = torch.arange(indices.shape[-1], device=indices.device) < counts[..., None]
    places = torch.where(named & (indices >= 0) & (indices < width), indices, width).long()
    listed = torch.zeros(*counts.shape, width + 1, dtype=torch.bool, device=indices.device)
    listed = listed.scatter_(-1, places, True)[..., :width]
    if counts.device.type == "cpu" and not torch.equal(listed.sum(-1), counts.to(torch.int64)):
        raise ValueError(f"block_mask's {name} has a row whose first entries, as many as its count says, are not "
                         f"distinct blocks from 0 to {width - 1}")
    return listed
