"""Refuses FlashAttention-3's arguments for what flashtile does not have."""

from __future__ import annotations

from typing import Any


def refuse(attention_chunk: int = 0, **given: Any) -> None:
    """Raises where one of these is given."""
    if attention_chunk:
        raise NotImplementedError(f"attention_chunk is {attention_chunk}, which flashtile does not have: allowed is 0")
    for name, value in given.items():
        if value is not None:
            raise NotImplementedError(f"{name} is given, which flashtile does not have: allowed is None")
