"""Refuses FlashAttention-3's arguments for what flashtile does not have."""

from __future__ import annotations

from typing import Any


def refuse(**given: Any) -> None:
    """Raises where one of these is given."""
    for name, value in given.items():
        if value is not None:
            raise NotImplementedError(f"{name} is given, which flashtile does not have: allowed is None")
