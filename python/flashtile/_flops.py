"""How many floating-point operations flashtile's operators take, for torch.utils.flop_counter.FlopCounterMode.

They are counted as PyTorch counts those of its own attention, so that the two can be compared: matrix products only, of
every query with every key whatever the mask, two products forward and five backward.
"""

from __future__ import annotations

from typing import Any, Optional

from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.flop_counter import register_flop_formula


def register(forward: Any, backward: Any) -> None:
    """Registers the formulas of the two operators. A FlopCounterMode copies the formulas when it is made, and flashtile
    may be imported after that, so the formulas are given to modes that are active already, too."""
    for operator, formula in ((forward, _forward_flops), (backward, _backward_flops)):
        register_flop_formula(operator, get_raw=True)(formula)
        for mode in _get_current_dispatch_mode_stack():
            known = getattr(getattr(mode, "counter", None), "flop_registry", None)
            if known is not None:
                known[operator] = formula


def _forward_flops(q: Tensor, k: Tensor, v: Tensor, *rest: Any, **_: Any) -> int:
    d, dv = q.shape[-1], v.shape[-1]
    return 2 * _pairs(q, k, *rest[3:8]) * (d + dv)


def _backward_flops(q: Tensor, k: Tensor, v: Tensor, *rest: Any, **_: Any) -> int:
    d, dv = q.shape[-1], v.shape[-1]
    return 2 * _pairs(q, k, *rest[3:8]) * (3 * d + 2 * dv)


def _pairs(q: Tensor, k: Tensor, cu_seqlens_q: Optional[Tensor], cu_seqlens_k: Optional[Tensor], _: Any,
           max_seqlen_q: int, max_seqlen_k: int) -> int:
    """How many pairs of a query and a key there are, over batch and heads."""
    if cu_seqlens_q is None or cu_seqlens_k is None:
        return q.shape[0] * q.shape[2] * q.shape[1] * k.shape[1]
    lengths = zip(_lengths(cu_seqlens_q, max_seqlen_q), _lengths(cu_seqlens_k, max_seqlen_k))
    return q.shape[1] * sum(rows * columns for rows, columns in lengths)


def _lengths(cu_seqlens: Tensor, longest: int) -> list[int]:
    """Each sequence's length. Meta tensors have no values, so there every sequence counts as long as the longest."""
    return [longest] * (cu_seqlens.shape[0] - 1) if cu_seqlens.is_meta else cu_seqlens.diff().tolist()
