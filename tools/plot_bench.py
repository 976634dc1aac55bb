"""Draws the JSON of `flashtile bench`, on a CPU or a GPU, in the shape of the FlashAttention-2 paper's Figure 4.

    python plot_bench.py RESULT.json PLOT.png

Bars of GFLOP/s (on a GPU TFLOP/s) grouped over sequence length, one colour a method, one panel for each head dimension
with and without the causal mask; one row of panels for each pass, dtype and thread count (on a GPU: burst or sustained) in the file.
"""

import io
import json
import statistics
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from PIL import Image  # on which matplotlib stands

# In the order in which a group's bars stand.
METHODS = {
    "torch_standard": ("PyTorch standard attention", "#8da0cb"),
    "standard": ("standard attention (OpenBLAS)", "#66c2a5"),
    "flash1": ("FlashAttention (on OpenBLAS)", "#a6d854"),
    "flash2": ("FlashAttention-2 (on OpenBLAS)", "#ffd92f"),
    "rabe_staats": ("Rabe and Staats (on OpenBLAS)", "#fc8d62"),
    "cuda_standard": ("standard attention (CUDA)", "#66c2a5"),
    "cuda_flash1": ("FlashAttention (CUDA, its work partition)", "#a6d854"),
    "cuda_general": ("flashtile's general kernels (no Hopper instructions)", "#fc8d62"),
    "torch_sdpa": ("PyTorch scaled_dot_product_attention", "#e5c494"),
    "openvino": ("OpenVINO", "#80b1d3"),
    "torch_flash": ("FlashAttention-2 (in PyTorch)", "#e5c494"),
    "torch_cudnn": ("cuDNN (through PyTorch)", "#b3b3b3"),
    "fa3": ("FlashAttention-3", "#66c2a5"),
    "flashtile_mask": ("flashtile, the blocks as a boolean mask", "#b3b3b3"),
    "flashtile": ("flashtile", "#d7301f"),
}
PASS_TITLES = {"forward": "forward", "backward": "backward", "both": "forward + backward"}


def speed_of(row):
    return row["tflops"] if "tflops" in row else row["gflops"]


def unit_of(row):
    return "TFLOP/s" if "tflops" in row else "GFLOP/s"


def manner(row):
    if "regime" in row:
        return row["regime"]
    return f"{row['threads']} thread{'' if row['threads'] == 1 else 's'}"


def sizes(n):
    return f"{n // 1024}k" if n % 1024 == 0 else str(n)


def save(figure, path, dpi):
    """In 64 colours, which is a third of the bytes."""
    whole = io.BytesIO()
    figure.savefig(whole, dpi=dpi)
    Image.open(whole).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, format="PNG", optimize=True)
    plt.close(figure)


def draw_panel(axes, rows, ceiling):
    seqlens = sorted({row["seqlen"] for row in rows})
    methods = [m for m in METHODS if any(row["method"] == m for row in rows)]
    width = 0.84 / len(methods)
    for index, method in enumerate(methods):
        label, colour = METHODS[method]
        speed = {row["seqlen"]: speed_of(row) for row in rows if row["method"] == method}
        places = [g + (index - (len(methods) - 1) / 2) * width for g, n in enumerate(seqlens) if n in speed]
        bars = axes.bar(places, [speed[n] for n in seqlens if n in speed], width, label=label, color=colour)
        axes.bar_label(bars, fmt="%.0f", fontsize=6.5, padding=1)
    if ceiling:
        axes.axhline(ceiling, color="0.4", linewidth=0.8, linestyle="--", label="measured ceiling of this machine")
    axes.set_xticks(range(len(seqlens)), [sizes(n) for n in seqlens])
    axes.set_xlabel("sequence length")
    axes.set_ylabel(unit_of(rows[0]))
    axes.margins(y=0.12)
    axes.spines[["top", "right"]].set_visible(False)


def ceiling_of(rows):
    """What the shares of a panel are shares of."""
    shares = [speed_of(row) / row["ceiling_share"] for row in rows if row["ceiling_share"]]
    return statistics.median(shares) if shares else None


def draw(result, path):
    rows = result["rows"]
    lines = list(dict.fromkeys((row["pass"], row["dtype"], manner(row)) for row in rows))
    columns = sorted({(row["causal"], row["head_dim"]) for row in rows})
    figure, panels = plt.subplots(
        len(lines), len(columns), figsize=(4.6 * len(columns) + 0.6, 3.4 * len(lines) + 1.0), squeeze=False)
    for line, (what, dtype, how) in enumerate(lines):
        for column, (causal, head_dim) in enumerate(columns):
            axes = panels[line][column]
            here = [row for row in rows
                    if (row["pass"], row["dtype"], manner(row)) == (what, dtype, how)
                    and (row["causal"], row["head_dim"]) == (causal, head_dim)]
            mask = "causal" if causal else "no mask"
            axes.set_title(f"{PASS_TITLES[what]}, {dtype}, {mask}, d = {head_dim}, {how}", fontsize=9)
            if here:
                draw_panel(axes, here, ceiling_of(here))
            else:
                axes.set_axis_off()
    entries = {}
    for axes in panels.flat:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            entries.setdefault(label, handle)
    figure.suptitle(f"Attention speed, {result['machine'].get('gpu') or result['machine']['cpu']}", fontsize=11)
    figure.legend(entries.values(), entries.keys(), loc="lower center", ncols=min(3, len(entries)), fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.6 / figure.get_figheight(), 1, 0.99))
    save(figure, path, 110)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: plot_bench.py RESULT.json PLOT.png")
    with open(sys.argv[1], encoding="utf-8") as file:
        result = json.load(file)
    if not result["rows"]:
        sys.exit(f"plot_bench.py: {sys.argv[1]} has no rows to draw")
    draw(result, sys.argv[2])


if __name__ == "__main__":
    main()
