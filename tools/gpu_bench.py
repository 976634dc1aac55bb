"""Times flashtile on a GPU beside PyTorch's attention, in one process, alternating on one stream.

    tools/gpu_bench.py --library=build/libflashtile.so --json=RESULT.json [--plot=RESULT.png]
    tools/gpu_bench.py --work=forward,backward --head-dim=128 --seqlen=512,16384 --seconds=120

Work: forward, backward (the FlashAttention-2 paper's grid: hidden dimension 2048, 16384 tokens), both in one timing
(`both`), deterministic (backward against the default one), dropout (slow-down of forward, and of PyTorch's), memory
(beyond the results), host (what a call costs the host, and the first call: needs --host-time, the program
flashtile_host_time). Methods: flashtile, torch_flash and torch_cudnn (scaled_dot_product_attention on those backends),
torch_standard (matmul, softmax, matmul), fa3 (FlashAttention-3, where --fa3 names a folder whose fa3.py loads it).

A GPU under load runs slower than a rested one, so each speed is taken twice: `burst`, five calls after idling, and
`sustained`, after 150 ms of the same load. A sample's calls are submitted while the GPU is still held up by a delay, so
that the host's own time does not count. A method gets no speed before its results have been compared with attention in
fp64, on whole heads. What does not fit into --seconds is left out, and said so. Exit codes: 0 ok, 1 a result was
wrong, 2 something is missing or failed.
"""

import argparse
import ctypes
import datetime
import gc
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

try:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError as missing:
    print(f"gpu_bench.py: {missing}; it needs PyTorch built for CUDA", file=sys.stderr)
    sys.exit(2)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from flashtile_torch import Library  # noqa: E402

METHODS = ("flashtile", "torch_flash", "torch_cudnn", "fa3", "torch_standard")
WORK = ("forward", "backward", "both", "deterministic", "dropout", "memory", "host")
REGIMES = ("burst", "sustained")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
BURST_CALLS = 5
IDLE = 0.1      # seconds before a burst
LOAD = 0.15     # seconds of load before a sustained sample
SAMPLE = 0.05   # seconds of a sustained sample, at least a call
ROUNDS = 3
GEMM = 8192
# Of rms of the fp64 reference: rounding to bf16 costs 0.002 to 0.01; a wrong mask, scale or head far more.
TOLERANCE = {"bf16": 0.02, "fp16": 0.004, "fp32": 1e-4}


class Gpu:
    """Time on a CUDA device."""

    device = torch.device("cuda")

    def __init__(self):
        try:
            import pynvml
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            self.sm_mhz = lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
            self.driver = pynvml.nvmlSystemGetDriverVersion()
        except Exception:  # the clock is then left out
            self.sm_mhz = lambda: None
            self.driver = None

    def name(self):
        return torch.cuda.get_device_name()

    def synchronize(self):
        torch.cuda.synchronize()

    def time(self, call, count):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(400_000 * count)  # clocks: about 0.2 ms a call, in which the host runs ahead
        start.record()
        for _ in range(count):
            call()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) / 1e3 / count


class Host:
    """The same on the CPU: a dry run of this program, where there is no GPU."""

    device = torch.device("cpu")
    driver = None

    def name(self):
        return platform.processor() or platform.machine()

    def sm_mhz(self):
        return None

    def synchronize(self):
        pass

    def time(self, call, count):
        start = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - start) / count


# --- methods ---------------------------------------------------------------------------------------------------------


class Problem:
    """Random inputs, (batch, seqlen, heads, head_dim)."""

    def __init__(self, gpu, dtype, head_dim, causal, seqlen, batch, heads, dropout=0.0):
        self.gpu, self.dtype, self.causal, self.dropout = gpu, dtype, causal, dropout
        self.head_dim, self.seqlen, self.batch, self.heads = head_dim, seqlen, batch, heads
        generator = torch.Generator(gpu.device).manual_seed(seqlen + head_dim)
        self.q, self.k, self.v, self.dout = (
            torch.randn(batch, seqlen, heads, head_dim, generator=generator, device=gpu.device).to(DTYPES[dtype])
            for _ in range(4))

    def flops(self, work):
        forward = 4.0 * self.seqlen**2 * self.head_dim * self.heads * self.batch * (0.5 if self.causal else 1.0)
        return forward * {"forward": 1.0, "backward": 2.5, "both": 3.5}[work]

    def row(self):
        return {"dtype": self.dtype, "head_dim": self.head_dim, "causal": self.causal, "seqlen": self.seqlen,
                "batch": self.batch, "heads": self.heads, "kv_heads": self.heads}


