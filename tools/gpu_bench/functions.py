"""The work that compares score and mask functions (docs/functions.md) with PyTorch's compiled FlexAttention, with the
built-in options that say the same, and block-sparse patterns with dense attention. Speeds count the pairs of a query and
a key that a pattern shows."""

import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Optional

import torch

from gpu_bench.check import RESULTS, TOLERANCE, off_by
from gpu_bench.methods import Flashtile
from gpu_bench.problem import Problem

PASSES = "forward", "backward"
WINDOW, DOCUMENT, DISTANCE = 1024, 1024, 128
BLOCKS = 128, 64  # queries and keys of a block
DENSITIES = (0.5, 0.25, 0.125)


class Pattern(NamedTuple):
    """Texts with their tensors, and the functions of FlexAttention's that say the same."""

    score: Optional[str] = None
    mask: Optional[str] = None
    tensors: dict = {}
    score_mod: Optional[Callable] = None
    mask_mod: Optional[Callable] = None
    builtin: Optional[dict] = None  # options of a Problem that say the same
    lists: Optional[tuple] = None  # of blocks, in place of the texts: counts, indices and the size of a block


def patterns(problem):
    device, n, heads = problem.q.device, problem.seqlen, problem.heads
    document = (torch.arange(n, device=device) // DOCUMENT).int()
    prefix = torch.full((problem.batch,), n // 4, dtype=torch.int32, device=device)
    slopes = torch.logspace(-1, -8, heads, 2.0, device=device)
    table = torch.randn(heads, 2 * DISTANCE + 1, generator=torch.Generator(device).manual_seed(1), device=device)

    def causal(b, h, i, j):
        return i >= j

    return {
        "causal": Pattern(mask="i >= j", mask_mod=causal, builtin={"causal": True}),
        "window": Pattern(mask=f"i >= j && i - j <= {WINDOW}", mask_mod=lambda b, h, i, j: (i >= j) & (i - j <= WINDOW),
                          builtin={"window": (WINDOW, 0)}),
        "documents": Pattern(mask="document[i] == document[j]", tensors={"document": document},
                             mask_mod=lambda b, h, i, j: document[i] == document[j],
                             builtin={"lengths": [DOCUMENT] * (problem.batch * n // DOCUMENT)}),
        "prefix_lm": Pattern(mask="j < prefix[b] || i >= j", tensors={"prefix": prefix},
                             mask_mod=lambda b, h, i, j: (j < prefix[b]) | (i >= j)),
        "alibi": Pattern("s - slopes[h] * abs(i - j)", "i >= j", {"slopes": slopes},
                         lambda s, b, h, i, j: s - slopes[h] * (i - j).abs(), causal,
                         {"causal": True, "alibi": True}),
        "relative": Pattern(f"s + table[h, min(max(j - i, -{DISTANCE}), {DISTANCE}) + {DISTANCE}]", None,
                            {"table": table},
                            lambda s, b, h, i, j: s + table[h, (j - i).clamp(-DISTANCE, DISTANCE) + DISTANCE]),
    }


def block_sparse(problem, density, block):
    """Lists of random blocks of the scores, at least one of each block of queries."""
    blocks = max(1, problem.seqlen // block)
    generator = torch.Generator().manual_seed(round(1000 * density) + blocks)
    rank = torch.rand(blocks, blocks, generator=generator).argsort(1).argsort(1)
    listed = max(1, round(density * blocks))
    shown = (rank < listed).to(problem.q.device)
    counts = torch.full((1, 1, blocks), listed, dtype=torch.int32, device=problem.q.device)
    return Pattern(mask_mod=lambda b, h, i, j: shown[i // block, j // block],
                   lists=(counts, rank.argsort(1).int()[None, None].to(problem.q.device), (block, block)))


def shown_by(pattern, problem, b, h):
    """(seqlen, seqlen), or None where everything is shown."""
    if pattern.mask_mod is None:
        return None
    i = torch.arange(problem.seqlen, device=problem.q.device)
    return pattern.mask_mod(b, h, i[:, None], i[None, :])


def pairs(pattern, problem):
    shown = shown_by(pattern, problem, 0, 0)
    return problem.batch * (problem.seqlen**2 if shown is None else int(shown.sum()))


def reference(pattern, problem, b, h):
    """One head in fp64, with its gradients, by autograd."""
    q, k, v = (problem.head(x, b, h).double().requires_grad_() for x in (problem.q, problem.k, problem.v))
    s = (q @ k.T) * problem.scale()
    i = torch.arange(problem.seqlen, device=q.device)
    if pattern.score_mod is not None:
        s = pattern.score_mod(s, b, h, i[:, None], i[None, :])
    if (shown := shown_by(pattern, problem, b, h)) is not None:
        s = s.masked_fill(~shown, -math.inf)
    out = torch.softmax(s, -1) @ v
    return out.detach(), *torch.autograd.grad(out, (q, k, v), problem.head(problem.dout, b, h).double())


class Flex:
    """PyTorch's FlexAttention, compiled, with a block mask that is made beforehand."""

    name = "torch_flex"

    def __init__(self, problem, pattern, autotuned, backward):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        p, n = problem, problem.seqlen
        self.q, self.k, self.v = (x.detach().transpose(1, 2).requires_grad_() for x in (p.q, p.k, p.v))
        self.dout = p.dout.transpose(1, 2)
        self.mask, self.mask_ms = None, None
        if pattern.mask_mod is not None:
            def make():
                return create_block_mask(pattern.mask_mod, p.batch, None, n, n, p.q.device, _compile=True)
            make()  # compiles
            p.gpu.synchronize()
            start = time.perf_counter()
            self.mask = make()
            p.gpu.synchronize()
            self.mask_ms = 1e3 * (time.perf_counter() - start)
        torch._dynamo.reset()
        mode = "max-autotune-no-cudagraphs" if autotuned else "default"
        compiled = torch.compile(flex_attention, dynamic=False, mode=mode)
        self.attend = lambda: compiled(self.q, self.k, self.v, pattern.score_mod, self.mask)
        if not backward:
            with torch.no_grad():
                self.out, self.gradients, self.backward = self.attend().transpose(1, 2), (), None
            return
        self.kept = self.attend()
        self.out = self.kept.detach().transpose(1, 2)
        self.backward()
        self.gradients = tuple(g.transpose(1, 2) for g in self.made)

    def forward(self):
        with torch.no_grad():
            self.attend()

    def backward(self):
        self.made = torch.autograd.grad(self.kept, (self.q, self.k, self.v), self.dout, retain_graph=True)


def wrong(pattern, problem, method):
    """What is wrong with a method's results, or None: whole heads are compared with fp64."""
    for b, h in {(0, 0), (problem.batch - 1, problem.heads - 1)}:
        for name, ours, truth in zip(RESULTS, (method.out, *method.gradients), reference(pattern, problem, b, h)):
            error = off_by(problem.head(ours, b, h).double(), truth)
            if not error <= TOLERANCE[problem.dtype]:
                return f"{name} of batch {b}, head {h} is off by {error:.3g} (relative rms)"
    return None


def right_ones(run, what, problem, pattern, methods):
    """The methods whose results are right. The others are noted as wrong."""
    right = []
    for method in methods:
        if (reason := wrong(pattern, problem, method)) is None:
            right.append(method)
        else:
            run.wrong.append({"method": method.name, "work": f"functions {what}", "what": reason})
            print(f"WRONG {method.name}: functions {what}: {reason}", flush=True)
    return right


def add_rows(run, what, problem, pattern, methods, **more):
    """Adds a row of times and speeds for each pass and regime."""
    flops = 4.0 * problem.head_dim * problem.heads * pairs(pattern, problem)
    for work, factor in zip(PASSES, (1.0, 2.5)):
        if work not in run.arguments.passes:
            continue
        calls = {m.name: getattr(m, work) for m in methods if getattr(m, work) is not None}
        if run.arguments.kernels:
            for name, call in calls.items():
                kernels = run.gpu.kernels(call)
                said = ", ".join(f"{kernel[:40]} {us:.1f} us" for kernel, us in kernels) if kernels else "not known"
                print(f"kernels of {what} d={problem.head_dim} n={problem.seqlen} {work} {name}: {said}", flush=True)
        for regime, times in run.measure(calls).items():
            ms = {name: 1e3 * seconds for name, (seconds, _) in times.items()}
            tflops = {name: factor * flops / t / 1e9 for name, t in ms.items()}
            run.extra["functions"].append({"pattern": what, **problem.row(), "pass": work, "regime": regime, "ms": ms,
                                           "tflops": tflops, **more})
            said = ", ".join(f"{name} {ms[name]:.3f} ms {speed:.0f} TFLOP/s" for name, speed in tflops.items())
            print(f"functions {what} d={problem.head_dim} n={problem.seqlen} {work} {regime}: {said}", flush=True)


def with_functions(run, problem, pattern, name="flashtile"):
    return Flashtile(run.library, problem, name, score=pattern.score, mask_function=pattern.mask,
                     function_tensors=pattern.tensors, block_lists=pattern.lists)


def builtin_problem(problem, options):
    """The same inputs with built-in options, packed where these say so."""
    lengths = options.get("lengths")
    batch, seqlen = (problem.batch, problem.seqlen) if lengths is None else (len(lengths), max(lengths))
    return Problem(problem.gpu, problem.dtype, problem.head_dim, options.get("causal", False), seqlen, batch,
                   problem.heads, **{name: value for name, value in options.items() if name != "causal"})


def compile_ahead(run, chosen):
    """Calls each kernel once, on several threads, since compiling takes seconds."""
    a = run.arguments

    def make(item):
        seqlen, head_dim, what = item
        problem = Problem(run.gpu, a.dtype, head_dim, False, seqlen, 1, a.heads or 2048 // head_dim)
        if what == "block_sparse":
            for block in BLOCKS:
                with_functions(run, problem, block_sparse(problem, DENSITIES[0], block))
            return Flashtile(run.library, problem)
        pattern = patterns(problem)[what]
        with_functions(run, problem, pattern)
        if pattern.builtin:
            Flashtile(run.library, builtin_problem(problem, pattern.builtin))

    items = [(seqlen, head_dim, what) for seqlen in a.seqlen for head_dim in a.head_dim for what in chosen]
    start = time.perf_counter()
    with ThreadPoolExecutor(max(1, os.cpu_count())) as pool:
        for made in [pool.submit(make, item) for item in items]:
            try:
                made.result()
            except Exception as error:  # the point will say so
                print(f"compiling ahead: {str(error)[:200]}", flush=True)
    print(f"compiled in {time.perf_counter() - start:.1f} s", flush=True)


def functions(run):
    a = run.arguments
    run.extra.setdefault("functions", [])
    chosen = a.patterns or [*patterns(Problem(run.gpu, a.dtype, 64, False, 128, 1, 1)), "block_sparse"]

    def problem_of(head_dim, seqlen):
        return Problem(run.gpu, a.dtype, head_dim, False, seqlen, a.batch or max(1, a.tokens // seqlen),
                       a.heads or 2048 // head_dim)

    def point(run, what, head_dim, seqlen):
        problem = problem_of(head_dim, seqlen)
        pattern = patterns(problem)[what]
        methods = [with_functions(run, problem, pattern)]
        more = {}
        if a.flex != "none":
            try:
                tuned = a.flex == "autotuned" and (a.flex_autotuned is None or what in a.flex_autotuned)
                methods.append(Flex(problem, pattern, tuned, "backward" in a.flex_passes))
                more["flex_autotuned"] = tuned
                more["flex_block_mask_ms"] = methods[-1].mask_ms
            except Exception as error:
                run.left_out.append({"method": "torch_flex", "work": f"functions {what}",
                                     "reason": str(error).split("\n")[0][:200]})
        right = right_ones(run, what, problem, pattern, methods)
        if pattern.builtin and right:  # its results are checked by other works
            right.append(Flashtile(run.library, builtin_problem(problem, pattern.builtin), "builtin"))
        if right:
            add_rows(run, what, problem, pattern, right, **more)

    def sparse(run, head_dim, seqlen):
        problem = problem_of(head_dim, seqlen)
        methods = {}
        for density, block in ((density, block) for block in BLOCKS for density in DENSITIES):
            pattern = block_sparse(problem, density, block)
            method = with_functions(run, problem, pattern, f"density_{density}_of_{block}")
            if right_ones(run, method.name, problem, pattern, [method]):
                methods[method.name] = method
        methods["dense"] = Flashtile(run.library, problem, "dense")
        add_rows(run, "block_sparse", problem, Pattern(), methods.values())
        for row in run.extra["functions"][-len(a.passes) * len(a.regimes):]:
            faster = {name: row["ms"]["dense"] / ms for name, ms in row["ms"].items()}
            print(f"block_sparse d={head_dim} n={seqlen} {row['pass']} {row['regime']}, times as fast as dense: "
                  + ", ".join(f"{name} {x:.2f}" for name, x in faster.items()), flush=True)

    compile_ahead(run, chosen)
    for seqlen in a.seqlen:
        for head_dim in a.head_dim:
            for what in chosen:
                if what == "block_sparse":
                    run.point(f"functions {what} d={head_dim} n={seqlen}", sparse, head_dim, seqlen)
                else:
                    run.point(f"functions {what} d={head_dim} n={seqlen}", point, what, head_dim, seqlen)
