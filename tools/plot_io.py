"""Draws the JSON of `flashtile io`: elements moved between slow and fast memory.

    python plot_io.py RESULT.json PLOT.png

For each pass and head dimension a panel against N for each size of fast memory, and a panel against M for each N, where the file
has more than one of what is on the axis. Points are counted, lines analytic, the dashed line is the lower bound N^2 d^2 / M.
"""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ALGORITHMS = {
    "standard": ("standard attention", "#66c2a5"),
    "flash1": ("FlashAttention", "#fc8d62"),
    "flash2": ("FlashAttention-2", "#d7301f"),
    "cpu": ("flashtile on the CPU", "#3182bd"),
}
# An axis: its field in a row, its name, and the field that is one value in a panel.
AXES = [("seqlen", "N", "memory_bytes"), ("memory_bytes", "fast memory, KiB", "seqlen")]


def panels_of(rows):
    """(title, axis, rows) of each panel."""
    for axis, name, fixed in AXES:
        for what, dim, value in dict.fromkeys((row["pass"], row["head_dim"], row[fixed]) for row in rows):
            here = [row for row in rows if (row["pass"], row["head_dim"], row[fixed]) == (what, dim, value)]
            if len({row[axis] for row in here}) < 2:
                continue
            where = f"{value // 1024} KiB" if fixed == "memory_bytes" else f"N = {value}"
            yield f"{what}, d = {dim}, {where}", (axis, name), here


def draw_panel(axes, axis, name, rows):
    def place(row):
        return row[axis] / 1024 if axis == "memory_bytes" else row[axis]

    for algorithm, (label, colour) in ALGORITHMS.items():
        here = sorted((row for row in rows if row["algorithm"] == algorithm), key=place)
        if not here:
            continue
        x = [place(row) for row in here]
        axes.plot(x, [row["analytic_elements"] for row in here], color=colour, linewidth=1.2, label=f"{label}, analytic")
        axes.plot(x, [row["counted_elements"] for row in here], "o", color=colour, markersize=4, label=f"{label}, counted")
    bound = {place(row): row["lower_bound_elements"] for row in rows if row["lower_bound_elements"] is not None}
    if bound:
        axes.plot(sorted(bound), [bound[x] for x in sorted(bound)], "--", color="0.4", linewidth=1, label="N² d² / M")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = sorted({place(row) for row in rows})
    axes.set_xticks(ticks, [f"{x:g}" for x in ticks], fontsize=7, rotation=45)
    axes.minorticks_off()
    axes.set_xlabel(name)
    axes.set_ylabel("elements moved")
    axes.spines[["top", "right"]].set_visible(False)


def draw(result, path):
    panels = list(panels_of(result["rows"]))
    if not panels:
        sys.exit("plot_io.py: an axis needs more than one N, or more than one size of fast memory")
    columns = min(4, len(panels))
    lines = -(-len(panels) // columns)
    figure, grid = plt.subplots(lines, columns, figsize=(4.2 * columns + 0.4, 3.4 * lines + 0.9), squeeze=False)
    for axes in grid.flat[len(panels):]:
        axes.set_axis_off()
    for axes, (title, (axis, name), rows) in zip(grid.flat, panels):
        axes.set_title(title, fontsize=9)
        draw_panel(axes, axis, name, rows)
    entries = {}
    for axes in grid.flat:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            entries.setdefault(label, handle)
    figure.legend(entries.values(), entries.keys(), loc="lower center", ncols=min(4, len(entries)), fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.6 / figure.get_figheight(), 1, 1))
    figure.savefig(path, dpi=130)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: plot_io.py RESULT.json PLOT.png")
    with open(sys.argv[1], encoding="utf-8") as file:
        draw(json.load(file), sys.argv[2])


if __name__ == "__main__":
    main()
