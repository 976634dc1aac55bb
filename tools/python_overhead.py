#!/usr/bin/env python3
"""The host time of a small eager call from Python: flashtile's functions beside F.scaled_dot_product_attention.

    PYTHONPATH=python FLASHTILE_LIBRARY=build/libflashtile.so .venv/bin/python tools/python_overhead.py
    ... tools/python_overhead.py --device=cuda --json=overhead.json
    ... tools/python_overhead.py --shape=1,1,1,8 --threads=1            # nothing but overhead, on the CPU too

There are three passes of attention: forward without gradients, forward recorded by autograd, and forward with
backward. All methods get the same values, each in the layout that it is made for. Samples of the methods alternate in an order that rotates,
and medians are printed. On CUDA a sample starts with an idle GPU and ends when the host has submitted its calls. The
exit code is 1 where flashtile.attention takes longer than PyTorch.

A fourth pass times what serving calls for each new token, where flashtile has it (on CUDA append_kv and merge only).

Two more rows show where flashtile's time goes. "library alone" submits filled structs, without autograd and without
allocating results; "autograd alone" is a torch.autograd.Function that allocates results and computes nothing.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

import flashtile
from flashtile._call import Call
from flashtile._options import CallOptions
from flashtile._structs import INPUT_NAMES

# By name: the function, and whether its tensors are (batch, seqlen, heads, head_dim).
METHODS = {
    "torch": (F.scaled_dot_product_attention, False),
    "flashtile.attention": (flashtile.attention, True),
    "flashtile.flash_attn.flash_attn_func": (flashtile.flash_attn.flash_attn_func, True),
    "flashtile.scaled_dot_product_attention": (flashtile.scaled_dot_product_attention, False),
}
PASSES = ("forward", "recorded", "forward and backward")
WARM_UP = 3  # samples


def tensors(shape, rows, device, dtype):
    """q, k, v and dout: the same values whatever the layout."""
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(shape, generator=generator) for _ in range(4)]
    return [(t.transpose(1, 2) if rows else t).contiguous().to(device, dtype) for t in made]


class Nothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        out, lse = torch.empty_like(q), torch.empty_like(q)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx, dout):
        return tuple(torch.empty_like(tensor) for tensor in ctx.saved_tensors[:3])


def library_alone(which, q, k, v, dout):
    """Submits structs that were filled once."""
    results = (torch.empty_like(q), torch.empty(q.shape[0], q.shape[2], q.shape[1], device=q.device))
    gradients = (*map(torch.empty_like, (q, k, v)), None, None)
    inputs = (q, k, v, *(None,) * (len(INPUT_NAMES) - 3))
    forward = Call("forward", inputs, results, CallOptions())
    backward = Call("backward", (*inputs, *results, dout, None), gradients, CallOptions())
    workspaces = [call.bring_workspace() for call in (forward, backward) if call.needs_workspace]
    forward.needs_workspace = backward.needs_workspace = False  # another one for each call

    def submit(kept=(q, k, v, dout, results, gradients, workspaces)):  # alive, since the structs hold addresses only
        forward.submit()
        if which == "forward and backward":
            backward.submit()

    return submit


def call_of(function, which, q, k, v, dout):
    if which == "forward":
        return lambda: function(q, k, v)
    leaves = [t.requires_grad_() for t in (q, k, v)]
    if which == "recorded":
        return lambda: function(*leaves)
    return lambda: torch.autograd.grad(function(*leaves), leaves, dout)


def serving_calls(device, dtype):
    """One sequence with a new token on a cache of two pages: small enough that little but overhead is left."""
    def made(*shape):
        return torch.randn(shape, device=device, dtype=dtype)

    q, new, cache, pages = made(1, 1, 2, 8), made(1, 1, 2, 8), [made(1, 32, 2, 8), made(1, 32, 2, 8)], made(4, 16, 2, 8)
    lengths, table = (torch.tensor(values, dtype=torch.int32, device=device) for values in ([5], [[0, 1]]))
    turns = {"rotary_cos": made(32, 4), "rotary_sin": made(32, 4)}
    outs, lses = made(2, 1, 1, 2, 8), torch.randn(2, 1, 2, 1, device=device)
    with_kvcache = flashtile.flash_attn.flash_attn_with_kvcache
    calls = {"append_kv": lambda: flashtile.append_kv(*cache, new, new, cache_seqlens=lengths, q=q, **turns),
             "merge": lambda: flashtile.merge(outs, lses)}
    if device == "cpu":
        calls |= {
            "attention on pages": lambda: flashtile.attention(q, pages, pages, block_table=table, seqused_k=lengths),
            "flash_attn_with_kvcache": lambda: with_kvcache(q, *cache, cache_seqlens=lengths),
            "flash_attn_with_kvcache that appends": lambda: with_kvcache(q, *cache, new, new, cache_seqlens=lengths,
                                                                         **turns)}
    return calls


def measure(calls, calls_a_sample, samples, synchronise):
    """Microseconds a call: {name: median}."""
    times = {name: [] for name in calls}
    names = list(calls)
    for n in range(WARM_UP + samples):
        first = n % len(names)
        for name in names[first:] + names[:first]:
            call = calls[name]
            synchronise()
            start = time.perf_counter()
            for _ in range(calls_a_sample):
                call()
            times[name].append((time.perf_counter() - start) / calls_a_sample * 1e6)
    synchronise()
    return {name: round(statistics.median(taken[WARM_UP:]), 2) for name, taken in times.items()}


def show(medians):
    for name, median in medians.items():
        print(f"  {name:<40} {median:8.2f} us", flush=True)


def shape_of(text):
    shape = [int(part) for part in text.split(",")]
    if len(shape) != 4:
        raise argparse.ArgumentTypeError(f"is {text!r}, allowed are four numbers: batch,heads,seqlen,head_dim")
    return shape


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help="default: float32, on CUDA bfloat16")
    p.add_argument("--shape", type=shape_of, default=[1, 8, 64, 64], help="batch,heads,seqlen,head_dim")
    p.add_argument("--samples", type=int, default=200, help="of each method and pass")
    p.add_argument("--calls", type=int, default=20, help="in a sample")
    p.add_argument("--threads", type=int, help="PyTorch's, and so flashtile's; default: PyTorch's choice")
    p.add_argument("--json", type=Path, help="a file for the result")
    a = p.parse_args()
    if a.threads:
        torch.set_num_threads(a.threads)
    cuda = a.device == "cuda"
    dtype = a.dtype or ("bfloat16" if cuda else "float32")

    synchronise = torch.cuda.synchronize if cuda else lambda: None
    microseconds = {}
    for which in PASSES:
        calls = {name: call_of(function, which, *tensors(a.shape, rows, a.device, getattr(torch, dtype)))
                 for name, (function, rows) in METHODS.items()}
        rows = tensors(a.shape, True, a.device, getattr(torch, dtype))
        calls["library alone"] = library_alone(which, *rows)
        calls["autograd alone"] = call_of(Nothing.apply, which, *rows)
        microseconds[which] = measure(calls, a.calls, a.samples, synchronise)
        print(which)
        show(microseconds[which])
    print("serving")
    with torch.no_grad():
        calls = serving_calls(a.device, getattr(torch, dtype))
        microseconds["serving"] = measure(calls, a.calls, a.samples, synchronise)
    show(microseconds["serving"])
    result = {"device": torch.cuda.get_device_name() if cuda else platform.machine(), "dtype": dtype,
              "shape": a.shape, "threads": torch.get_num_threads(),
              "torch": torch.__version__, "flashtile": flashtile.__version__, "python": platform.python_version(),
              "samples": a.samples, "calls_a_sample": a.calls, "microseconds": microseconds}
    if a.json:
        a.json.write_text(json.dumps(result, indent=1) + "\n")
    return any(microseconds[which]["flashtile.attention"] > microseconds[which]["torch"] for which in PASSES)


if __name__ == "__main__":
    sys.exit(main())
