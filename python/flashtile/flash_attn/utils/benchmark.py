"""flash_attn.utils.benchmark: times a function's forward pass, its backward pass, or both, by PyTorch's timer.

Each function returns (timer, measurement). amp runs the timed function in autocast to amp_dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor
from torch.utils import benchmark

Timed = tuple[benchmark.Timer, benchmark.Measurement]


def benchmark_forward(fn: Callable, *inputs: Any, repeats: int = 10, desc: str = "", verbose: bool = True,
                      amp: bool = False, amp_dtype: torch.dtype = torch.float16, **kwinputs: Any) -> Timed:
    """Times fn(*inputs, **kwinputs)."""
    call = _within_autocast(fn, inputs, kwinputs, amp, amp_dtype)
    return _timed(call, repeats, f"{desc} - Forward pass", verbose)


def benchmark_backward(fn: Callable, *inputs: Any, grad: Optional[Tensor] = None, repeats: int = 10, desc: str = "",
                       verbose: bool = True, amp: bool = False, amp_dtype: torch.dtype = torch.float16,
                       **kwinputs: Any) -> Timed:
    """Times the backward pass of fn's result, or of its first result, from grad."""
    out = _first(_within_autocast(fn, inputs, kwinputs, amp, amp_dtype)())
    grad = _gradient(grad, out)

    def backward() -> None:
        _forget(inputs)
        out.backward(grad, retain_graph=True)

    return _timed(backward, repeats, f"{desc} - Backward pass", verbose)


def benchmark_combined(fn: Callable, *inputs: Any, grad: Optional[Tensor] = None, repeats: int = 10, desc: str = "",
                       verbose: bool = True, amp: bool = False, amp_dtype: torch.dtype = torch.float16,
                       **kwinputs: Any) -> Timed:
    """Times forward and backward together."""
    call = _within_autocast(fn, inputs, kwinputs, amp, amp_dtype)
    grad = _gradient(grad, _first(call()))

    def both() -> None:
        _forget(inputs)
        _first(call()).backward(grad)

    return _timed(both, repeats, f"{desc} - Forward + Backward pass", verbose)


def benchmark_fwd_bwd(fn: Callable, *inputs: Any, grad: Optional[Tensor] = None, **kwargs: Any) -> tuple[Timed, Timed]:
    """Times forward, then backward."""
    return benchmark_forward(fn, *inputs, **kwargs), benchmark_backward(fn, *inputs, grad=grad, **kwargs)


def benchmark_all(fn: Callable, *inputs: Any, grad: Optional[Tensor] = None,
                  **kwargs: Any) -> tuple[Timed, Timed, Timed]:
    """Times forward, then backward, then both together."""
    return *benchmark_fwd_bwd(fn, *inputs, grad=grad, **kwargs), benchmark_combined(fn, *inputs, grad=grad, **kwargs)


def _within_autocast(fn: Callable, inputs: tuple, kwinputs: dict, amp: bool, dtype: torch.dtype) -> Callable:
    device = next((x.device.type for x in inputs if isinstance(x, Tensor)), "cpu")

    def call() -> Any:
        with torch.autocast(device, dtype=dtype, enabled=amp):
            return fn(*inputs, **kwinputs)

    return call


def _timed(call: Callable, repeats: int, what: str, verbose: bool) -> Timed:
    timer = benchmark.Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
    measured = timer.timeit(repeats)
    if verbose:
        print(what, measured, sep="\n")
    return timer, measured


def _first(result: Any) -> Tensor:
    return result[0] if isinstance(result, tuple) else result


def _gradient(grad: Optional[Tensor], out: Tensor) -> Tensor:
    if grad is None:
        return torch.randn_like(out)
    if grad.shape != out.shape:
        raise ValueError(f"grad.shape is {tuple(grad.shape)}, allowed is the result's, {tuple(out.shape)}")
    return grad


def _forget(inputs: tuple) -> None:
    for x in inputs:
        if isinstance(x, Tensor):
            x.grad = None
