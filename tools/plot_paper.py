"""Draws what `flashtile bench paper` measured in the shape of the papers' figures, and writes the page that shows them.

    python plot_paper.py FOLDER

FOLDER/results.json is read, and of a GPU torch.json beside it, where tools/gpu_bench.py wrote one; a PNG for each figure that has data, and index.html (paper_page.py), are written beside it.
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import paper_page
import plot_bench

SAME_POINT = ("method", "dtype", "head_dim", "causal", "seqlen", "batch", "heads", "threads")
SUSTAINED = "sustained"  # of gpu_bench's regimes the one that is like samples in turns


def with_both(rows):
    """The rows and, of each forward and backward at one point, their sum: forward + backward."""
    key = lambda row: tuple(row.get(field) for field in SAME_POINT)
    forward = {key(row): row for row in rows if row["pass"] == "forward"}
    sums = []
    for row in rows:
        other = forward.get(key(row)) if row["pass"] == "backward" else None
        if other is None:
            continue
        ms = row["ms"] + other["ms"]
        speed = "tflops" if "tflops" in row else "gflops"
        work = [r[speed] * r["ms"] for r in (row, other)]
        # What would be left if each pass ran at the ceiling around its own samples.
        shares = [r["ceiling_share"] for r in (row, other)]
        share = sum(r["ms"] * r["ceiling_share"] for r in (row, other)) / ms if all(shares) else None
        sums.append(row | {"pass": "both", "ms": ms, speed: sum(work) / ms, "ceiling_share": share})
    return rows + sums


def both(rows):
    return [row for row in with_both(rows) if row["pass"] == "both"]


def add_torch(result, torch):
    """PyTorch's methods into the grid; and how much longer flashtile took in that process than in ours."""
    passes = ("forward", "backward")
    theirs = [row for row in torch["rows"] if row["regime"] == SUSTAINED and row["pass"] in passes]
    key = lambda row: tuple(row.get(field) for field in SAME_POINT) + (row["pass"],)
    ours = {key(row): row["ms"] for row in result["grid"] if row["method"] == "flashtile"}
    ratios = [row["ms"] / ours[key(row)] for row in theirs if row["method"] == "flashtile" and key(row) in ours]
    if ratios:
        result["same_in_both"] = paper_page.mean(ratios)
    regime = {"regime": result["grid"][0]["regime"], "ceiling_share": None} if result["grid"] else {}
    result["grid"] += [row | regime for row in theirs if row["method"] != "flashtile"]
    result["machine"]["torch"] = torch["machine"]["torch"]
    result["left_out"] += [f"torch.json: {line.get('method', line.get('work'))}"
                           f"{' n=' + str(line['seqlen']) if 'seqlen' in line else ''}: {line['reason']}" for line in torch["left_out"]]


def load(folder):
    result = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    if (folder / "torch.json").exists():
        add_torch(result, json.loads((folder / "torch.json").read_text(encoding="utf-8")))
    return result


def figures_of_speed(result):
    """(number, rows) of Figures 4 to 7."""
    rows = with_both(result["grid"])
    if not rows:
        return
    dtype = rows[0]["dtype"]
    for number, what in ((4, "both"), (5, "forward"), (6, "backward")):
        if here := [row for row in rows if (row["pass"], row["dtype"]) == (what, dtype)]:
            yield number, here
    newer = [row for row in rows if row["pass"] == "both" and is_newer(row, result["machine"], dtype)]
    if newer:
        yield 7, newer


def is_newer(row, machine, dtype):
    """Whether it belongs to Figure 7: on a CPU bf16; on a GPU Hopper's kernels beside those that need no Hopper."""
    if "gpu" in machine:
        return machine.get("architecture", 0) >= 90 and row["method"] in ("flashtile", "cuda_general")
    return row["dtype"] == "bf16" != dtype


def causal_gains(rows):
    """Without a mask, a point takes so many times as long as with a causal one: (pass, dtype, head_dim, method, seqlen, gain)."""
    key = lambda row: tuple(row.get(field) for field in SAME_POINT if field != "causal") + (row["pass"],)
    whole = {key(row): row for row in rows if not row["causal"]}
    return [(row["pass"], row["dtype"], row["head_dim"], row["method"], row["seqlen"], whole[key(row)]["ms"] / row["ms"])
            for row in rows if row["causal"] and key(row) in whole]


def finish(figure, panels, path):
    entries = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            entries.setdefault(label, handle)
    figure.legend(entries.values(), entries.keys(), loc="lower center", ncols=min(3, len(entries)), fontsize=8, frameon=False)
    lines = -(-len(entries) // 3)
    figure.tight_layout(rect=(0, (0.25 + 0.2 * lines) / figure.get_figheight(), 1, 1))
    plot_bench.save(figure, path, 100)


def line(axes, method, points):
    label, colour = plot_bench.METHODS[method]
    x = sorted(points)
    axes.plot(x, [points[n] for n in x], "o-", color=colour, label=label, markersize=4, linewidth=1.4)


def lengths_axis(axes, lengths, quantity):
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(lengths), [plot_bench.sizes(n) for n in sorted(lengths)], fontsize=7)
    axes.minorticks_off()
    axes.set_xlabel("sequence length")
    axes.set_ylabel(quantity)
    axes.spines[["top", "right"]].set_visible(False)


