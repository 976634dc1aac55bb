"""A run of the benchmark: what its works share. Points are measured while there is time, and after each point the JSON
file with all results so far is rewritten."""

import datetime
import gc
import json
import os
import platform
import sys
import time
import traceback

import torch

from gpu_bench.check import wrong_results
from gpu_bench.timing import REGIMES, ceilings, measure


class Run:
    def __init__(self, arguments, gpu, library):
        self.arguments, self.gpu, self.library = arguments, gpu, library
        self.deadline = time.monotonic() + arguments.seconds
        self.longest = 0.0  # seconds of the longest point so far
        self.rows = []      # of the paper's grid
        self.extra = {}     # of other works, by name
        self.left_out, self.wrong, self.failed = [], [], []
        self.finished = False
        self.ceilings = ceilings(gpu, arguments.rounds)
        print(f"ceilings: {json.dumps(self.ceilings)}", flush=True)

    def point(self, what, do, *arguments):
        """Calls do(run, *arguments) if as much time is left as the longest point so far took. An error ends this point
        only."""
        start = time.monotonic()
        if self.deadline - start < self.longest:
            self.left_out.append({"work": what, "reason": f"--seconds={self.arguments.seconds} do not suffice"})
            return
        try:
            do(self, *arguments)
        except Exception as error:
            traceback.print_exc()
            self.failed.append({"work": what, "reason": str(error)[:400]})
        self.longest = max(self.longest, time.monotonic() - start)
        gc.collect()
        self.gpu.free_memory()
        self.save()

    def right(self, problem, methods, kept=None):
        """The methods whose results are right. The others are noted as wrong."""
        wrong = wrong_results(problem, methods, kept)
        self.wrong += [{"method": m, **problem.row(), "what": w} for m, w in wrong.items()]
        for method, what in wrong.items():
            print(f"WRONG {method}: {what}", flush=True)
        return [m for m in methods if m.name not in wrong]

    def measure(self, calls):
        return measure(self.gpu, calls, self.arguments.rounds, self.arguments.regimes)

    def add_rows(self, rows, work, problem, measured):
        """A row for each method and regime."""
        for regime, methods in measured.items():
            for name, (seconds, mhz) in methods.items():
                tflops = problem.flops(work) / seconds / 1e12
                row = {"method": name, "pass": work, **problem.row(), "device": "cuda", "regime": regime,
                       "ms": seconds * 1e3, "tflops": tflops,
                       "ceiling_share": tflops / self.ceilings["gemm_bf16_tflops"][regime]}
                if mhz:
                    row["sm_mhz"] = mhz
                rows.append(row)

    def result(self):
        gpu = self.gpu
        return {"machine": {"gpu": gpu.name(), "cpu": platform.processor(), "driver": gpu.driver,
                            "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(),
                            "flashtile": self.library.version(), "ran": self.library.last_run(),
                            "command": " ".join(sys.argv),
                            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")},
                "finished": self.finished, "ceilings": self.ceilings, "rows": self.rows, **self.extra,
                "left_out": self.left_out, "wrong": self.wrong, "failed": self.failed}

    def save(self):
        path = self.arguments.json
        if not path:
            return
        unfinished = f"{path}.{os.getpid()}"
        with open(unfinished, "w", encoding="utf-8") as file:
            json.dump(self.result(), file, indent=1)
        os.replace(unfinished, path)


def say(what, measured, problem, work="forward"):
    regime = REGIMES[-1]
    speeds = [f"{name} {problem.flops(work) / seconds / 1e12:.0f}" for name, (seconds, _) in measured[regime].items()]
    print(f"{what}: {work} {', '.join(speeds)} TFLOP/s {regime}", flush=True)
