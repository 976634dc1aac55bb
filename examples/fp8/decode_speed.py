"""What decoding on an e4m3 cache costs beside a cache of q's type: both in turns in one process, CPU time and wall time
a call, medians of rounds.

    python examples/fp8/decode_speed.py                       # bf16 queries, 1 and 2 threads
    python examples/fp8/decode_speed.py --dtype=fp16 --batch=8
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

import flashtile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("bf16", "fp16"), default="bf16")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seqlen", type=int, default=8192)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    torch.manual_seed(0)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[options.dtype]
    shape = (options.batch, options.seqlen, options.kv_heads, options.head_dim)
    q = torch.randn(options.batch, 1, options.heads, options.head_dim).to(dtype)
    k, v = (torch.empty(shape, dtype=dtype).uniform_(-1, 1) for _ in range(2))
    k8, v8 = (x.to(torch.float8_e4m3fn) for x in (k, v))
    blocks = -(-options.seqlen // 64)
    of_heads = torch.ones(options.batch, options.kv_heads)
    of_blocks = torch.ones(options.batch, options.kv_heads, blocks)
    ways = {
        options.dtype: lambda: flashtile.attention(q, k, v),
        "e4m3, a scale a head": lambda: flashtile.attention(q, k8, v8, k_scale=of_heads, v_scale=of_heads),
        "e4m3, scales of 64 rows": lambda: flashtile.attention(
            q, k8, v8, k_scale=of_blocks, v_scale=of_blocks, scale_block=64
        ),
    }
    print(f"{2 * k.nbytes / 1e6:.0f} MB of K and V in {options.dtype}, {2 * k8.nbytes / 1e6:.0f} MB in e4m3")
    for threads in options.threads:
        torch.set_num_threads(threads)
        cpu, wall = ({name: [] for name in ways} for _ in range(2))
        for name, way in ways.items():
            way()
        for _ in range(options.rounds):
            for name, way in ways.items():
                started = time.process_time(), time.perf_counter()
                way()
                cpu[name].append(time.process_time() - started[0])
                wall[name].append(time.perf_counter() - started[1])
        for name in ways:
            of_cpu, of_wall = (
                statistics.median(first / own for first, own in zip(times[options.dtype], times[name]))
                for times in (cpu, wall)
            )
            print(
                f"{threads} threads, {name:24} {1e3 * statistics.median(cpu[name]):7.2f} ms of CPU, {of_cpu:.2f} times as fast;"
                f" {1e3 * statistics.median(wall[name]):7.2f} ms, {of_wall:.2f} times"
            )


if __name__ == "__main__":
    main()