def draw_causal(gains, path):
    panels = sorted({gain[:3] for gain in gains})
    columns = min(4, len(panels))
    lines = -(-len(panels) // columns)
    figure, grid = plt.subplots(lines, columns, figsize=(3.4 * columns + 0.6, 3.0 * lines + 1.0), squeeze=False)
    for axes in grid.flat[len(panels):]:
        axes.set_axis_off()
    for axes, panel in zip(grid.flat, panels):
        here = [gain[3:] for gain in gains if gain[:3] == panel]
        for method in plot_bench.METHODS:
            if points := {n: gain for name, n, gain in here if name == method}:
                line(axes, method, points)
        axes.axhspan(1.7, 1.8, color="0.85", label="the paper: 1.7 to 1.8 (its GPU)")
        axes.set_title(f"{plot_bench.PASS_TITLES[panel[0]]}, {panel[1]}, d = {panel[2]}", fontsize=9)
        lengths_axis(axes, {n for _, n, _ in here}, "time without a mask / causal")
    finish(figure, grid.flat, path)


def draw_blocks(blocks, own, path):
    algorithms = list(dict.fromkeys(row["algorithm"] for row in blocks))
    maps = [("ms", 1.0, "forward, ms")]
    if all("counted_bytes" in row for row in blocks):
        maps.append(("counted_bytes", 1 / 2**20, "counted traffic, MiB"))
    figure, grid = plt.subplots(len(algorithms), len(maps), figsize=(5 * len(maps), 4.2 * len(algorithms)), squeeze=False)
    for axes_of, algorithm in zip(grid, algorithms):
        here = [row for row in blocks if row["algorithm"] == algorithm]
        rows, columns = (sorted({row[name] for row in here}) for name in ("Br", "Bc"))
        for axes, (field, scale, title) in zip(axes_of, maps):
            values = {(row["Br"], row["Bc"]): row[field] * scale for row in here}
            cells = [[values.get((Br, Bc), float("nan")) for Bc in columns] for Br in rows]
            image = axes.imshow(cells, origin="lower", cmap="viridis_r", norm="log")
            middle = (image.norm.vmin * image.norm.vmax) ** 0.5
            for (Br, Bc), value in values.items():
                axes.text(columns.index(Bc), rows.index(Br), f"{value:.3g}", ha="center", va="center", fontsize=8,
                          color="white" if value > middle else "black")
            axes.set_xticks(range(len(columns)), columns)
            axes.set_yticks(range(len(rows)), rows)
            axes.set_xlabel("Bc (keys)")
            axes.set_ylabel("Br (queries)")
            axes.set_title(f"{plot_bench.METHODS[algorithm][0]}: {title}", fontsize=9)
    if own:
        figure.suptitle(f"flashtile's own plan: {own['Br']} x {own['Bc']}, {own['ms']:.3g} ms", fontsize=10)
    figure.tight_layout()
    plot_bench.save(figure, path, 100)


def draw_lengths(lengths, memory, gpu, path):
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8))
    for method in plot_bench.METHODS:
        if points := {row["seqlen"]: row["ms"] for row in both(lengths) if row["method"] == method}:
            line(left, method, points)
        field = f"{method}_mib"
        # A call that fits into what the tiny one before it took has no peak of its own.
        points = {row["seqlen"]: row[field] for row in memory if row["pass"] == "backward" and (row.get(field) or 0) > 0}
        if points:
            line(right, method, points)
    for axes, title, quantity, data in ((left, "forward + backward", "ms", lengths),
                                        (right, "backward" if gpu else "backward, one head", "MiB beyond inputs and outputs", memory)):
        axes.set_title(title, fontsize=9)
        axes.set_yscale("log")
        lengths_axis(axes, {row["seqlen"] for row in data}, quantity)
    finish(figure, (left, right), path)


def sparsity_times(result):
    """Of each method and share of the blocks, ms of forward and backward."""
    times = {}
    for row in result.get("sparsity", []):
        of_method = times.setdefault(row["method"], {})
        of_method[row["share"]] = of_method.get(row["share"], 0.0) + row["ms"]
    return times


def draw_sparsity(times, path):
    figure, axes = plt.subplots(figsize=(6, 4.6))
    for method in plot_bench.METHODS:
        if method in times:
            line(axes, method, times[method])
    shares = {share for of_method in times.values() for share in of_method}
    axes.set_xticks(sorted(shares), [f"{100 * share:g}%" for share in sorted(shares)])
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("blocks that are seen")
    axes.set_ylabel("forward + backward, ms")
    axes.spines[["top", "right"]].set_visible(False)
    finish(figure, [axes], path)


def draw_all(result, folder):
    """Names of the pictures that could be drawn."""
    drawn = []

    def picture(name):
        drawn.append(name)
        return folder / f"{name}.png"

    for number, rows in figures_of_speed(result):
        plot_bench.draw({"rows": rows, "machine": result["machine"]}, picture(f"figure{number}"))
    if gains := causal_gains(result["grid"]):
        draw_causal(gains, picture("causal"))
    if result["blocks"]:
        draw_blocks(result["blocks"], result.get("own_blocks"), picture("blocks"))
    if times := sparsity_times(result):
        draw_sparsity(times, picture("sparsity"))
    if result["lengths"]:
        draw_lengths(result["lengths"], result["memory"], "gpu" in result["machine"], picture("lengths"))
    return drawn


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: plot_paper.py FOLDER")
    folder = Path(sys.argv[1])
    result = load(folder)
    drawn = draw_all(result, folder)
    speeds = dict(figures_of_speed(result))
    page = paper_page.write(result, speeds, causal_gains(result["grid"]), both(result["gpt2"]), sparsity_times(result), folder, drawn)
    (folder / "index.html").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
