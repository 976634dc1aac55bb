"""A run's summary: a table of its figures and of the floors that are set for them."""

import json
import statistics
from statistics import geometric_mean

from gpu_bench.methods import METHODS
from gpu_bench.speeds import ONE_WAY, PASSES, PEERS
from gpu_bench.timing import REGIMES

# Floors of the speed of a pass over another method's: at every point, and in the median.
OVER_METHOD = {("forward", "torch_flash"): (1.0, 1.08), ("backward", "torch_flash"): (1.0, 1.1),
               ("forward", "torch_standard"): (3.0, 3.0), ("backward", "torch_standard"): (3.0, 3.0)}
# Floors of forward's speed over that of the best peer at each point: at every point, in the median, and in the
# geometric mean of a head dimension.
POINT, MEDIAN, HEAD_DIM = 0.98, 1.07, 1.03
SHORT, SHORT_TARGET = (512, 1024), 1.10
# Floors of forward's speed over cuDNN's at 16k, sustained, by (head dimension, causal).
LONG = {(64, False): 1.25, (64, True): 1.22, (128, False): 1.20, (128, True): 1.27, (256, False): 1.14,
        (256, True): 1.22}
HEAD_DIMS_OVER_CUDNN = 1.10
FP16 = {"forward": 1.0, "backward": 1.02}
GQA_BACKWARD = 1.02
WINDOW, VARLEN, OPTION = 1.15, 0.95, 1.5
DROPOUT_BACKWARD = 1.6  # of PyTorch's FlashAttention-2 with dropout
# The most that rms errors may be of FlashAttention-3's.
ERRORS = {"out": 1.15, "dq": 1.10, "dk": 1.10, "dv": 1.005}


def point_of(row):
    return tuple(row.get(key) for key in ("head_dim", "head_dim_v", "kv_heads", "causal", "seqlen"))


def ratios(rows, work, others, regime):
    """{point: flashtile's speed over that of the fastest of the others at this point}."""
    chosen = [r for r in rows if r["pass"] == work and r["regime"] == regime]
    best = {}
    for r in chosen:
        if r["method"] in others:
            best[point_of(r)] = max(best.get(point_of(r), 0.0), r["tflops"])
    return {point_of(r): r["tflops"] / best[point_of(r)]
            for r in chosen if r["method"] == "flashtile" and point_of(r) in best}


def spread(found):
    return f"min {min(found):.2f} median {statistics.median(found):.2f} max {max(found):.2f}"


class Table:
    def __init__(self):
        self.lines = []

    def add(self, what, found, floor="", ok=None):
        self.lines.append(f"{what:<60} {found:<34} {floor:<26} {'' if ok is None else 'ok' if ok else 'MISSED'}")


def each_method(table, rows):
    for work in PASSES:
        for other in METHODS[1:]:
            for regime in REGIMES:
                found = list(ratios(rows, work, (other,), regime).values())
                if not found:
                    continue
                floor = OVER_METHOD.get((work, other))
                table.add(f"{work} over {other}, {regime}, {len(found)} points", spread(found),
                          f"floor {floor[0]:.2f}, median {floor[1]:.2f}" if floor else "",
                          floor and min(found) >= floor[0] and statistics.median(found) >= floor[1])


