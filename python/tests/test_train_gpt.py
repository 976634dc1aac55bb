"""examples/train_gpt.py: the model learns, with both attentions alike, and a resumed run equals one that never
stopped."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_gpt.py"


def train(device, folder, *arguments):
    small = ("--width=32", "--layers=2", "--heads=2", "--context=48", "--batch=4", f"--device={device}",
             f"--output={folder / 'out'}")
    alone = os.environ | {"OMP_NUM_THREADS": "1"}  # so small a model's threads would but wait for each other
    subprocess.run([sys.executable, EXAMPLE, *small, *arguments], check=True, env=alone)
    return json.loads((folder / "out.json").read_text())


@pytest.mark.skipif(not EXAMPLE.is_file(), reason="needs the repository")
def test_both_attentions_learn_alike_without_dropout(device, tmp_path):
    results = train(device, tmp_path, "--steps=40", "--dropout=0")
    ours, math = results["flashtile"]["losses"], results["math"]["losses"]
    assert max(abs(a - b) for a, b in zip(ours, math)) < 1e-3
    assert sum(ours[-10:]) / 10 < ours[0] - 0.4  # of chance's 4.5


@pytest.mark.skipif(not EXAMPLE.is_file(), reason="needs the repository")
def test_a_resumed_run_is_the_run_that_was_not_stopped(device, tmp_path):
    options = ("--methods=flashtile", "--dropout=0.2", f"--checkpoint={tmp_path / 'run'}")
    train(device, tmp_path, "--steps=4", *options)
    resumed = train(device, tmp_path, "--steps=8", *options)["flashtile"]["losses"]
    whole = train(device, tmp_path, "--steps=8", *options[:2])["flashtile"]["losses"]
    # The example asks for repeatable bits on the CPU only.
    assert resumed == (whole if device.type == "cpu" else pytest.approx(whole, abs=1e-4)) and len(whole) == 8
