"""transformers' continuous batching on flashtile: packed queries on a paged cache (generate_batch, `transformers serve`).

For such a model transformers asks in three places whether its attention is a build of flash-attn: one that needs no
mask, takes lengths of packed sequences and reads the cache itself. flashtile does, so there the answer is yes. The path
for decoding alone, which calls flash-attn by name, asks for a version of it and is still not taken.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

_ASKING = ("cache", "continuous_api", "initialization")


def accept(name: str) -> None:
    """Has continuous batching take the attention of that name."""
    for asking in _ASKING:
        module = importlib.import_module(f"transformers.generation.continuous_batching.{asking}")
        module.is_flash_attention_requested = _packs(module.is_flash_attention_requested, name)


def _packs(is_flash: Callable, name: str) -> Callable:
    @functools.wraps(is_flash)
    def is_flash_attention_requested(config: Any = None, requested_attention_implementation: Any = None,
                                     version: Any = None) -> bool:
        asked = requested_attention_implementation if config is None else config._attn_implementation
        if asked == name and version is None:
            return True
        return is_flash(config, requested_attention_implementation, version)

    return is_flash_attention_requested