def best_peer(table, rows, shared_heads):
    """Forward over the best peer at each point: the paper's grid and the rows of shared heads."""
    present = [peer for peer in PEERS if any(r["method"] == peer for r in rows + shared_heads)]
    name = f"best of {' and '.join(present)}"
    for regime in REGIMES:
        grid = ratios(rows, "forward", present, regime)
        gqa = list(ratios(shared_heads, "forward", present, regime).values())
        if found := [*grid.values(), *gqa]:
            table.add(f"forward over {name}, {regime}, {len(found)} points", spread(found),
                      f"floor {POINT}, median {MEDIAN}",
                      min(found) >= POINT and statistics.median(found) >= MEDIAN)
        groups = {f"d={d}": [r for p, r in grid.items() if p[0] == d] for d in sorted({p[0] for p in grid})}
        for group, found in (groups | {"GQA": gqa}).items():
            if found:
                mean = geometric_mean(found)
                table.add(f"forward, {group}, over the same, {regime}", f"geometric mean {mean:.3f}",
                          f"floor {HEAD_DIM}", mean >= HEAD_DIM)
        if short := [r for p, r in grid.items() if p[-1] in SHORT]:
            table.add(f"forward, 512 and 1k, over the same, {regime}", f"geometric mean {geometric_mean(short):.3f}",
                      f"target {SHORT_TARGET:.2f}")
    over_cudnn = ratios(rows, "forward", ("torch_cudnn",), "sustained")
    for (head_dim, _, _, causal, seqlen), found in sorted(over_cudnn.items(), key=str):
        if seqlen == 16384 and (floor := LONG.get((head_dim, causal))):
            table.add(f"forward over torch_cudnn, 16k, d={head_dim}{' causal' if causal else ''}, sustained",
                      f"{found:.2f}", f"floor {floor:.2f}", found >= floor)


def causal_gain(table, rows):
    for regime in REGIMES:
        ms = {(r["pass"], r["head_dim"], r["causal"]): r["ms"] for r in rows
              if r["method"] == "flashtile" and r["regime"] == regime and r["seqlen"] == 16384}
        for work, head_dim, causal in sorted(ms):
            if causal and (work, head_dim, False) in ms:
                faster = ms[work, head_dim, False] / ms[work, head_dim, True]
                table.add(f"{work} causal over full, 16k, d={head_dim}, {regime}", f"{faster:.2f}", "floor 1.80",
                          faster >= 1.8)


def other_shapes(table, extra):
    for work, peers, floor in (("head_dims", ("torch_cudnn",), HEAD_DIMS_OVER_CUDNN), ("head_dims", ("fa3",), None),
                               ("fp16", PEERS, FP16)):
        for regime in REGIMES:
            for direction in ONE_WAY:
                least = floor[direction] if isinstance(floor, dict) else floor
                for (d, dv, _, causal, seqlen), found in ratios(extra.get(work, []), direction, peers, regime).items():
                    table.add(f"{work} {direction} d={d}{f'/{dv}' if dv else ''} n={seqlen} causal={causal:d}, {regime}",
                              f"{found:.2f} of {' or '.join(peers)}", f"floor {least:.2f}" if least else "",
                              least and found >= least)
    for regime in REGIMES:
        for (_, _, kv_heads, causal, seqlen), found in ratios(extra.get("gqa", []), "backward", PEERS, regime).items():
            table.add(f"gqa backward on {kv_heads} n={seqlen} causal={causal:d}, {regime}",
                      f"{found:.2f} of {' or '.join(PEERS)}", f"floor {GQA_BACKWARD}", found >= GQA_BACKWARD)


def slow_downs(table, extra):
    if slower := [r["slower"] for r in extra.get("deterministic", [])]:
        table.add("backward deterministic, 4k and up", f"at most {100 * max(slower):.0f}% slower", "at most 25%",
                  max(slower) <= 0.25)
    for r in extra.get("dropout", []):
        ours, theirs = (r["slower"].get(m) for m in ("flashtile", "torch_flash"))
        if ours is None or theirs is None:
            continue
        name = f"dropout {r['pass']}, d={r['head_dim']} n={r['seqlen']} causal={r['causal']:d}, {r['regime']}"
        if r["pass"] == "forward":
            table.add(name, f"{100 * ours:.0f}% slower, FA2 {100 * theirs:.0f}%", "at most twice FA2's",
                      ours <= 2 * theirs)
        else:
            faster = r["ms"]["torch_flash_dropout"] / r["ms"]["flashtile_dropout"]
            table.add(name, f"{100 * ours:.0f}% slower, {faster:.2f} times as fast as FA2", f"floor {DROPOUT_BACKWARD}",
                      faster >= DROPOUT_BACKWARD)
    for r in extra.get("window", []):
        table.add(f"window {r['window'][0]} of {r['seqlen']}, time a visited block, {r['regime']}",
                  f"{r['time_over_full']:.2f} of full's", f"at most {WINDOW}", r["time_over_full"] <= WINDOW)
    for r in extra.get("varlen", []):
        fa3 = r["tflops"].get("fa3_varlen")
        table.add(f"varlen {r['pass']} causal over dense, {len(r['lengths'])} sequences, {r['regime']}",
                  f"{r['over_dense']:.2f}" + (f", {r['tflops']['varlen'] / fa3:.2f} of fa3's" if fa3 else ""),
                  f"floor {VARLEN}", r["over_dense"] >= VARLEN)
    for r in extra.get("options", []):
        values = f"/{r['head_dim_v']}" if "head_dim_v" in r else ""
        table.add(f"{r['option']} {r['pass']} over {r['over']}, d={r['head_dim']}{values} n={r['seqlen']}, {r['regime']}",
                  f"{r['slow_down']:.2f} times as long", f"at most {OPTION}", r["slow_down"] <= OPTION)


