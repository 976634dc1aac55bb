"""flashtile.merge: partial results, of which each attended to some of the keys, to the result of attending to all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, Optional, Union

import torch
from torch import Tensor

from ._call import explain
from ._define import operator
from ._forward_mode import refuse_forward_mode
from ._one_call import Function, call
from ._ops import eager, transformed
from ._run import innermost
from ._structs import MERGE, MERGE_NAMES, Part

_FUNCTION = Function("merge", lambda options: (Part(MERGE, MERGE_NAMES),), MERGE_NAMES, {0: innermost, 1: innermost})


def _merge(outs: Tensor, lses: Tensor, dtype: Optional[torch.dtype]) -> tuple[Tensor, Tensor]:
    out, lse = _results(outs, lses, dtype)
    call(_FUNCTION, (outs, lses, out, lse))
    return out, lse


def _results(outs: Tensor, lses: Tensor, dtype: Optional[torch.dtype]) -> tuple[Tensor, Tensor]:
    return outs.new_empty(outs.shape[1:], dtype=dtype), lses.new_empty(lses.shape[1:])


def _remember(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:2], *output)


def _rows(x: Tensor) -> Tensor:
    """A number for each (.., heads, seqlen), beside rows of (.., seqlen, heads, head_dim)."""
    return x.transpose(-1, -2).unsqueeze(-1)


def _differentiate(ctx: Any, dout: Optional[Tensor], dlse: Optional[Tensor]) -> tuple[Optional[Tensor], ...]:
    """With w_i = exp(lse_i - lse): dout_i = w_i dout, dlse_i = w_i (dlse + dout . (out_i - out)); 0 for empty parts."""
    outs, lses, out, lse = ctx.saved_tensors
    empty = lses == float("-inf")
    weights = torch.where(empty, 0.0, torch.exp(lses - lse))
    douts, inner = None, None if dlse is None else dlse.expand_as(lses)
    if dout is not None:
        douts = (_rows(weights) * dout.float()).to(outs.dtype)
        products = (dout.float() * (outs.float() - out.float())).sum(-1).transpose(-1, -2)
        inner = products if inner is None else inner + products
    dlses = None if inner is None else torch.where(empty, 0.0, weights * inner)
    return douts, dlses, None


merge_op = operator("merge", "(Tensor outs, Tensor lses, ScalarType? dtype) -> (Tensor, Tensor)", _merge, _results,
                    _differentiate, _remember)


class _Transformed(torch.autograd.Function):
    """merge_op for torch.func's transforms, which cannot use the autograd that an operator is registered with."""

    generate_vmap_rule = True
    forward = staticmethod(merge_op)
    setup_context = staticmethod(_remember)
    backward = staticmethod(_differentiate)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> NoReturn:
        refuse_forward_mode()


def _stacked(parts: Union[Tensor, Sequence[Tensor]], name: str) -> Tensor:
    if isinstance(parts, Tensor):
        return parts
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, Tensor) for part in parts):
        explain(parts, name)
    return torch.stack(tuple(parts))


def merge(outs: Union[Tensor, Sequence[Tensor]], lses: Union[Tensor, Sequence[Tensor]], *,
          dtype: Optional[torch.dtype] = None) -> tuple[Tensor, Tensor]:
    """Merges n partial results of attention by their lse: lse = log(sum of exp(lse_i)), out = sum of exp(lse_i - lse)
    out_i.

    Each part attended to some of the keys; the result is that of attending to all. Differentiable in outs and lses.

    Args:
        outs: (n, batch, seqlen, heads, head_dim), packed (n, total, heads, head_dim); fp32, fp16 or bf16. Or n tensors,
            which are copied side by side.
        lses: (n, batch, heads, seqlen), packed (n, heads, total); fp32. Or n tensors.
        dtype: of out; that of outs if None.

    Returns:
        (out, lse), in the shapes of one part. A part whose lse is -inf counts for nothing, whatever is in its out;
        where all are so, out is 0 and lse -inf.
    """
    given = outs, lses, dtype = _stacked(outs, "outs"), _stacked(lses, "lses"), dtype
    if eager((outs, lses)) and not (torch.is_grad_enabled() and (outs.requires_grad or lses.requires_grad)):
        return _merge(*given)
    return _Transformed.apply(*given) if transformed() else merge_op(*given)
