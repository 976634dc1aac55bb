"""Decorators for functions that torch.compile shall not trace."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable)


def run_while_tracing(function: Function) -> Function:
    """A compiler runs the function once, while it traces, and takes the result for a constant. This is the mark that
    torch.compiler.assume_constant_result sets. That function would first import torch._dynamo, which takes a second."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def run_between_graphs(function: Function) -> Function:
    """Compiled code ends before the function and goes on after it, and nothing that it calls is traced. This is
    torch.compiler.disable, which is called only where torch._dynamo is there already."""
    disabled: list[Callable] = []

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return function(*arguments, **options)
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*arguments, **options)

    run._torchdynamo_disable = True  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]
