#!/usr/bin/env python3
"""flashtile.jax.dot_product_attention beside jax.nn.dot_product_attention, both in jax.jit: forward, and with
gradients.

    PYTHONPATH=python FLASHTILE_LIBRARY=build/libflashtile.so .venv/bin/python tools/bench_jax.py --json=jax.json
    ... tools/bench_jax.py --causal --dtypes=bf16 --lengths=512,2048
    ... tools/bench_jax.py --tokens=64 --lengths=64 --heads=1     # on a GPU: the host's time of a call, since the GPU waits

On the CPU JAX's side is implementation="xla" (fp32 and bf16, n = 512 and 2048, d = 64). On a GPU it is
implementation="cudnn" (bf16, n = 1024, 4096 and 16384, d = 64 and 128). Both get the same arrays. Samples of the two
alternate, so that other work on the machine falls on both; medians are printed, and their ratio. A sample is as many
calls as take a fifth of a second of the slower side. Beside each time stands the greatest error of the results (out;
dq, dk, dv) of the first head of the first sequence, against dense attention in fp64.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import flashtile
import flashtile.jax as fj

DTYPES = {"fp32": jnp.float32, "bf16": jnp.bfloat16, "fp16": jnp.float16}
SAMPLE = 0.2  # seconds


def dense(q, k, v, dout, causal):
    """out, dq, dk and dv of one head in fp64: Algorithm 0 and 3 of FlashAttention."""
    q, k, v, dout = (np.asarray(x, np.float64) for x in (q, k, v, dout))
    scale = q.shape[-1] ** -0.5
    s = scale * q @ k.T
    if causal:
        s[np.triu_indices(len(s), 1)] = -np.inf
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    out, dp = p @ v, dout @ v.T
    ds = p * (dp - (dout * out).sum(-1, keepdims=True)) * scale
    return out, ds @ k, ds.T @ q, p.T @ dout


def functions(causal, theirs):
    def of(attend, **how):
        def forward(q, k, v, dout):
            return (attend(q, k, v, is_causal=causal, **how),)

        def with_gradients(q, k, v, dout):
            out, pull = jax.vjp(lambda *of: attend(*of, is_causal=causal, **how), q, k, v)
            return out, *pull(dout)
        return {"forward": jax.jit(forward), "with gradients": jax.jit(with_gradients)}

    return {"flashtile": of(fj.dot_product_attention),
            theirs: of(jax.nn.dot_product_attention, implementation=theirs)}


def seconds(function, arrays, calls):
    start = time.perf_counter()
    for _ in range(calls):
        made = function(*arrays)
    jax.block_until_ready(made)
    return (time.perf_counter() - start) / calls


def measure(pass_name, by_method, arrays, repeats, wanted):
    """The row of a pass: by method the median seconds of a call, and the error."""
    row = {}
    for name, passes in by_method.items():
        made = jax.block_until_ready(passes[pass_name](*arrays))  # compiles
        errors = [float(np.abs(np.asarray(got[0, :, 0], np.float64) - want).max()) for got, want in zip(made, wanted)]
        row[name] = {"error": errors[0], "error_of_gradients": max(errors[1:], default=None)}
    slowest = max(seconds(passes[pass_name], arrays, 1) for passes in by_method.values())
    calls = max(1, round(SAMPLE / slowest))
    samples = {name: [] for name in by_method}
    for _ in range(repeats):
        for name, passes in by_method.items():
            samples[name].append(seconds(passes[pass_name], arrays, calls))
    for name, of in samples.items():
        row[name] |= {"seconds": statistics.median(of), "samples": of}
    return row


def main():
    gpu = jax.default_backend() == "gpu"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", default="bf16" if gpu else "fp32,bf16")
    parser.add_argument("--lengths", default="1024,4096,16384" if gpu else "512,2048")
    parser.add_argument("--head-dims", default="64,128" if gpu else "64")
    parser.add_argument("--heads", type=int, default=16 if gpu else 8)
    parser.add_argument("--tokens", type=int, default=16384, help="of a batch on a GPU")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path)
    a = parser.parse_args()
    theirs = "cudnn" if gpu else "xla"
    by_method = functions(a.causal, theirs)
    device = jax.devices()[0].device_kind if gpu else flashtile.describe()["cpu"]
    print(f"{device}, jax {jax.__version__}, {'causal' if a.causal else 'full'}, {a.heads} heads; load "
          f"{os.getloadavg()[0]:.1f}")
    print(f"{'':30}{'flashtile ms':>13}{theirs + ' ms':>11}{'ratio':>7}   errors: flashtile, {theirs}")
    rows = []
    for dtype in a.dtypes.split(","):
        for d in map(int, a.head_dims.split(",")):
            for n in map(int, a.lengths.split(",")):
                random = np.random.default_rng(0)
                batch = max(1, a.tokens // n) if gpu else 1
                arrays = [jnp.asarray(random.standard_normal((batch, n, a.heads, d)), DTYPES[dtype]) for _ in range(4)]
                wanted = dense(*(np.asarray(x[0, :, 0], np.float64) for x in arrays), a.causal)
                for pass_name in ("forward", "with gradients"):
                    row = measure(pass_name, by_method, arrays, a.repeats, wanted)
                    ratio = row[theirs]["seconds"] / row["flashtile"]["seconds"]
                    rows.append({"dtype": dtype, "n": n, "head_dim": d, "batch": batch, "heads": a.heads,
                                 "causal": a.causal, "pass": pass_name, "ratio": ratio, **row})
                    errors = ", ".join(
                        "/".join(f"{e:.1e}" for e in (of["error"], of["error_of_gradients"]) if e is not None)
                        for of in (row["flashtile"], row[theirs]))
                    print(f"{f'{dtype} n={n} d={d} {pass_name}':30}{1e3 * row['flashtile']['seconds']:13.3f}"
                          f"{1e3 * row[theirs]['seconds']:11.3f}{ratio:7.2f}   {errors}", flush=True)
    if a.json:
        a.json.write_text(json.dumps({
            "command": " ".join(sys.argv), "machine": platform.platform(), "cpus": os.cpu_count(), "device": device,
            "load": os.getloadavg(), "jax": jax.__version__, "jaxlib": version("jaxlib"),
            "flashtile": flashtile.__version__, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
