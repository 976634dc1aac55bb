"""The patterns of docs/functions.md: what the library shows of each is what its name says, written here as a loop over places."""

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import draw_patterns as drawing  # noqa: E402

PATTERNS = drawing.patterns((ROOT / "docs/functions.md").read_text(encoding="utf-8"))
DOCUMENT = drawing.TENSORS["document"]


def ancestors(i):
    while i >= 0:
        yield i
        i = (i - 1) // 2


SEEN = {
    "causal": lambda i, j: j <= i,
    "window with sinks": lambda i, j: i - 11 <= j <= i or j < min(4, i + 1),
    "documents": lambda i, j: j <= i and DOCUMENT[i] == DOCUMENT[j],
    "prefix-LM": lambda i, j: j in range(20) or j <= i,
    "dilated window": lambda i, j: i - j in range(0, 32, 4),
    "strided and local": lambda i, j: i - j in range(8) or (j <= i and j in range(7, 64, 8)),
    "butterfly of blocks": lambda i, j: bin(i // 8 ^ j // 8).count("1") <= 1,
    "tree, as a heap": lambda i, j: j in ancestors(i),
    "2-D neighbourhood": lambda i, j: max(abs(a - b) for a, b in zip(divmod(i, 8), divmod(j, 8))) <= 2,
}
SCORES = {
    "ALiBi": lambda i, j: -0.1 * abs(i - j),
    "T5's table": lambda i, j: drawing.TENSORS["table"][0, np.clip(j - i, -32, 32) + 32],
    "soft clamp": lambda i, j: 4 * np.tanh(-0.02 * (i - j) ** 2 / 4),
}


def test_every_pattern_is_here():
    assert set(PATTERNS) == set(SEEN) | set(SCORES)
    assert {name for name, (kind, _) in PATTERNS.items() if kind == "mask"} == set(SEEN)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_is_what_its_name_says(name):
    places = range(drawing.KEYS)
    scores = np.array([[SCORES[name](i, j) if name in SCORES else 0.0 if SEEN[name](i, j) else -np.inf for j in places]
                       for i in places], np.float64)
    expected = np.exp(scores - scores.max(1, keepdims=True))
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(drawing.probabilities(*PATTERNS[name]), expected, atol=1e-6)
