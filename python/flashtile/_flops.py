"""How many floating-point operations flashtile's operators take, for torch.utils.flop_counter.FlopCounterMode.

They are counted as PyTorch counts those of its own attention, so that the two can be compared: matrix products only, of
every query with every key whatever the mask, two products forward and five backward.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.flop_counter import flop_registry

from ._options import CallOptions
from ._structs import INPUT_NAMES


def register(forward: Any, backward: Any) -> None:
    """Registers the formulas of the two operators. A FlopCounterMode copies the formulas when it is made, and flashtile
    may be imported after that, so the formulas are given to modes that are active already, too.

    register_flop_formula of PyTorch 2.4 registers an operator's overloads, which its FlopCounterMode does not look up;
    so the formulas are written into the registry itself. There the mode is its own counter."""
    active = [getattr(getattr(mode, "counter", mode), "flop_registry", {})
              for mode in _get_current_dispatch_mode_stack()]
    for registry in (flop_registry, *active):
        registry.update({forward: _forward_flops, backward: _backward_flops})


def _forward_flops(*arguments: Any, **named: Any) -> int:
    call = _by_name(arguments, named)
    d, dv = call["q"].shape[-1], call["v"].shape[-1]
    return 2 * _pairs(call) * (d + dv)


def _backward_flops(*arguments: Any, **named: Any) -> int:
    call = _by_name(arguments, named)
    d, dv = call["q"].shape[-1], call["v"].shape[-1]
    return 2 * _pairs(call) * (3 * d + 2 * dv)


def _by_name(arguments: tuple, named: dict[str, Any]) -> dict[str, Any]:
    """An operator's inputs and options by their names; what follows them is not needed here."""
    return {**dict(zip((*INPUT_NAMES, *CallOptions._fields), arguments)), **named}


def _pairs(call: dict[str, Any]) -> int:
    """How many pairs of a query and a key there are, over batch and heads."""
    q, k = call["q"], call["k"]
    if call["cu_seqlens_q"] is None or call["cu_seqlens_k"] is None:
        return q.shape[0] * q.shape[2] * q.shape[1] * k.shape[1]
    lengths = (_lengths(call[f"cu_seqlens_{x}"], call[f"max_seqlen_{x}"]) for x in "qk")
    return q.shape[1] * sum(rows * columns for rows, columns in zip(*lengths))


def _lengths(cu_seqlens: Tensor, longest: int) -> list[int]:
    """Each sequence's length. Meta tensors have no values, so there every sequence counts as long as the longest."""
    return [longest] * (cu_seqlens.shape[0] - 1) if cu_seqlens.is_meta else cu_seqlens.diff().tolist()
