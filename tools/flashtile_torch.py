"""Calls of a given libflashtile.so on PyTorch tensors, prepared once and made many times, for the GPU benchmark.
The work is the Python package's (python/flashtile), which is taken from the tree.

    library = Library("build/libflashtile.so")
    call = library.forward(q, k, v, out, lse, causal=True)     # (batch, seqlen, heads, head_dim), any strides
    call()                                                     # submits it; the structs are made once
    backward = library.backward(q, k, v, out, lse, dout, dq, dk, dv, causal=True, deterministic=True)
"""

import os
import sys
from pathlib import Path

import torch

NO_OPTIONS = (None,) * 6  # alibi_slopes .. seqused_k


class Library:
    def __init__(self, path):
        os.environ["FLASHTILE_LIBRARY"] = str(Path(path).resolve())
        sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
        from flashtile import _call, _library
        self.call, self.text = _call.Call, _library.text

    def version(self):
        return self.text("version")

    def last_run(self):
        return self.text("last_run")

    def forward(self, q, k, v, out, lse, **options):
        return self.prepared("forward", (q, k, v, *NO_OPTIONS), (out, lse), **options)

    def backward(self, q, k, v, out, lse, dout, dq, dk, dv, **options):
        return self.prepared("backward", (q, k, v, *NO_OPTIONS, out, lse, dout, None), (dq, dk, dv, None), **options)

    def prepared(self, name, given, made, causal=False, dropout=0.0, seed=0, deterministic=False):
        rng = torch.tensor([seed, 0], device=given[0].device) if dropout else None
        call = self.call(name, given, made, -1, -1, int(causal), 0, None, 0.0, -1, -1, dropout, deterministic, False)
        return Prepared(call, (given, made), rng)


class Prepared:
    def __init__(self, call, kept, rng):
        self.call, self.kept, self.rng = call, kept, rng

    def __call__(self):
        self.call.submit(self.rng)

    def workspace(self):
        """Bytes that the call uses beside its results."""
        return self.call.workspace()
