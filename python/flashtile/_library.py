"""The shared library: where it is, its functions, and its errors as Python exceptions. Needs no PyTorch.

The environment variable FLASHTILE_LIBRARY names another libflashtile.so than the one in the wheel.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import NoReturn

FOLDER = Path(__file__).resolve().parent
CHOSEN = os.environ.get("FLASHTILE_LIBRARY")
PATH = Path(CHOSEN) if CHOSEN else FOLDER / "libflashtile.so.0"

# flashtile_status
OK, INVALID_ARGUMENT, UNSUPPORTED = 0, 1, 2


class InvalidArgument(ValueError, RuntimeError):
    """An argument is wrong; the message names it, its value and what is allowed. (A RuntimeError too, since that is
    what callers of flash-attn catch.)"""


def _load() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(PATH))
    except OSError as error:
        hint = "named by FLASHTILE_LIBRARY" if CHOSEN else "which the wheel brings: is this a source folder?"
        raise ImportError(f"flashtile cannot load its library {PATH} ({hint}): {error}") from None
    for name in ("last_error", "last_run", "version", "cuda_info", "isa_name"):
        getattr(library, "flashtile_" + name).restype = ctypes.c_char_p
    for name, pointers in (("forward", 3), ("backward", 3), ("forward_workspace", 4), ("backward_workspace", 4),
                           ("dropout_mask", 2), ("merge", 2), ("append_kv", 2), ("quantize", 2), ("dequantize", 2)):
        getattr(library, "flashtile_" + name).argtypes = [ctypes.c_void_p] * pointers
    return library


library = _load()


def text(function: str) -> str:
    """The string that a function without arguments returns."""
    return getattr(library, "flashtile_" + function)().decode()


def fail(status: int) -> NoReturn:
    """Raises the library's last error of this thread as a Python exception."""
    message = text("last_error")
    if status == INVALID_ARGUMENT:
        raise InvalidArgument(message)
    if status == UNSUPPORTED:
        raise NotImplementedError(message)
    raise RuntimeError(message)
