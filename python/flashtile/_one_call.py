"""Makes one call of a C function that writes to tensors which its caller has made, or whose results are made alike at
each call: flashtile_merge, flashtile_append_kv, flashtile_forward on a cache, and attention with score and mask
functions.

As in _run.py, filled structs are used again for calls whose tensors are laid out alike and whose options are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

from torch import Tensor
from torch.autograd import profiler as _profiler

from ._block_lists import LIST_NAMES
from ._call import FilledCall, Tensors, hollow
from ._functions import Functions
from ._options import CallOptions, Recipe, options_of
from ._run import NUMBERS, kept
from ._structs import Part


class Function(NamedTuple):
    """A C function as `call` calls it."""

    name: str  # without flashtile_
    parts: Callable[..., Sequence[Part]]  # of the options, and of the numbers that a call brings
    names: Sequence[str]  # of the parts' tensors, for errors
    copies: dict[int, Callable[[Tensor], Tensor]]  # by position: what makes a tensor one that the library can read
    # Where results are made: how more are made of one, and those of a call on the other tensors. They stand at made_at.
    make: Optional[Callable[[Tensors], tuple[Callable[[Tensor], Tensor], Tensors]]] = None
    made_at: int = 0
    functions: Optional[Functions] = None  # whose tensors follow all others


class _Calls:
    """Calls of a function that differ in addresses, stream and threads only."""

    def __init__(self, function: Function, tensors: Tensors, options: CallOptions, numbers: tuple,
                 more: dict[str, Any], new: Optional[Callable[[Tensor], Tensor]], made: Tensors):
        self.function, self.options, self.numbers, self.more = function, options, numbers, more
        self.new, self.examples = new, [hollow(tensor) for tensor in made]
        tensors = self.complete(tensors, made)
        self.copied = {at: copy for at, copy in function.copies.items()
                       if tensors[at] is not None and copy(tensors[at]) is not tensors[at]}
        self.present = [at for at, tensor in enumerate(tensors) if tensor is not None]
        self.idle: list[FilledCall] = []

    def complete(self, tensors: Tensors, made: Tensors) -> Tensors:
        at = self.function.made_at
        return (*tensors[:at], *made, *tensors[at:]) if made else tensors

    def run(self, tensors: Tensors, rng: Optional[Tensor]) -> Tensors:
        new = self.new
        made = [None if example is None else new(example) for example in self.examples] if new else ()
        tensors = self.complete(tensors, made)
        if self.copied:
            tensors = [self.copied[at](tensor) if at in self.copied else tensor for at, tensor in enumerate(tensors)]
        try:
            filled = self.idle.pop()  # atomic, as append is, so that threads do not share a call
        except IndexError:
            name, parts, names, *_, functions = self.function
            named = names
            if functions:
                lists = LIST_NAMES[:len(tensors) - len(names) - len(functions.names) - len(functions.wanted)]
                named = (*names, *functions.names, *(f"block_lists.{name}" for name in lists),
                         *(f"d{name}" for name in functions.wanted))
            filled = FilledCall(name, parts(self.options, *self.numbers), tensors, named, self.options, functions,
                                **self.more)
        else:
            words, data = filled.words, filled.data
            for at in self.present:
                words[data[at]] = tensors[at].data_ptr()
        try:
            filled.submit(rng)
        finally:
            self.idle.append(filled)
        return made


_calls: dict[tuple, _Calls] = {}


def call(function: Function, tensors: Tensors, recipe: Recipe = (CallOptions,), numbers: tuple = (),
         rng: Optional[Tensor] = None, **more_options: int) -> Tensors:
    """Calls the function on its parts' tensors, in their order, without results that it makes, and returns those; the
    first is there. numbers: what its parts take beside the options. rng: dropout's seed and offset. more_options: those
    that CallOptions does not have."""
    key = (function.name, function.make, function.functions, recipe, numbers, *more_options.values(),
           *[None if t is None else (t.shape, t.stride(), t.dtype, t.device) for t in tensors])
    calls = _calls.get(key)
    if calls is None:
        new, made = function.make(tensors) if function.make else (None, ())
        if tensors[0].is_meta:  # without memory: nothing can be run
            return made
        options = options_of(recipe)
        calls = _Calls(function, tensors, options, numbers, more_options, new, made)
        if NUMBERS.issuperset(map(type, (*options, *numbers))):
            kept(_calls, key, calls)
    if _profiler._is_profiler_enabled:
        with _profiler.record_function("flashtile_" + function.name):
            return calls.run(tensors, rng)
    return calls.run(tensors, rng)
