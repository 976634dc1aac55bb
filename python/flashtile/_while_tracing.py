"""A decorator for functions that torch.compile shall not trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Function = TypeVar("Function", bound=Callable)


def run_while_tracing(function: Function) -> Function:
    """A compiler runs the function once, while it traces, and takes the result for a constant. This is the mark that
    torch.compiler.assume_constant_result sets. That function would first import torch._dynamo, which takes a second."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
