"""Which kernel or instruction set the library's last call ran on, for programs and tests."""

from __future__ import annotations

from ._library import text


def last_run() -> str:
    """What this thread's last successful forward or backward ran on, e.g. "cpu avx512_bf16 forward, 2 threads"; ""
    where there was none. (On CUDA autograd runs backward on a thread of its own.)"""
    return text("last_run")
