"""Works that compare flashtile with itself: how much slower determinism, dropout, a window, packing and each other
option make it."""

from gpu_bench.methods import SEED, FlashAttention3, Flashtile, make_flashtile, make_methods
from gpu_bench.problem import SOFTCAP, Problem
from gpu_bench.speeds import ONE_WAY, name_of, paper_problem
from gpu_bench.timing import REGIMES

# 16 sequences of 1024 tokens on average, which have as many pairs of queries and keys as 8 sequences of 2048.
VARLEN = [284, 1097, 35, 278, 738, 160, 749, 351, 2443, 3423, 78, 2770, 1511, 803, 38, 1626]
VARLEN_DENSE = (8, 2048)  # batch, seqlen
WINDOW = 1024
DROPOUT = 0.1


def seconds(measured, regime):
    return {name: time for name, (time, _) in measured[regime].items()}


def deterministic(run):
    a = run.arguments
    rows = run.extra.setdefault("deterministic", [])

    def point(run, head_dim, causal, seqlen):
        problem = paper_problem(run, head_dim, causal, seqlen)
        methods = [Flashtile(run.library, problem),
                   Flashtile(run.library, problem, "deterministic", deterministic=True)]
        if len(run.right(problem, methods)) < 2:
            return
        measured = run.measure({m.name: m.backward for m in methods})
        for regime in REGIMES:
            time = seconds(measured, regime)
            rows.append({**problem.row(), "regime": regime, "slower": time["deterministic"] / time["flashtile"] - 1.0})

    for seqlen in sorted((n for n in a.seqlen if n >= run.gpu.size(4096)), reverse=True):
        for head_dim in a.head_dim:
            for causal in a.causal:
                run.point(name_of("deterministic", head_dim, causal, seqlen), point, head_dim, causal, seqlen)


def dropout(run):
    """Measures times only. flashtile and PyTorch draw different dropout masks, so results are checked elsewhere (by the
    conformance list)."""
    a = run.arguments
    rows = run.extra.setdefault("dropout", [])

    def point(run, head_dim, causal, seqlen):
        without = paper_problem(run, head_dim, causal, seqlen)
        dropped = paper_problem(run, head_dim, causal, seqlen, dropout=DROPOUT)
        names = "flashtile", "torch_flash"
        methods = {method.name + suffix: method for suffix, problem in (("", without), ("_dropout", dropped))
                   for method in make_methods(run.library, problem, names, run.left_out)}
        for work in ONE_WAY:
            measured = run.measure({name: getattr(method, work) for name, method in methods.items()})
            for regime in REGIMES:
                time = seconds(measured, regime)
                slower = {m: time[m + "_dropout"] / time[m] - 1.0
                          for m in names if m + "_dropout" in time and m in time}
                rows.append({**without.row(), "pass": work, "regime": regime, "slower": slower,
                             "ms": {name: 1e3 * t for name, t in time.items()}})

    for seqlen in sorted({n for n in a.seqlen if n in (2048, 16384)} or a.seqlen[-1:]):
        for head_dim in (d for d in a.head_dim if d <= 128):
            for causal in a.causal:
                run.point(name_of("dropout", head_dim, causal, seqlen), point, head_dim, causal, seqlen)


def tile_of(run, method):
    """The kernel's tile. A dry run on the CPU has none, and takes 64 by 64."""
    return method.forward.forward_tile() if run.gpu.device.type == "cuda" else (64, 64)


def window(run):
    """The time for each pair of query and key in the blocks that the kernel visits, with a window and without."""
    def point(run, seqlen):
        a = run.arguments
        sides = {"full": {}, "window": {"window": (run.gpu.size(WINDOW), 0)}}
        problems = {name: Problem(run.gpu, a.dtype, 128, False, seqlen, 1, 16, **side) for name, side in sides.items()}
        methods = make_flashtile(run.library, problems)
        if not all(run.right(problems[name], [method]) for name, method in methods.items()):
            return
        tiles = {name: tile_of(run, method) for name, method in methods.items()}
        visited = {name: problem.visited_pairs(tiles[name]) for name, problem in problems.items()}
        measured = run.measure({name: method.forward for name, method in methods.items()})
        for regime in REGIMES:
            time = seconds(measured, regime)
            rows.append({**problems["window"].row(), "regime": regime, "tiles": tiles, "visited_pairs": visited,
                         "ms": {name: 1e3 * t for name, t in time.items()},
                         "time_over_full": time["window"] / visited["window"] * visited["full"] / time["full"]})
            print(f"window {regime}: {rows[-1]['time_over_full']:.3f} of full's time a visited block", flush=True)

    rows = run.extra.setdefault("window", [])
    seqlen = run.gpu.size(16384)
    run.point(f"window n={seqlen}", point, seqlen)