class Flashtile:
    name = "flashtile"

    def __init__(self, library, problem, name="flashtile", **options):
        p = problem
        self.name = name
        self.out = torch.full_like(p.q, math.nan)
        self.lse = torch.full((p.batch, p.heads, p.seqlen), math.nan, device=p.q.device)
        self.gradients = tuple(torch.full_like(x, math.nan) for x in (p.q, p.k, p.v))
        options = {"causal": p.causal, "dropout": p.dropout, "seed": 1} | options
        self.forward = library.forward(p.q, p.k, p.v, self.out, self.lse, **options)
        self.backward = library.backward(p.q, p.k, p.v, self.out, self.lse, p.dout, *self.gradients, **options)
        self.forward()
        self.backward()

    def both(self):
        self.forward()
        self.backward()


class Torch:
    """PyTorch's own, through autograd."""

    def __init__(self, problem, name):
        p = self.problem = problem
        self.name = name
        self.backend = {"torch_flash": SDPBackend.FLASH_ATTENTION, "torch_cudnn": SDPBackend.CUDNN_ATTENTION}.get(name)
        self.q, self.k, self.v = (x.detach().transpose(1, 2).requires_grad_() for x in (p.q, p.k, p.v))
        self.dout = p.dout.transpose(1, 2)
        self.hidden = None
        if self.backend is None and p.causal:
            self.hidden = torch.ones(p.seqlen, p.seqlen, dtype=torch.bool, device=p.q.device).triu(1)
        self.kept = self.attend()  # what the backward pass alone starts from
        self.backward()
        self.out = self.kept.detach().transpose(1, 2)
        self.gradients = tuple(g.transpose(1, 2) for g in self.made)

    def attend(self):
        p = self.problem
        if self.backend is not None:
            with sdpa_kernel(self.backend):
                return F.scaled_dot_product_attention(self.q, self.k, self.v, dropout_p=p.dropout, is_causal=p.causal)
        scores = torch.matmul(self.q * (1.0 / math.sqrt(p.head_dim)), self.k.transpose(-2, -1))
        if p.causal:
            scores = scores.masked_fill(self.hidden, -math.inf)
        return torch.matmul(torch.softmax(scores, -1), self.v)

    def forward(self):
        with torch.no_grad():
            self.attend()

    def backward(self):
        self.made = torch.autograd.grad(self.kept, (self.q, self.k, self.v), self.dout, retain_graph=True)

    def both(self):
        torch.autograd.grad(self.attend(), (self.q, self.k, self.v), self.dout)


class FlashAttention3:
    """load(folder) of fa3.py gives its two functions."""

    name = "fa3"
    loaded = {}

    def __init__(self, problem, folder):
        if folder not in self.loaded:
            sys.path.insert(0, folder)
            import fa3
            self.loaded[folder] = fa3.load(os.path.join(folder, "unpacked"))
        self.functions = self.loaded[folder]
        self.problem = problem
        self.out, self.lse = self.functions[0](problem.q, problem.k, problem.v, causal=problem.causal)
        self.gradients = self.backward()

    def forward(self):
        p = self.problem
        self.functions[0](p.q, p.k, p.v, causal=p.causal)

    def backward(self):
        p = self.problem
        return self.functions[1](p.dout, p.q, p.k, p.v, self.out, self.lse, causal=p.causal)

    def both(self):
        p = self.problem
        out, lse = self.functions[0](p.q, p.k, p.v, causal=p.causal)
        self.functions[1](p.dout, p.q, p.k, p.v, out, lse, causal=p.causal)


def make_methods(library, problem, names, left_out, fa3=None):
    makers = {"flashtile": lambda: Flashtile(library, problem), "fa3": lambda: FlashAttention3(problem, fa3)}
    methods = []
    for name in names:
        try:
            methods.append(makers.get(name, lambda: Torch(problem, name))())
        except Exception as error:  # no memory, or a backend that does not take the problem
            if name == "flashtile":
                raise
            left_out.append({"method": name, **problem.row(), "reason": str(error).split("\n")[0][:200]})
    return methods


# --- correctness -----------------------------------------------------------------------------------------------------


