"""Compares calls of attention on caches: each side's result with fp64 before it is timed, then the times of all sides,
whose samples alternate. On the GPU calls stand in a CUDA graph, so that the host's time does not count, and take turns
at several caches, which together exceed the L2 cache."""

import math
import traceback
import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch

from gpu_bench.cache import Cache
from gpu_bench.check import TOLERANCE

CALLS = 20            # in a graph, or more where it takes more caches; and in a sample of the host's time
BEYOND_L2 = 1 << 28   # bytes
HOST_SAMPLES = 200
HOST = "host"         # the regime of a row of the host's time


class Side(NamedTuple):
    make_cache: Callable[[int], Cache]  # from a seed
    make_call: Callable[[Cache], Callable]


def of_other(name, times=1.0, plus=0.0):
    """A floor that is made of another side's time in the same run: none where that side has no time."""
    return lambda us: us[name] * times + plus if name in us else None


def seeds(gpu, first):
    return range(1, math.ceil(BEYOND_L2 / max(1, first.bytes()))) if gpu.device.type == "cuda" else ()


class Contest:
    """Sides by name. Those whose name begins with flashtile must be able to compute the problem; a peer that refuses it
    is left out, with its reason."""

    def __init__(self, run, what, sides):
        self.run, self.what, self.sides = run, what, sides
        self.first = {}   # of each side that is right: a cache
        self.errors = {}  # relative rms

    def row(self, regime, us, floor, **more):
        self.run.extra["decode"].append({"point": self.what, "regime": regime, "us": us, "rms_error": self.errors,
                                         "floor_us": floor(us), **more})

    def prepared(self, prepare):
        """{name: prepare(side, its first cache, its call)} of the sides whose results are right."""
        made = {}
        for name, side in self.sides.items():
            with warnings.catch_warnings(record=True) as said:  # PyTorch warns why a backend refuses
                warnings.simplefilter("always")
                try:
                    cache = side.make_cache(0)
                    call = side.make_call(cache)
                    if self.right(name, cache.error(call())):
                        made[name] = prepare(side, cache, call)
                        self.first[name] = cache
                except Exception as error:
                    self.refused(name, [str(error), *(str(one.message).split(" (Triggered ")[0] for one in said)])
        return made

    def right(self, name, error):
        if error <= TOLERANCE[self.run.arguments.dtype]:
            self.errors[name] = error
            return True
        what = f"off by {error:.3g}"
        self.run.wrong.append({"method": name, "work": f"decode {self.what}", "what": what})
        print(f"WRONG {name}: decode {self.what}: {what} (relative rms)", flush=True)
        return False

    def refused(self, name, reasons):
        ours = name.startswith("flashtile")
        if ours:
            traceback.print_exc()
        reason = "; ".join(reason.split("\n")[0] for reason in reasons)[:600]
        (self.run.failed if ours else self.run.left_out).append(
            {"work": f"decode {self.what}", "method": name, "reason": reason})

    def time(self, floor, **more):
        """Adds a row for each regime: microseconds and errors of each side, bytes of its cache and FLOPs a second."""
        gpu = self.run.gpu

        def graph(side, cache, call):
            ready = [call, *(side.make_call(side.make_cache(seed)) for seed in seeds(gpu, cache))]
            chosen = [ready[n % len(ready)] for n in range(max(CALLS, len(ready)))]
            return gpu.graph(chosen), chosen

        made = self.prepared(graph)  # keeps the calls, and so their caches, whose memory a graph does not hold
        if not made:
            return
        for regime, times in self.run.measure({name: replay for name, (replay, _) in made.items()}).items():
            us = {name: 1e6 * seconds / len(made[name][1]) for name, (seconds, _) in times.items()}
            gbytes = {name: self.first[name].bytes() / t / 1e3 for name, t in us.items()}
            tflops = {name: self.first[name].flops() / t / 1e6 for name, t in us.items()}
            self.row(regime, us, floor, gbytes_per_s=gbytes, tflops=tflops, **more)
        self.say(regime, {name: f"{t:.1f} us, {gbytes[name]:.0f} GB/s, {tflops[name]:.0f} TFLOP/s"
                          for name, t in us.items()})

    def time_host(self, floor):
        """Adds a row with how long the host takes for a call, eager and without gradients. A sample begins with an idle
        GPU, which takes less time for such a problem than the host does, so that the host never waits."""
        from python_overhead import measure  # imports flashtile
        with torch.no_grad():
            made = self.prepared(lambda side, cache, call: call)
            if not made:
                return
            us = measure(made, CALLS, HOST_SAMPLES, self.run.gpu.synchronize)
        self.row(HOST, us, floor)
        self.say(HOST, {name: f"{t:.1f} us" for name, t in us.items()})

    def say(self, regime, sides):
        said = "; ".join(f"{name} {speed} (error {self.errors[name]:.5f})" for name, speed in sides.items())
        print(f"decode {self.what}, {regime}: {said}", flush=True)
