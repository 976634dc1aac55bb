"""Draws the pictures of README.md and docs/performance from the measured figures in bench/results, in the shape of the
FlashAttention-2 paper's Figure 4: four panels a row, one for each pass, mask and head dimension.

    .venv/bin/python tools/draw_results.py       # each picture beside its figures, the same bytes every time

The names of methods and their colours are those of plot_bench.py, which draws one run of the benchmark whole.
"""

import json
from pathlib import Path

import plot_bench
from matplotlib import pyplot, rcParams

RESULTS = Path(__file__).parents[1] / "bench" / "results"
H200 = "One NVIDIA H200, bf16, hidden dimension 2048, 16384 tokens, bursts"
# Picture: its title, its head dimensions, the files that its rows stand in, and which rows of them it shows.
PICTURES = {
    "h200-bf16.svg": (
        H200, (64, 128), ("h200-bf16-forward-d64", "h200-bf16-forward-d128", "h200-bf16-backward-third"),
        {"regime": ("burst",), "method": ("torch_cudnn", "fa3", "flashtile")}),
    "h200-bf16-d256.svg": (
        H200, (256,), ("h200-bf16-forward-d256", "h200-bf16-backward"),
        {"regime": ("burst",), "method": ("torch_cudnn", "fa3", "flashtile")}),
    "zen5-2cores-fp32.svg": (
        "Two cores of an AMD Zen 5 server CPU, fp32, 8 heads", (64, 128), ("zen5-2cores-8heads",),
        {"dtype": ("fp32",), "threads": (2,)}),
}


def versions(machine):
    known = [f"driver {machine['driver']}" if "driver" in machine else "", f"PyTorch {machine['torch']}"]
    if "cudnn" in machine:
        known.append("cuDNN {}.{}.{}".format(*(machine["cudnn"] // n % 100 for n in (10000, 100, 1))))
    return ", ".join([*filter(None, known), machine["date"][:10]])


def draw_panel(axes, rows, unit):
    seqlens = sorted({row["seqlen"] for row in rows})
    methods = [m for m in plot_bench.METHODS if any(row["method"] == m for row in rows)]
    width = 0.87 / len(methods)
    for index, method in enumerate(methods):
        label, colour = plot_bench.METHODS[method]
        speed = {row["seqlen"]: plot_bench.speed_of(row) for row in rows if row["method"] == method}
        places = [g + (index - (len(methods) - 1) / 2) * width for g, n in enumerate(seqlens) if n in speed]
        bars = axes.bar(places, [speed[n] for n in seqlens if n in speed], width, label=label, color=colour)
        axes.bar_label(bars, fmt="%.0f", fontsize=7, rotation=90, padding=2)
    axes.set_xticks(range(len(seqlens)), [plot_bench.sizes(n) for n in seqlens], fontsize=8)
    axes.tick_params(axis="y", labelsize=8)
    axes.set_ylabel(unit, fontsize=8)
    axes.margins(y=0.2)
    axes.spines[["top", "right"]].set_visible(False)


def draw(name, title, head_dims, files, shown):
    results = [json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8")) for file in files]
    rows = [row for result in results for row in result["rows"]
            if row["head_dim"] in head_dims and all(row[key] in values for key, values in shown.items())]
    panels = [(what, causal, d) for what in ("forward", "backward")
              for causal in sorted({row["causal"] for row in rows}) for d in head_dims]
    lines = len(panels) // 4
    figure, places = pyplot.subplots(lines, 4, figsize=(12.4, 2.0 * lines + 0.8), squeeze=False, sharey="row")
    for axes, (what, causal, head_dim) in zip(places.flat, panels):
        here = [row for row in rows if (row["pass"], row["causal"], row["head_dim"]) == (what, causal, head_dim)]
        axes.set_title(f"{what}, {'causal' if causal else 'no mask'}, d = {head_dim}", fontsize=9)
        draw_panel(axes, here, "TFLOP/s" if "tflops" in here[0] else "GFLOP/s")
    for axes in places[-1]:
        axes.set_xlabel("sequence length", fontsize=8)
    handles, labels = places[0][0].get_legend_handles_labels()
    figure.suptitle(title, fontsize=10)
    height = figure.get_figheight()
    figure.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, 0.19 / height), ncols=4, fontsize=8,
                  frameon=False)
    figure.text(0.5, 0.07 / height, versions(results[-1]["machine"]), ha="center", fontsize=7, color="0.4")
    figure.tight_layout(rect=(0, 0.42 / height, 1, 1))
    figure.savefig(RESULTS / name, metadata={"Date": None})
    pyplot.close(figure)


def main():
    rcParams["svg.hashsalt"] = "flashtile"
    rcParams["svg.fonttype"] = "none"
    rcParams["font.family"] = "sans-serif"
    for name, picture in PICTURES.items():
        draw(name, *picture)
        print(f"{RESULTS / name}: {', '.join(f'{file}.json' for file in picture[2])}")


if __name__ == "__main__":
    main()
