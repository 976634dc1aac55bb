"""Making kernels ready before they are called: flashtile_prepare. Needs no PyTorch.

A problem is given as the fields of its flashtile_tensors, since no tensor's memory is read."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

from ._library import fail, library
from ._options import CallOptions
from ._structs import INPUT_NAMES, Layout, Structs, inputs_part

ITEM = Layout(size="N", options="P", inputs="P", forward="i", backward="i", lse="i")  # flashtile_prepare_item
ALIGNED = 1 << 12  # an address of which the alignment alone counts
_PROGRESS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)

Progress = Callable[[int, int], Any]


class Problem(NamedTuple):
    """tensors: of INPUT_NAMES, each None or data, dtype, device_type, device_id, rank, shape, stride."""

    tensors: Sequence[Optional[tuple]]
    options: CallOptions
    forward: bool
    backward: bool
    lse: bool
    beside: bool = True  # backward's dbias and dsinks, where bias and sinks are given


def prepare(problems: Sequence[Problem], progress: Optional[Progress] = None) -> None:
    """Compiles and loads what the problems' first calls would wait for. progress(done, total) is called from threads of
    the library's; what it raises is raised here when all is done."""
    kept = []
    items = bytearray(max(1, len(problems)) * ITEM.size)
    for number, problem in enumerate(problems):
        structs = Structs([inputs_part(INPUT_NAMES, problem.options)], problem.tensors, problem.options)
        kept.append(structs)
        options, inputs = structs.addresses
        ITEM.pack_into(items, number * ITEM.size, options=options, inputs=inputs, forward=problem.forward,
                       backward=problem.backward * (1 if problem.beside else 2), lse=problem.lse)
    raised: list[BaseException] = []

    def call(_: Any, done: int, total: int) -> None:
        try:
            if not raised:
                progress(done, total)  # type: ignore[misc]
        except BaseException as error:
            raised.append(error)

    address = ctypes.addressof(ctypes.c_char.from_buffer(items))
    status = library.flashtile_prepare(ctypes.c_void_p(address), ctypes.c_size_t(len(problems)),
                                       _PROGRESS() if progress is None else _PROGRESS(call), None)
    if status:
        fail(status)
    if raised:
        raise raised[0]


def prepare_aside(problem: Problem) -> threading.Thread:
    """The same on a thread of its own, which the interpreter waits for at its end: a compiler may not be left at work
    while a process ends. What goes wrong is the call's to say."""

    def work() -> None:
        try:
            prepare([problem])
        except Exception:
            pass

    thread = threading.Thread(target=work, name="flashtile_prepare")
    thread.start()
    return thread
