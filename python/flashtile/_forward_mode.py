"""Forward-mode derivatives (dual tensors, torch.func.jvp, jacfwd). flashtile does not have them and refuses them, since
PyTorch lets an operator that is written in Python drop them without an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ._while_tracing import run_while_tracing


@run_while_tracing
def _being_taken() -> bool:
    """Whether some code is taking them."""
    return forward_ad._current_level >= 0


def forward_mode(tensors: Sequence[Any]) -> bool:
    """Whether one of the tensors has a forward-mode derivative. A compiler's tensors do not show theirs, so while a
    compiler traces the answer is yes wherever such derivatives are being taken."""
    if not _being_taken():
        return False
    return torch.compiler.is_compiling() or any(
        isinstance(tensor, Tensor) and forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)


def refuse_forward_mode() -> NoReturn:
    raise NotImplementedError("flashtile has no forward-mode derivatives (dual tensors, torch.func.jvp, jacfwd)")
