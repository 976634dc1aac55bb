"""Makes one call of a C function that takes options and structs of tensors: flashtile_merge, flashtile_append_kv, and
flashtile_forward on a cache. Its structs are filled anew each time."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Optional

from torch import Tensor

from . import _call
from ._call import CPU, DTYPES, device_of, explain, stream_of
from ._library import fail, library
from ._options import CallOptions
from ._structs import MAX_RANK, OPTIONS, TENSOR_SIZE, TENSORS, Layout, pack_options


def call(name: str, layouts: Sequence[Layout], tensors: dict[str, Optional[Tensor]],
         options: CallOptions = CallOptions(), more_options: Optional[dict[str, Any]] = None, **fields: Any) -> None:
    """Calls flashtile_<name>. `tensors` are the structs' tensors by the names of their fields, the first of them
    present; `fields` are their other fields, and `more_options` those that CallOptions does not have."""
    argument, first = next(iter(tensors.items()))
    kind, index = place = device_of(first, argument) if isinstance(first, Tensor) else explain(first, argument)
    starts = [*accumulate((layout.size for layout in layouts), initial=OPTIONS.size)]
    memory = ctypes.create_string_buffer(starts[-1] + len(tensors) * TENSOR_SIZE)
    base = ctypes.addressof(memory)
    at = starts[-1]
    for argument, tensor in tensors.items():
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor) or tensor.dtype not in DTYPES or tensor.dim() > MAX_RANK:
            explain(tensor, argument)
        TENSORS[tensor.dim()].pack_into(memory, at, tensor.data_ptr(), DTYPES[tensor.dtype],
                                        *(place if tensor.device == first.device else device_of(tensor, argument)),
                                        tensor.dim(), *tensor.shape, *tensor.stride())
        fields[argument] = base + at
        at += TENSOR_SIZE
    threads = _call._get_num_threads() if kind == CPU and not _call._own_threads else 0
    pack_options(memory, 0, options, stream=stream_of(kind, index), threads=threads, **(more_options or {}))
    for layout, start in zip(layouts, starts):
        layout.pack_into(memory, start, **fields)
    status = getattr(library, "flashtile_" + name)(base, *(base + start for start in starts[:-1]))
    if status:
        fail(status)
