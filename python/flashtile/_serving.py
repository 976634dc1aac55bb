"""What serving asks of attention: keys and values in a cache, sinks, chunks and trees. One call of flashtile_forward,
without a gradient; flashtile.attention comes here where it gets one of these arguments."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from ._call import explain
from ._define import writing_operator
from ._forward_mode import forward_mode, refuse_forward_mode
from ._one_call import call
from ._ops import eager
from ._options import CallOptions, schema
from ._run import innermost
from ._structs import INPUT_NAMES, INPUTS, RESULTS, SERVING_NAMES

_NAMES = (*INPUT_NAMES, *SERVING_NAMES)
_TENSORS = ", ".join(f"{'Tensor' if name in ('q', 'k', 'v') else 'Tensor?'} {name}" for name in _NAMES)
_COPIED = ("q", "k", "v")  # where the innermost dimension is not contiguous


def _serve(*arguments: Any) -> None:
    tensors = {name: innermost(tensor) if name in _COPIED else tensor for name, tensor in zip(_NAMES, arguments)}
    *values, num_splits, attention_chunk, out, lse = arguments[len(_NAMES):]
    options = CallOptions(*values)
    call("forward", [INPUTS, RESULTS["forward"]], {**tensors, "out": out, "lse": lse}, options,
         {"num_splits": num_splits, "attention_chunk": attention_chunk}, max_seqlen_q=options.max_seqlen_q,
         max_seqlen_k=options.max_seqlen_k)


serve_op = writing_operator("serve", f"({_TENSORS}, {schema()}, int num_splits, SymInt attention_chunk, "
                            "Tensor(a!) out, Tensor(b!)? lse) -> ()", _serve)


def serve(given: tuple[Optional[Tensor], ...], serving: tuple[Optional[Tensor], ...], options: CallOptions,
          num_splits: int, attention_chunk: int, return_lse: bool) -> tuple[Tensor, Optional[Tensor]]:
    """`given` are the tensors of INPUT_NAMES, `serving` those of SERVING_NAMES."""
    tensors = (*given, *serving)
    for tensor, name in zip(tensors, _NAMES):
        if not isinstance(tensor, Tensor) and (tensor is not None or name in _COPIED):
            explain(tensor, name)
    if forward_mode(tensors):
        refuse_forward_mode()
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        named = [name for name, t in zip(SERVING_NAMES, serving) if t is not None] + \
                (["attention_chunk"] if attention_chunk else []) + (["num_splits"] if num_splits else [])
        raise NotImplementedError(f"attention has no gradient with {', '.join(named) or 'a cache'}: call it under "
                                  "torch.no_grad()")
    q, v = given[0], given[2]
    assert q is not None and v is not None
    packed, cut = q.dim() == 3, given[6] is not None or serving[3] is not None
    # Rows that the library does not write, of no sequence or past seqused_q, are zero.
    new = q.new_zeros if cut else q.new_empty
    out = new((*q.shape[:-1], v.shape[-1]))
    shape = (q.shape[1], q.shape[0]) if packed else (q.shape[0], q.shape[2], q.shape[1])
    lse = new(shape, dtype=torch.float32) if return_lse else None
    function = _serve if eager(tensors) else serve_op
    function(*tensors, *options, num_splits, attention_chunk, out, lse)
    return out, lse
