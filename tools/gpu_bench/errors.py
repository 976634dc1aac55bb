"""Measures errors: how far the results of flashtile and of its peers are from attention in fp64, as shares of standard
attention's errors. Multiplying q makes the rows of P peaked, as those of trained models are."""

from gpu_bench.check import RESULTS, reference
from gpu_bench.methods import Flashtile, make_methods
from gpu_bench.problem import Problem

TIMES = (1, 3, 10, 30)  # what q is multiplied by: the logits' standard deviation
SEQLEN, HEADS = 2048, 4
STANDARD = "torch_standard"


def errors_of(problem, methods):
    """{method: {result: (rms, largest)}}, over every head."""
    squares, largest, counts = {}, {}, {}
    for b in range(problem.batch):
        for h in range(problem.heads):
            exact = reference(problem, b, h, True)
            for method in methods:
                for name, ours, truth in zip(RESULTS, (method.out, *method.gradients), exact):
                    at = method.name, name
                    off = (problem.head(ours, b, h).double() - truth).abs()
                    squares[at] = squares.get(at, 0.0) + off.square().sum().item()
                    largest[at] = max(largest.get(at, 0.0), off.max().item())
                    counts[at] = counts.get(at, 0) + off.numel()
    return {m.name: {name: ((squares[m.name, name] / counts[m.name, name]) ** 0.5, largest[m.name, name])
                     for name in RESULTS} for m in methods}


def errors(run):
    a = run.arguments
    rows = run.extra.setdefault("errors", [])

    def point(run, head_dim, causal, times):
        problem = Problem(run.gpu, a.dtype, head_dim, causal, run.gpu.size(SEQLEN), 1, HEADS, q_times=times)
        names = [m for m in a.methods if m != STANDARD] + [STANDARD]  # the others are given as shares of its errors
        methods = make_methods(run.library, problem, names, run.left_out, a.fa3)
        if "flashtile" in names:
            methods.insert(1, Flashtile(run.library, problem, "flashtile_exact_max", exact_max=True))
        found = errors_of(problem, methods)
        for name in RESULTS:
            rms, largest = found[STANDARD][name]
            shares = {method: (of[name][0] / rms, of[name][1] / largest) for method, of in found.items()}
            for method, (share, most) in shares.items():
                rows.append({"method": method, **problem.row(), "result": name, "rms": found[method][name][0],
                             "largest": found[method][name][1], "rms_share": share, "largest_share": most})
            line = ", ".join(f"{method} {share:.3f} ({most:.2f})" for method, (share, most) in shares.items()
                             if method != STANDARD)
            print(f"errors d={head_dim} {'causal ' if causal else ''}q x{times}: {name} {line} of standard's rms "
                  "(largest)", flush=True)

    for head_dim in a.head_dim:
        for causal in a.causal:
            for times in TIMES:
                run.point(f"errors d={head_dim} causal={causal:d} q x{times}", point, head_dim, causal, times)
