"""Draws loss curves that curves.py has written.

    python examples/gpt/draw_curves.py CURVES.json [MORE.json ..] --out=curves.png

A column for each dtype and dropout: the curves above, below how far each lies from that of the first attention of its
column.
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

STYLES = {"standard": ("standard attention", "#8da0cb", "-", 2.6),
          "flash": ("FlashAttention (in PyTorch)", "#e5c494", "-.", 1.4),
          "cudnn": ("cuDNN (through PyTorch)", "#7f7f7f", ":", 1.4), "flashtile": ("flashtile", "#d7301f", "--", 1.1)}


def draw(result_files, path):
    results = [json.loads(Path(file).read_text(encoding="utf-8")) for file in result_files]
    runs = [run for result in results for run in result["runs"] if run["losses"]]
    settings = list(dict.fromkeys((run["dtype"], run["dropout"]) for run in runs))
    figure, places = pyplot.subplots(2, len(settings), figsize=(3.2 * len(settings) + 0.6, 4.8), squeeze=False,
                                     sharex="col", height_ratios=(2, 1), layout="constrained")
    for (dtype, dropout), above, below in zip(settings, *places):
        here = [run for run in runs if (run["dtype"], run["dropout"]) == (dtype, dropout)]
        for run in here:
            label, colour, line, width = STYLES[run["attention"]]
            steps = range(1, len(run["losses"]) + 1)
            above.plot(steps, run["losses"], line, color=colour, linewidth=width, label=label)
            if run is not here[0]:
                apart = [abs(a - b) for a, b in zip(run["losses"], here[0]["losses"])]
                below.semilogy(steps[: len(apart)], apart, color=colour, linewidth=0.8)
        above.set_title(f"{dtype}, {f'dropout {dropout:g}' if dropout else 'no dropout'}", fontsize=10)
        above.legend(fontsize=8, frameon=False)
        below.set(xlabel="step", ylim=(1e-8, 1))
        for axes in (above, below):
            axes.grid(alpha=0.3)
    places[0][0].set_ylabel("cross-entropy (nats a byte)")
    places[1][0].set_ylabel("difference")
    a, m = results[0]["arguments"], results[0]["machine"]
    figure.suptitle(f"GPT of {a['layers']} layers, width {a['width']}, context {a['context']}, batch {a['batch']}; "
                    f"{m['device']}, {m['threads']} threads, PyTorch {m['torch']}, {m['date'][:10]}", fontsize=9)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("results", nargs="+", metavar="CURVES.json")
    p.add_argument("--out", default="curves.png")
    a = p.parse_args()
    draw(a.results, a.out)


if __name__ == "__main__":
    main()
