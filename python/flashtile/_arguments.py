"""What values attention's options may have, and errors that name an option whose value is wrong.

A warm call checks its flags only, since any value that packs as a whole number would turn a flag on. The other options
are checked when they are packed for the library, and by the library. Where either fails, the functions here check them
one by one and raise an error that names the wrong one. Needs no PyTorch.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Any

from ._library import InvalidArgument
from ._options import ALIGNMENTS, WHOLE, CallOptions
from ._structs import DTYPE_CODES, SHARD_NAMES

_NUMBERS = {"scale": "None or a finite number", "softcap": "0 (off) or a positive number",
            "dropout_p": "a probability in [0, 1)"}
_LENGTHS = {"max_seqlen_q": "None or a whole number", "max_seqlen_k": "None or a whole number"}
_WHOLE = {"attention_chunk": ("q", "0 (off) or the length of a chunk"),
          "num_splits": ("i", "0 (the library's rule) or a number of splits"),
          "sm_limit": ("i", "0 (all) or a number of multiprocessors"),
          "diagonal": ("q", "a number of keys, by which the diagonal is shifted, or int64 (batch)")}
FLAGS = ("causal", "deterministic", "batch_invariant", "exact_max")
_WINDOW = "(left, right), whole numbers from -1 (open)"
_ORIGIN = "(b, h, i, j), whole numbers from 0, of which i and j may be int64 (batch)"

_FLOATS = ("float32", "float16", "bfloat16")
_DTYPES = {
    ("alibi_slopes", "lse", "dlse", "lses", "q_scale", "k_scale", "v_scale", "scale"): ("float32",),
    ("quantized",): ("float8_e4m3fn",),
    ("mask", "tree_mask"): ("bool",),
    ("seqused_k", "seqused_q", "block_table", "first_k", "prefix_groups", "prefix_lengths"): ("int32",),
    ("slots", *SHARD_NAMES): ("int64",),
    ("tensors",): tuple(name for name in DTYPE_CODES if name != "float8_e4m3fn"),
    ("cu_seqlens_q", "cu_seqlens_k", "cu_seqlens_k_new", "cache_batch_idx", "cache_seqlens", "rotary_offsets",
     "positions", "positions_q"): ("int32", "int64"),
}


def allowed_dtypes(name: str, module: str = "") -> str:
    """The dtypes that an argument may have, for errors, each after the module's name ("torch."); append's arguments
    begin with "append."."""
    name = "tensors" if name.startswith(("tensors.", "tensors[")) else name.removeprefix("append.")
    dtypes = [module + each for each in next((of for names, of in _DTYPES.items() if name in names), _FLOATS)]
    return " or ".join(filter(None, (", ".join(dtypes[:-1]), dtypes[-1])))


def flag(name: str, value: Any) -> bool:
    """The value as a bool: of a bool, of 0 and 1, of NumPy's bools, or of a tensor with one element."""
    single = value.item() if hasattr(value, "item") else value
    if isinstance(single, int) and single in (0, 1):
        return bool(single)
    raise TypeError(f"{name} is {value!r}, allowed is True or False")


def blame_an_option(**options: Any) -> None:
    """Raises for the first option that has a wrong type or value. Covers the options of `attention` that are not
    tensors: diagonal and origin as split_shard leaves them."""
    align, window = options.get("align"), options.get("window")
    if not isinstance(align, str) or align not in ALIGNMENTS:
        raise InvalidArgument(f"align is {align!r}, allowed are {', '.join(map(repr, ALIGNMENTS))}") from None
    pair = tuple(window) if isinstance(window, (tuple, list)) else ()
    if len(pair) != 2 or not all(_packs("q", side) for side in pair):
        raise TypeError(f"window is {window!r}, allowed is {_WINDOW}") from None
    if min(pair) < -1:
        raise InvalidArgument(f"window is {window!r}, allowed is {_WINDOW}") from None
    for name, allowed in _NUMBERS.items():
        if not (_packs("d", options[name]) or (name == "scale" and options[name] is None)):
            raise TypeError(f"{name} is {options[name]!r}, allowed is {allowed}") from None
    if not 0.0 <= options["dropout_p"] < 1.0:
        raise InvalidArgument(f"dropout_p is {options['dropout_p']!r}, allowed is {_NUMBERS['dropout_p']}") from None
    for name in ("scale", "softcap"):
        if options[name] is not None and not _packs("<f", options[name]):
            raise InvalidArgument(f"{name} is {options[name]!r}, allowed is {_NUMBERS[name]}, of 32 bits") from None
    for name, allowed in _LENGTHS.items():
        if not (options[name] is None or _packs("q", options[name])):
            raise TypeError(f"{name} is {options[name]!r}, allowed is {allowed}") from None
    origin = options.get("origin", WHOLE)
    if not isinstance(origin, (tuple, list)) or len(origin) != 4 or not all(_packs("q", at) for at in origin):
        raise TypeError(f"origin is {origin!r}, allowed is {_ORIGIN}") from None
    for name, (code, allowed) in _WHOLE.items():
        if not _packs(code, options[name]):
            raise TypeError(f"{name} is {options[name]!r}, allowed is {allowed}") from None
    for name in FLAGS:
        flag(name, options.get(name, False))


def blame_a_call_option(options: CallOptions) -> None:
    """As blame_an_option, for the options of a call; the error has attention's names for them."""
    fields = options._asdict()
    window = fields.pop("window_left"), fields.pop("window_right")
    origin = tuple(fields.pop("origin_" + axis) for axis in "bhij")
    blame_an_option(align="bottom-right", window=window, origin=origin, dropout_p=fields.pop("dropout"),
                    causal=bool(fields.pop("causal")), **fields)


def _packs(code: str, value: Any) -> bool:
    """Whether the value can be packed into a field of the library's structs."""
    try:
        Struct(code).pack(value)
    except (StructError, OverflowError, TypeError, ValueError, RuntimeError):
        return False
    return True