def reference(problem, b, h):
    """Attention of one head and its gradients, in fp64."""
    q, k, v, dout = (x[b, :, h].double() for x in (problem.q, problem.k, problem.v, problem.dout))
    scale = 1.0 / math.sqrt(problem.head_dim)
    s = q @ k.T * scale
    if problem.causal:
        s.masked_fill_(torch.ones_like(s, dtype=torch.bool).triu_(1), -math.inf)
    p = torch.softmax(s, -1)
    del s
    out = p @ v
    dv = p.T @ dout
    ds = dout @ v.T
    ds -= (dout * out).sum(-1, keepdim=True)
    ds *= p
    return out, ds @ k * scale, ds.T @ q * scale, dv


def wrong_results(problem, methods):
    """{method: what is wrong}: whole heads against fp64, and every other value against flashtile's for NaN and size."""
    wrong = {}
    heads = [(0, 0), (problem.batch - 1, problem.heads - 1)]
    for b, h in heads:
        exact = reference(problem, b, h)
        for method in methods:
            for name, ours, truth in zip(("out", "dq", "dk", "dv"), (method.out, *method.gradients), exact):
                error = (ours[b, :, h].double() - truth).square().mean().sqrt() / truth.square().mean().sqrt()
                if not error.item() <= TOLERANCE[problem.dtype]:
                    wrong[method.name] = f"{name} of batch {b}, head {h} is off by {error.item():.3g} (relative rms)"
    first = methods[0]
    for method in methods:
        for name, ours, others in zip(("out", "dq", "dk", "dv"), (method.out, *method.gradients),
                                      (first.out, *first.gradients)):
            scale = others.float().square().mean().sqrt()
            error = (ours.float() - others.float()).square().mean().sqrt() / scale
            if not error.item() <= 2 * TOLERANCE[problem.dtype]:
                wrong.setdefault(method.name, f"{name} differs from {first.name}'s by {error.item():.3g} (relative rms)")
    return wrong


# --- timing ----------------------------------------------------------------------------------------------------------


def sample(gpu, call, regime):
    gpu.synchronize()
    if regime == "burst":
        time.sleep(IDLE)
        return gpu.time(call, BURST_CALLS), None
    estimate = max(gpu.time(call, 1), 1e-6)
    gpu.time(call, max(1, math.ceil(LOAD / estimate)))
    seconds = gpu.time(call, max(1, math.ceil(SAMPLE / estimate)))
    return seconds, gpu.sm_mhz()


def measure(gpu, calls, rounds=ROUNDS):
    """{regime: {name: (median seconds, MHz)}}, the calls taking turns in an order that rotates."""
    result = {}
    names = list(calls)
    for regime in REGIMES:
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


def ceilings(gpu):
    n = GEMM if gpu.device.type == "cuda" else 512
    a, b = (torch.randn(n, n, device=gpu.device).bfloat16() for _ in range(2))
    source = torch.empty((1 << 30) if n == GEMM else (1 << 20), dtype=torch.uint8, device=gpu.device)
    target = torch.empty_like(source)
    measured = measure(gpu, {"gemm": lambda: torch.matmul(a, b), "copy": lambda: target.copy_(source)})
    return {"gemm_bf16_tflops": {r: 2.0 * n**3 / measured[r]["gemm"][0] / 1e12 for r in REGIMES},
            "copy_gbytes_per_s": {r: 2.0 * source.numel() / measured[r]["copy"][0] / 1e9 for r in REGIMES}}


