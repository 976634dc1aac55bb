"""The handlers that XLA calls, in the shared library libflashtile_jax.so beside libflashtile.so, and the versions of
XLA's FFI with which they work.

XLA refuses a handler of another ABI with a status that names no package, so the versions are compared here first: major
versions must be equal, and a handler's minor version at most that of the jaxlib that calls it. jaxlib's version is what
its own header says.
"""

from __future__ import annotations

import ctypes
import re
from importlib.metadata import version
from pathlib import Path

import jax

from .._library import PATH

PASSES = ("forward", "backward")
_PLATFORMS = {"cpu": "cpu", "cuda": "CUDA"}  # as the handlers' names end, and as XLA calls them


def target(name: str) -> str:
    """What XLA calls a pass's handler."""
    return "flashtile_" + name


def check_versions(ours: tuple[int, int], of_jaxlib: tuple[int, int]) -> None:
    if ours[0] != of_jaxlib[0] or ours[1] > of_jaxlib[1]:
        raise ImportError(f"flashtile's handlers for JAX speak version {ours[0]}.{ours[1]} of XLA's FFI and jaxlib "
                          f"{version('jaxlib')} has {of_jaxlib[0]}.{of_jaxlib[1]}, allowed are {ours[0]}.{ours[1]} "
                          f"to below {ours[0] + 1}.0: install another jaxlib, or build flashtile from source beside it")


def version_of_jaxlib() -> tuple[int, int]:
    header = (Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h").read_text("utf-8")
    major, minor = (re.search(rf"#define XLA_FFI_API_{part} (\d+)", header) for part in ("MAJOR", "MINOR"))
    if major is None or minor is None:
        raise ImportError(f"the header of jaxlib {version('jaxlib')} does not say which version of XLA's FFI it has")
    return int(major[1]), int(minor[1])


def register() -> None:
    """Loads the handlers and tells XLA of them."""
    path = PATH.resolve().parent / "libflashtile_jax.so"
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"flashtile.jax cannot load its handlers {path}, which a build without jaxlib leaves out: "
                          f"{error}") from None
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.flashtile_jax_ffi_version(ctypes.byref(major), ctypes.byref(minor))
    check_versions((major.value, minor.value), version_of_jaxlib())
    for name in PASSES:
        for ending, platform in _PLATFORMS.items():
            handler = getattr(library, f"flashtile_jax_{name}_{ending}")
            jax.ffi.register_ffi_target(target(name), jax.ffi.pycapsule(handler), platform=platform)
