"""What flashtile found on this machine."""

from __future__ import annotations

import json
from typing import Any

from ._library import PATH, library, text

_DTYPES = {"fp32": 1, "fp16": 2, "bf16": 3}


def describe() -> dict[str, Any]:
    """The version, the library's file, the CPU's instruction sets and threads, and CUDA's driver, devices, NVRTC, cache
    and bundles, or the reason why one of them is missing."""
    chosen = {name: library.flashtile_isa_chosen(code) for name, code in _DTYPES.items()}
    return {
        "version": text("version"),
        "library": str(PATH),
        "cpu": {"isa": {name: library.flashtile_isa_name(isa).decode() for name, isa in chosen.items()},
                "threads": library.flashtile_get_threads()},
        "cuda": json.loads(text("cuda_info")),
    }


def info() -> None:
    """Prints what `describe` returns."""
    _print(describe(), "")


def _print(value: dict[str, Any], indent: str) -> None:
    for name, entry in value.items():
        if isinstance(entry, dict):
            print(f"{indent}{name}:")
            _print(entry, indent + "  ")
        elif isinstance(entry, list):
            print(f"{indent}{name}: {', '.join(map(str, entry)) or 'none'}")
        elif entry not in (None, ""):  # why_not is empty where nothing is wrong
            print(f"{indent}{name}: {entry}")
