"""PyTorch's scaled_dot_product_attention on flashtile, as a context: `with flashtile.sdpa():`.

The context replaces torch.nn.functional's function by one that hands whatever flashtile cannot do to PyTorch's. So no
call fails that would not fail without the context.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.jit._builtins import _register_builtin
from torch.overrides import _get_current_function_mode_stack, has_torch_function_variadic
from torch.utils._device import DeviceContext

from ._causal_bias import is_causal_bias
from ._ops import PLAIN, eager
from ._sdpa import attend_as_pytorch, scaled_dot_product_attention
from ._sdpa_conditions import why_not
from ._while_tracing import run_while_tracing

logger = logging.getLogger("flashtile")

_lock = threading.Lock()
_inside = 0  # how many contexts are open, in all threads
_active = False  # whether any is open; compiled code is guarded by this and not by their number
_said: set[str] = set()
_BUILTIN = torch._C._nn.scaled_dot_product_attention


@contextlib.contextmanager
def sdpa() -> Iterator[None]:
    """Within `with flashtile.sdpa():` F.scaled_dot_product_attention is flashtile's, in every thread of the process.

    In every thread, since autograd, checkpointing and data parallelism call models in threads of their own. Contexts
    may nest and overlap, in one thread or in several: the first one entered begins it and the last one left ends it.

    A call that flashtile cannot do goes to PyTorch, and the logger "flashtile" says why, each reason once: other dtypes
    and devices, head dimensions over 512, nested tensors, tensor subclasses, calls under a TorchFunctionMode,
    forward-mode derivatives, export to ONNX. What torch.jit.script compiles here is PyTorch's. Code that has taken the
    function out of torch.nn.functional by `from ... import` keeps PyTorch's.
    """
    _change(_enter)
    try:
        yield
    finally:
        _change(_leave)


def _change(step: Callable[[], None]) -> None:
    if torch.compiler.is_compiling():  # one thread traces at a time, and a compiler cannot trace a lock
        step()
    else:
        with _lock:
            step()


def _enter() -> None:
    global _inside, _active
    _inside += 1
    if _inside > 1:
        return
    _said.clear()
    _active = True
    found = F.scaled_dot_product_attention
    if found not in _routed_over.values():  # else other code has put a function of ours back after we had left
        F.scaled_dot_product_attention = _routed(found)


def _leave() -> None:
    global _inside, _active
    _inside -= 1
    if _inside:
        return
    _active = False
    # Where other code has replaced our function, its own may still call ours, which now hands every call to PyTorch's.
    for found, ours in _routed_over.items():
        if F.scaled_dot_product_attention is ours:
            F.scaled_dot_product_attention = found


def _routed(found: Callable) -> Callable:
    """The function that replaces `found`. There is one for each `found`, since compiled code and torch.jit.script tell
    functions apart by identity."""
    if found in _routed_over:
        return _routed_over[found]

    @functools.wraps(scaled_dot_product_attention)
    def routed(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None, dropout_p: float = 0.0,
               is_causal: bool = False, scale: Optional[float] = None, enable_gqa: bool = False) -> Tensor:
        reason: Optional[str] = None
        if not _active:
            reason = _NOT_NOW
        elif has_torch_function_variadic(query, key, value, attn_mask):
            reason = _why_overridden(query, key, value, attn_mask)
        plain = reason is None and eager((query, key, value, attn_mask))
        if reason is None and not plain:
            reason = why_not(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        if reason is None:
            try:
                return attend_as_pytorch(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, plain)
            except (TypeError, ValueError, NotImplementedError) as error:
                reason = str(error)
            except RuntimeError:  # the device's, or PyTorch's about tensors that are not for us, such as nested ones
                reason = why_not(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
                if reason is None:
                    raise
        if reason is not _NOT_NOW:
            _say(reason)
        newer = {"enable_gqa": True} if enable_gqa else {}  # PyTorch 2.4 does not have it
        if is_causal_bias(attn_mask):
            # Such a mask compares the function that it is given with torch.nn.functional's, which is not `found`.
            return attn_mask.__torch_function__(
                F.scaled_dot_product_attention, (type(attn_mask),), (query, key, value, attn_mask),
                {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, **newer})
        return found(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **newer)

    _routed_over[found] = routed
    return routed


_DISABLED = torch._C._disabled_torch_function_impl
_NOT_NOW = "no context is open"
_routed_over: dict[Callable, Callable] = {}
# torch.jit.script knows PyTorch's functions by a table, in which ours must stand for PyTorch's.
_register_builtin(_routed(_BUILTIN), "aten::scaled_dot_product_attention")


def _why_overridden(*given: Any) -> Optional[str]:
    """Why the tensors or a mode have to handle the call, or None where flashtile can. PyTorch's function calls them."""
    for tensor in given:
        if tensor is None or type(tensor) in PLAIN or is_causal_bias(tensor):
            continue
        if getattr(type(tensor), "__torch_function__", _DISABLED) is not _DISABLED:
            return "an argument has a __torch_function__"
    # DeviceContext is the mode of torch.set_default_device, which concerns functions that make tensors only.
    if any(type(mode) is not DeviceContext for mode in _get_current_function_mode_stack()):
        return "a TorchFunctionMode is active"
    return None


@run_while_tracing
def _say(reason: str) -> None:
    if reason not in _said:
        _said.add(reason)
        logger.warning("scaled_dot_product_attention falls back to PyTorch: %s", reason)
