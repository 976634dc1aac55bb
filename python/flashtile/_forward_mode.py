"""Forward-mode derivatives (dual tensors, torch.func.jvp, jacfwd), which flashtile does not have: they are refused, since
PyTorch's operators written in Python lose them without an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.autograd import forward_ad


@torch.compiler.assume_constant_result
def _being_taken() -> bool:
    """A compiler asks while it traces."""
    return forward_ad._current_level >= 0


def forward_mode(tensors: Sequence[Any]) -> bool:
    """True where a result's forward-mode derivative would be lost. A compiler's tensors do not show whether they have
    one, so there it is True wherever such derivatives are being taken."""
    if not _being_taken():
        return False
    return torch.compiler.is_compiling() or any(
        isinstance(tensor, Tensor) and forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)


def refuse_forward_mode() -> NoReturn:
    raise NotImplementedError("flashtile has no forward-mode derivatives (dual tensors, torch.func.jvp, jacfwd)")