def errors(table, extra):
    """flashtile's errors over FlashAttention-3's, or over cuDNN's where FlashAttention-3 did not run."""
    rms = {(r["method"], r["result"], r["head_dim"], r["causal"], r.get("q_times", 1)): r["rms"]
           for r in extra.get("errors", [])}
    for (method, *point), ours in rms.items():
        peer = next((p for p in reversed(PEERS) if (p, *point) in rms), None)
        if not method.startswith("flashtile") or not peer:
            continue
        result, head_dim, causal, times = point
        ratio = ours / rms[peer, *point]
        table.add(f"{method}, rms error of {result}, d={head_dim} causal={causal:d}, q x{times}",
                  f"{ratio:.3f} of {peer}'s", f"at most {ERRORS[result]}", ratio <= ERRORS[result])


def decode(table, extra):
    for r in extra.get("decode", []):
        us, floor = r["us"], r["floor_us"]
        if "flashtile" not in us:
            continue
        said = ", ".join(f"{name} {t:.1f} us ({r['rms_error'][name]:.5f})" for name, t in us.items())
        if peer := r.get("issue_peer_us"):
            said += f", best peer before {peer:g} us"
        table.add(f"decode {r['point']}, {r['regime']}", said, f"at most {floor:.1f} us" if floor else "",
                  floor and us["flashtile"] <= floor)


def costs(table, extra):
    if host := extra.get("host"):
        beyond = host["forward_beyond_launch_us"]
        table.add("host time of a warm forward beyond a launch",
                  f"{beyond:.2f} us ({host['forward_us']:.2f} - {host['launch_us']:.2f})", "under 1.5 us", beyond < 1.5)
    if first := extra.get("first_call"):
        cold, warm = (first[c]["first_forward_s"] for c in ("empty_cache", "warm_cache"))
        table.add("first forward, empty cache", f"{cold:.2f} s", "under 3 s", cold < 3)
        table.add("first forward, warm disk cache", f"{warm * 1e3:.1f} ms", "under 30 ms", warm < 0.03)
    for r in extra.get("memory", []):
        table.add(f"extra memory, {r['pass']}, d={r['head_dim']} n={r['seqlen']}",
                  f"{r['workspace_bytes'] / 2**20:.2f} MiB, taken {r.get('taken_bytes', 0) / 2**20:.0f} MiB",
                  f"dq in fp32 is {r['dq_fp32_bytes'] / 2**20:.1f}" if r["pass"] == "backward" else "")


def table(run):
    """The lines of the summary."""
    made = Table()
    each_method(made, run.rows)
    best_peer(made, run.rows, run.extra.get("gqa", []))
    causal_gain(made, run.rows)
    other_shapes(made, run.extra)
    slow_downs(made, run.extra)
    errors(made, run.extra)
    decode(made, run.extra)
    costs(made, run.extra)
    for what, items in (("left out", run.left_out), ("WRONG RESULT, no speed", run.wrong), ("FAILED", run.failed)):
        made.lines += [f"{what}: {json.dumps(item)}" for item in items]
    return made.lines
