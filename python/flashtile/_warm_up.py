"""flashtile.warm_up: kernels compiled before the first call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Union

import torch

from ._arguments import blame_an_option
from ._call import DEVICES, DTYPES
from ._ops import deterministic as always_deterministic
from ._options import DEFAULTS, of_attention
from ._prepare import ALIGNED, Problem, Progress, prepare
from ._structs import INPUT_NAMES

Shape = Sequence[int]
_TAKEN = [name for name in DEFAULTS if name not in ("max_seqlen_q", "max_seqlen_k", "diagonal", "origin")]


def _contiguous(shape: Shape) -> tuple[int, ...]:
    stride, strides = 1, []
    for size in reversed(shape):
        strides.append(stride)
        stride *= max(size, 1)
    return tuple(reversed(strides))


def _three(shape: Union[Shape, Sequence[Shape]]) -> tuple[Shape, Shape, Shape]:
    """The shapes of q, k and v: of all three, of q and of the other two, or each."""
    each = [tuple(one) for one in shape] if all(isinstance(one, Sequence) for one in shape) else [tuple(shape)]
    if not 1 <= len(each) <= 3 or not all(len(one) == 4 and all(isinstance(size, int) for size in one) for one in each):
        raise ValueError(f"shapes holds {shape}, allowed is (batch, seqlen, heads, head_dim) of q, k and v, or a list of two "
                         "(q; k and v) or three")
    q, k, v = (each + [each[-1]] * 2)[:3]
    return q, k, v


def warm_up(shapes: Sequence[Union[Shape, Sequence[Shape]]], *, dtype: torch.dtype = torch.bfloat16,
            device: Union[str, torch.device] = "cuda", backward: bool = True, return_lse: bool = False,
            progress: Optional[Progress] = None, **options: Any) -> None:
    """Compiles and loads, in parallel, what `flashtile.attention` would compile on its first calls, so that these do not
    wait. Kernels are kept on disk, and later processes find them there. On the CPU there is nothing to do.

    Example:
        flashtile.warm_up([(8, 4096, 16, 128), [(8, 1, 32, 128), (8, 8192, 8, 128)]], causal=True, device="cpu")

    Args:
        shapes: of each problem: (batch, seqlen, heads, head_dim), or a list of such: q's, and k's and v's; or q's, k's
            and v's. No memory is taken for them.
        dtype: of q, k and v.
        device: where they will lie.
        backward: whether gradients will be asked for; then forward is compiled as it runs while they are.
        return_lse: whether lse will be asked for, without gradients.
        progress: progress(done, total) is called after each kernel, from any thread, one at a time.
        options: as `flashtile.attention` will get them: causal, window, align, scale, softcap, dropout_p, deterministic,
            batch_invariant, exact_max, attention_chunk, num_splits, sm_limit.

    Raises:
        ValueError: an argument is wrong: the message names it, its value and what is allowed.
        NotImplementedError: there is no GPU, driver or compiler, or no kernel for a problem.
        RuntimeError: a kernel did not compile. What `progress` raises is raised too, when all is compiled.
    """
    unknown = sorted(options.keys() - set(_TAKEN))
    if unknown:
        raise ValueError(f"{unknown[0]} is given, allowed are {', '.join(_TAKEN)}")
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype}, allowed is torch.float32, torch.float16 or torch.bfloat16")
    place = torch.device(device)
    if place.type not in DEVICES:
        raise ValueError(f"device is {place}, allowed are cpu and cuda")
    ordinal = place.index
    if ordinal is None:
        ordinal = torch.cuda.current_device() if place.type == "cuda" and torch.cuda.is_available() else 0
    if isinstance(shapes, str) or not all(isinstance(shape, Sequence) for shape in shapes):
        raise ValueError(f"shapes is {shapes}, allowed is a list of problems, each (batch, seqlen, heads, head_dim) or a list of "
                         "such")
    chosen = {**DEFAULTS, **options}
    blame_an_option(**chosen)
    chosen["deterministic"] = chosen["deterministic"] or always_deterministic()
    made = of_attention(**chosen)

    def fields(shape: Shape) -> tuple:
        return (ALIGNED, DTYPES[dtype], DEVICES[place.type], ordinal, len(shape), *shape, *_contiguous(shape))

    absent = (None,) * (len(INPUT_NAMES) - 3)
    prepare([Problem((*map(fields, _three(shape)), *absent), made, True, backward, backward or return_lse)
             for shape in shapes], progress)
