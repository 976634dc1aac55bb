"""Measures how long calls take: in a burst after a pause, and sustained under the same load. Methods take turns."""

import math
import statistics
import time

import torch

REGIMES = ("burst", "sustained")
BURST_CALLS = 5
IDLE = 0.1      # seconds before a burst
LOAD = 0.15     # seconds of load before a sustained sample
SAMPLE = 0.05   # seconds of a sustained sample, at least a call
GEMM = 8192


def sample(gpu, call, regime):
    gpu.synchronize()
    if regime == "burst":
        time.sleep(IDLE)
        return gpu.time(call, BURST_CALLS), None
    estimate = max(gpu.time(call, 1), 1e-6)
    gpu.time(call, max(1, math.ceil(LOAD / estimate)))
    seconds = gpu.time(call, max(1, math.ceil(SAMPLE / estimate)))
    return seconds, gpu.sm_mhz()


def measure(gpu, calls, rounds, regimes=REGIMES):
    """{regime: {name: (median seconds, MHz)}}. The calls take turns in an order that rotates."""
    for call in calls.values():
        call()  # whatever is compiled or loaded at first
    result = {}
    names = list(calls)
    for regime in regimes:
        samples = {name: [] for name in names}
        for turn in range(rounds):
            for n in range(len(names)):
                name = names[(turn + n) % len(names)]
                samples[name].append(sample(gpu, calls[name], regime))
        result[regime] = {}
        for name in names:
            mhz = [m for _, m in samples[name] if m is not None]
            result[regime][name] = (statistics.median(s for s, _ in samples[name]), max(mhz, default=None))
    return result


def ceilings(gpu, rounds):
    n = GEMM if gpu.device.type == "cuda" else 512
    a, b = (torch.randn(n, n, device=gpu.device).bfloat16() for _ in range(2))
    source = torch.empty((1 << 30) if n == GEMM else (1 << 20), dtype=torch.uint8, device=gpu.device)
    target = torch.empty_like(source)
    measured = measure(gpu, {"gemm": lambda: torch.matmul(a, b), "copy": lambda: target.copy_(source)}, rounds)
    return {"gemm_bf16_tflops": {r: 2.0 * n**3 / measured[r]["gemm"][0] / 1e12 for r in REGIMES},
            "copy_gbytes_per_s": {r: 2.0 * source.numel() / measured[r]["copy"][0] / 1e9 for r in REGIMES}}