class Run:
    def __init__(self, arguments, gpu, library):
        self.arguments, self.gpu, self.library = arguments, gpu, library
        self.deadline = time.monotonic() + arguments.seconds
        self.rows, self.left_out, self.wrong, self.extra = [], [], [], {}
        self.ceilings = ceilings(gpu)
        print(f"ceilings: {json.dumps(self.ceilings)}", flush=True)

    def out_of_time(self, what):
        if time.monotonic() < self.deadline:
            return False
        self.left_out.append({"work": what, "reason": f"--seconds={self.arguments.seconds} are over"})
        return True

    def problem(self, head_dim, causal, seqlen, dropout=0.0):
        a = self.arguments
        return Problem(self.gpu, a.dtype, head_dim, causal, seqlen, a.batch or max(1, a.tokens // seqlen),
                       a.heads or max(1, 2048 // head_dim), dropout)

    def add_rows(self, work, problem, measured):
        for regime, methods in measured.items():
            for name, (seconds, mhz) in methods.items():
                tflops = problem.flops(work) / seconds / 1e12
                row = {"method": name, "pass": work, **problem.row(), "device": "cuda", "regime": regime,
                       "ms": seconds * 1e3, "tflops": tflops,
                       "ceiling_share": tflops / self.ceilings["gemm_bf16_tflops"][regime]}
                if mhz:
                    row["sm_mhz"] = mhz
                self.rows.append(row)

    def grid(self, works):
        """Every pass of a point shares its inputs and its check. Long sequences first: they are what is asked for."""
        a = self.arguments
        for seqlen in sorted(a.seqlen, reverse=True):
            for head_dim in a.head_dim:
                for causal in a.causal:
                    what = f"{'+'.join(works)} d={head_dim} {'causal ' if causal else ''}n={seqlen}"
                    if self.out_of_time(what):
                        continue
                    problem = self.problem(head_dim, causal, seqlen)
                    methods = make_methods(self.library, problem, a.methods, self.left_out, a.fa3)
                    wrong = wrong_results(problem, methods)
                    self.wrong += [{"method": m, **problem.row(), "what": w} for m, w in wrong.items()]
                    right = [m for m in methods if m.name not in wrong]
                    for work in works:
                        self.add_rows(work, problem, measure(self.gpu, {m.name: getattr(m, work) for m in right}))
                    self.say(what, len(works) * len(REGIMES) * len(right), wrong)
                    del methods, right, problem
                    self.clean()

    def say(self, what, count, wrong):
        speeds = [f"{r['pass']} {r['method']} {r['tflops']:.0f}" for r in self.rows[len(self.rows) - count:]
                  if r["regime"] == "sustained"]
        print(f"{what}: {', '.join(speeds)} TFLOP/s sustained" + "".join(f"; WRONG {m}: {w}" for m, w in wrong.items()),
              flush=True)

    def clean(self):
        gc.collect()
        if self.gpu.device.type == "cuda":
            torch.cuda.empty_cache()

    def deterministic(self):
        rows = []
        for seqlen in sorted((n for n in self.arguments.seqlen if n >= 4096), reverse=True):
            for head_dim in self.arguments.head_dim:
                for causal in self.arguments.causal:
                    if self.out_of_time(f"deterministic d={head_dim} n={seqlen}"):
                        continue
                    problem = self.problem(head_dim, causal, seqlen)
                    methods = [Flashtile(self.library, problem),
                               Flashtile(self.library, problem, "deterministic", deterministic=True)]
                    wrong = wrong_results(problem, methods)
                    self.wrong += [{"method": m, **problem.row(), "what": w} for m, w in wrong.items()]
                    if not wrong:
                        measured = measure(self.gpu, {m.name: m.backward for m in methods})
                        for regime, by_name in measured.items():
                            rows.append({**problem.row(), "regime": regime,
                                         "slower": by_name["deterministic"][0] / by_name["flashtile"][0] - 1.0})
                    del methods, problem
                    self.clean()
        self.extra["deterministic"] = rows

    def dropout(self):
        """Slow-downs only: the masks differ, so results are compared elsewhere (the conformance list)."""
        rows = []
        for seqlen in sorted({n for n in self.arguments.seqlen if n in (2048, 16384)} or self.arguments.seqlen[-1:]):
            for head_dim in (d for d in self.arguments.head_dim if d <= 128):
                for causal in self.arguments.causal:
                    if self.out_of_time(f"dropout d={head_dim} n={seqlen}"):
                        continue
                    without = self.problem(head_dim, causal, seqlen)
                    dropped = self.problem(head_dim, causal, seqlen, 0.1)
                    calls = {}
                    for name, problem in (("", without), ("_dropout", dropped)):
                        for method in make_methods(self.library, problem, ("flashtile", "torch_flash"), self.left_out):
                            calls[method.name + name] = method.forward
                    measured = measure(self.gpu, calls)
                    for regime, by_name in measured.items():
                        slower = {m: by_name[m + "_dropout"][0] / by_name[m][0] - 1.0
                                  for m in ("flashtile", "torch_flash") if m + "_dropout" in by_name and m in by_name}
                        rows.append({**without.row(), "regime": regime, "slower": slower})
                    del calls, without, dropped
                    self.clean()
        self.extra["dropout"] = rows

    def memory(self):
        """What a call takes beside its results: what it says, and what the driver has less of while it runs."""
        rows = []
        for seqlen in (1024, 4096, 16384, 65536) if self.gpu.device.type == "cuda" else (128,):
            for head_dim in self.arguments.head_dim:
                a = self.arguments
                problem = Problem(self.gpu, a.dtype, head_dim, True, seqlen, 1, 8)
                method = Flashtile(self.library, problem)
                for work, call in (("forward", method.forward), ("backward", method.backward)):
                    self.gpu.synchronize()
                    row = {**problem.row(), "pass": work, "workspace_bytes": call.workspace(),
                           "dq_fp32_bytes": 4 * problem.q.numel(), "lse_bytes": 4 * method.lse.numel()}
                    if self.gpu.device.type == "cuda":
                        before = torch.cuda.mem_get_info()[0]
                        call()
                        row["taken_bytes"] = before - torch.cuda.mem_get_info()[0]
                        self.gpu.synchronize()
                    rows.append(row)
                del method, problem
                self.clean()
        self.extra["memory"] = rows

    def host(self):
        program = self.arguments.host_time
        if not program:
            self.left_out.append({"work": "host", "reason": "--host-time names no program"})
            return

        def run(*command, **environment):
            result = subprocess.run([program, *command], env=os.environ | environment, capture_output=True, text=True)
            if result.returncode != 0:
                raise RuntimeError(result.stderr.strip())
            return json.loads(result.stdout)

        try:
            self.extra["host"] = run()
            with tempfile.TemporaryDirectory() as cache:
                # NVRTC keeps what it compiled in the driver's cache, which is to be empty, too.
                empty = {"FLASHTILE_CACHE": cache, "CUDA_CACHE_PATH": os.path.join(cache, "driver")}
                self.extra["first_call"] = {"empty_cache": run("first", **empty), "warm_cache": run("first", **empty)}
        except (RuntimeError, OSError) as error:
            self.left_out.append({"work": "host", "reason": str(error)[:200]})


# --- what it comes to ------------------------------------------------------------------------------------------------


def ratios(rows, work, other, regime, head_dim=None):
    """flashtile's speed over another method's, at every point."""
    def key(row):
        return row["head_dim"], row["causal"], row["seqlen"]

    chosen = [r for r in rows if r["pass"] == work and r["regime"] == regime and head_dim in (None, r["head_dim"])]
    theirs = {key(r): r["tflops"] for r in chosen if r["method"] == other}
    return [r["tflops"] / theirs[key(r)] for r in chosen if r["method"] == "flashtile" and key(r) in theirs]


def table(run):
    lines = []

    def line(what, found, floor, ok):
        lines.append(f"{what:<52} {found:<34} {floor:<26} {'' if ok is None else 'ok' if ok else 'UNDER'}")

    floors = {("forward", "torch_flash"): (1.0, 1.08), ("backward", "torch_flash"): (1.0, 1.1),
              ("forward", "torch_standard"): (3.0, 3.0), ("backward", "torch_standard"): (3.0, 3.0)}
    for work in ("forward", "backward", "both"):
        for other in METHODS[1:]:
            for regime in REGIMES:
                found = ratios(run.rows, work, other, regime)
                if not found:
                    continue
                floor = floors.get((work, other))
                ok = floor and min(found) >= floor[0] and statistics.median(found) >= floor[1]
                line(f"{work} over {other}, {regime}, {len(found)} points",
                     f"min {min(found):.2f} median {statistics.median(found):.2f} max {max(found):.2f}",
                     f"floor {floor[0]:.2f}, median {floor[1]:.2f}" if floor else "", ok)
    for regime in REGIMES:
        ms = {(r["pass"], r["head_dim"], r["causal"]): r["ms"] for r in run.rows
              if r["method"] == "flashtile" and r["regime"] == regime and r["seqlen"] == 16384}
        for work, head_dim, causal in sorted(ms):
            if causal and (work, head_dim, False) in ms:
                faster = ms[work, head_dim, False] / ms[work, head_dim, True]
                line(f"{work} causal over full, 16k, d={head_dim}, {regime}", f"{faster:.2f}", "floor 1.80", faster >= 1.8)
    if slower := [r["slower"] for r in run.extra.get("deterministic", [])]:
        line("backward deterministic, 4k and up", f"at most {100 * max(slower):.0f}% slower", "at most 25%",
             max(slower) <= 0.25)
    for r in run.extra.get("dropout", []):
        ours, theirs = (r["slower"].get(m) for m in ("flashtile", "torch_flash"))
        if ours is not None and theirs is not None:
            line(f"dropout forward, d={r['head_dim']} n={r['seqlen']} causal={r['causal']:d}, {r['regime']}",
                 f"{100 * ours:.0f}% slower, FA2 {100 * theirs:.0f}%", "at most twice FA2's", ours <= 2 * theirs)
    if host := run.extra.get("host"):
        beyond = host["forward_beyond_launch_us"]
        line("host time of a warm forward beyond a launch",
             f"{beyond:.2f} us ({host['forward_us']:.2f} - {host['launch_us']:.2f})", "under 1.5 us", beyond < 1.5)
    if first := run.extra.get("first_call"):
        cold, warm = (first[c]["first_forward_s"] for c in ("empty_cache", "warm_cache"))
        line("first forward, empty cache", f"{cold:.2f} s", "under 3 s", cold < 3)
        line("first forward, warm disk cache", f"{warm * 1e3:.1f} ms", "under 30 ms", warm < 0.03)
    for r in run.extra.get("memory", []):
        line(f"extra memory, {r['pass']}, d={r['head_dim']} n={r['seqlen']}",
             f"{r['workspace_bytes'] / 2**20:.2f} MiB, taken {r.get('taken_bytes', 0) / 2**20:.0f} MiB",
             f"dq in fp32 is {r['dq_fp32_bytes'] / 2**20:.1f}" if r["pass"] == "backward" else "", None)
    for item in run.left_out:
        lines.append(f"left out: {json.dumps(item)}")
    for item in run.wrong:
        lines.append(f"WRONG RESULT, no speed: {json.dumps(item)}")
    return lines


def whole_numbers(text):
    return [int(part) for part in text.split(",")]


def names_of(allowed):
    def parse(text):
        names = text.split(",")
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"is {name!r}, allowed are {', '.join(allowed)}")
        return names
    return parse


def parse_arguments():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=os.path.join(here, "../build/libflashtile.so"))
    parser.add_argument("--host-time", help="the program flashtile_host_time")
    parser.add_argument("--work", type=names_of(WORK), default=[w for w in WORK if w != "both"])
    parser.add_argument("--methods", type=names_of(METHODS), help="default: all, fa3 only with --fa3")
    parser.add_argument("--fa3", help="folder of fa3.py, which loads FlashAttention-3")
    parser.add_argument("--head-dim", type=whole_numbers, default=[128, 64, 256])
    parser.add_argument("--seqlen", type=whole_numbers, default=[512, 1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--causal", choices=("0", "1", "both"), default="both")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--batch", type=int, help="default: tokens / seqlen")
    parser.add_argument("--heads", type=int, help="default: 2048 / head dimension")
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--json", help="write the results to this file")
    parser.add_argument("--plot", help="draw speeds as the paper's Figure 4 into this PNG file")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a dry run of this program")
    arguments = parser.parse_args()
    if arguments.methods is None:
        arguments.methods = [m for m in METHODS if m != "fa3" or arguments.fa3]
    elif "fa3" in arguments.methods and not arguments.fa3:
        parser.error("--methods=fa3 needs --fa3=FOLDER")
    arguments.causal = {"0": [False], "1": [True], "both": [False, True]}[arguments.causal]
    return arguments


def main():
    arguments = parse_arguments()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("gpu_bench.py: PyTorch sees no CUDA GPU", file=sys.stderr)
        return 2
    gpu = Gpu() if arguments.device == "cuda" else Host()
    library = Library(os.path.abspath(arguments.library))
    run = Run(arguments, gpu, library)
    for name in ("host", "memory"):  # short, and wanted from every run
        if name in arguments.work:
            getattr(run, name)()
    if passes := [w for w in ("forward", "backward", "both") if w in arguments.work]:
        run.grid(passes)
    for name in ("deterministic", "dropout"):
        if name in arguments.work:
            getattr(run, name)()

    result = {"machine": {"gpu": gpu.name(), "cpu": platform.processor(), "driver": gpu.driver, "torch": torch.__version__,
                          "cudnn": torch.backends.cudnn.version(), "flashtile": library.version(),
                          "ran": library.last_run(), "command": " ".join(sys.argv),
                          "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")},
              "ceilings": run.ceilings, "rows": run.rows, **run.extra, "left_out": run.left_out, "wrong": run.wrong}
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    if arguments.plot and run.rows:
        import plot_bench
        plot_bench.draw(result, arguments.plot)
    print("\n".join(table(run)))
    return 1 if run.wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception:  # not to be taken for a wrong result
        traceback.print_exc()
        sys.exit(2)
