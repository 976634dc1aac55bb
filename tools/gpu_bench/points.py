"""The points of --points: those of the works that have names for theirs."""

import argparse

from gpu_bench import decode, fp8

POINTS_OF = {"decode": decode.POINTS, "fp8": fp8.POINTS}
POINTS = [name for points in POINTS_OF.values() for name in points]


def points_of(text):
    """A name stands for that point, any other text for every point whose name contains it."""
    chosen = []
    for part in text.split(","):
        found = [part] if part in POINTS else [name for name in POINTS if part in name]
        if not found or not part:
            allowed = f"allowed are names, or parts of them, of {', '.join(POINTS)}"
            raise argparse.ArgumentTypeError(f"has {part!r}, {allowed}")
        chosen += found
    return chosen
