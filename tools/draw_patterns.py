#!/usr/bin/env python3
"""Draws docs/pictures/patterns.png: the patterns of docs/functions.md, whose table has their texts. Each picture is P as the library
computes it: with q = 0 all scores are what the function makes of 0, and with the identity as v, out is P.

    PYTHONPATH=python FLASHTILE_LIBRARY=build/libflashtile.so .venv/bin/python tools/draw_patterns.py
"""

import re
from pathlib import Path

import numpy as np

import flashtile.numpy

DOCS = Path(__file__).parents[1] / "docs"
KEYS = 64
TENSORS = {"document": np.repeat(np.arange(3, dtype=np.int32), (25, 14, 25)),
           "table": np.linspace(-2, 2, 2 * 65, dtype=np.float32).reshape(2, 65)[:1] ** 2}


def patterns(text):
    """{name: (kind of function, its text)} of the table under the heading Patterns."""
    rows = re.findall(r"^\| ([^|]+) \| (score|mask) \| `(.+)` \|$", text.split("## Patterns")[1].split("\n## ")[0], re.M)
    return {name: (kind, function.replace("\\|", "|")) for name, kind, function in rows}


def probabilities(kind, function):
    named = {name: tensor for name, tensor in TENSORS.items() if f"{name}[" in function}
    q, k = np.zeros((2, 1, KEYS, 1, 8), np.float32)
    v = np.eye(KEYS, dtype=np.float32)[None, :, None]
    return flashtile.numpy.attention(q, k, v, **{kind: function}, tensors=named or None)[0, :, 0]


def main():
    import matplotlib.pyplot as plt
    drawn = patterns((DOCS / "functions.md").read_text(encoding="utf-8"))
    columns = 6
    rows = -(-len(drawn) // columns)
    figure, places = plt.subplots(rows, columns, figsize=(1.9 * columns, 2.1 * rows), layout="constrained")
    for place, (name, pattern) in zip(places.flat, drawn.items()):
        P = probabilities(*pattern)
        shown = P > 0 if pattern[0] == "mask" else P / P.max(1, keepdims=True)
        place.imshow(shown, cmap="Blues", vmin=0, vmax=1.3, interpolation="nearest")
        place.set_title(name, fontsize=9)
        place.set_xticks([])
        place.set_yticks([])
    for place in places.flat[len(drawn):]:
        place.axis("off")
    figure.savefig(DOCS / "pictures/patterns.png", dpi=100, metadata={"Software": None})


if __name__ == "__main__":
    main()