def varlen(run):
    """A packed batch of mixed lengths, causal, beside a dense one with as many tokens and FLOPs."""
    def point(run):
        a = run.arguments
        lengths = [run.gpu.size(n) for n in VARLEN]
        batch, seqlen = VARLEN_DENSE
        shape = a.dtype, a.head_dim[0], True
        problems = {"varlen": Problem(run.gpu, *shape, max(lengths), len(lengths), 16, head_dim_v=a.head_dim_v,
                                      lengths=lengths),
                    "dense": Problem(run.gpu, *shape, run.gpu.size(seqlen), batch, 16, head_dim_v=a.head_dim_v)}
        backward = "backward" in a.passes
        methods = make_flashtile(run.library, problems, backward)
        right = {}
        for name, problem in problems.items():
            both = [methods[name]]
            if "fa3" in a.methods:
                try:
                    both.append(FlashAttention3(problem, a.fa3, f"fa3_{name}", backward))
                except Exception as error:
                    run.left_out.append({"method": f"fa3_{name}", "reason": str(error).split("\n")[0][:200]})
            right |= {method.name: problem for method in run.right(problem, both)}
            methods |= {method.name: method for method in both}
        if not {"varlen", "dense"} <= right.keys():
            return
        for work in a.passes:
            measured = run.measure({name: getattr(methods[name], work) for name in right})
            for regime in REGIMES:
                speed = {name: right[name].flops(work) / t / 1e12 for name, t in seconds(measured, regime).items()}
                rows.append({**problems["varlen"].row(), "pass": work, "regime": regime, "tflops": speed,
                             "over_dense": speed["varlen"] / speed["dense"]})
                print(f"varlen {work} {regime}: {', '.join(f'{name} {s:.0f}' for name, s in speed.items())} TFLOP/s",
                      flush=True)

    rows = run.extra.setdefault("varlen", [])
    run.point("varlen", point)


def options(run):
    """How much slower each pass is with each option than without; ALiBi is compared with causal attention, too. Here the
    window and seqused hide no keys, so that the work is the same."""
    def point(run, seqlen):
        a = run.arguments
        batch, heads = max(1, a.tokens // 4096), 16
        chosen = {"full": {}, "alibi": {"alibi": True}, "softcap": {"softcap": SOFTCAP}, "bias": {"bias": True},
                  "mask": {"mask": True}, "dropout": {"dropout": DROPOUT}, "window": {"window": (seqlen, seqlen)},
                  "seqused": {"seqused": True}}

        def problem(causal, **option):
            return Problem(run.gpu, a.dtype, a.head_dim[0], causal, seqlen, batch, heads, head_dim_v=a.head_dim_v, **option)

        problems = {name: problem(False, **option) for name, option in chosen.items()}
        problems |= {"causal": problem(True), "causal_alibi": problem(True, alibi=True)}
        methods = make_flashtile(run.library, problems, backward=True)
        kept = run.library.dropout_mask(DROPOUT, SEED, (1, heads, seqlen, seqlen), run.gpu.device)
        right = [name for name, method in methods.items()
                 if run.right(problems[name], [method], kept if problems[name].dropout else None)]
        for work in ONE_WAY:
            measured = run.measure({name: getattr(methods[name], work) for name in right})
            for regime in REGIMES:
                time = seconds(measured, regime)
                for name in right:
                    base = "causal" if name == "causal_alibi" else "full"
                    if name not in ("full", "causal") and base in time:
                        rows.append({**problems[name].row(), "pass": work, "regime": regime, "option": name,
                                     "over": base, "ms": 1e3 * time[name], "slow_down": time[name] / time[base]})
            slow = [f"{r['option']} {r['slow_down']:.2f}" for r in rows
                    if r["pass"] == work and r["regime"] == REGIMES[-1]]
            print(f"options {work} {REGIMES[-1]}, times as long: {', '.join(slow)}", flush=True)

    rows = run.extra.setdefault("options", [])
    seqlen = run.gpu.size(4096)
    run.point(f"options n={seqlen}", point, seqlen)
