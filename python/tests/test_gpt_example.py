"""examples/gpt: the model learns, with each attention alike, a resumed run equals one that never stopped, speeds are
counted by the paper's formula, and a missing backend is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt"
pytestmark = pytest.mark.skipif(not EXAMPLE.is_dir(), reason="needs the repository")
SMALL = ("--rate=1e-3", "--width=32", "--layers=2", "--heads=2", "--context=48", "--batch=4")


@pytest.fixture
def example(monkeypatch):
    """Its modules, whose names are too common to stay imported."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    before = set(sys.modules)
    import attention
    import model
    yield attention, model
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and Path(sys.modules[name].__file__).parent == EXAMPLE:
            del sys.modules[name]


def run(program, *arguments, launcher=()):
    alone = os.environ | {"OMP_NUM_THREADS": "1"}  # so small a model's threads would but wait for each other
    return subprocess.run([sys.executable, *launcher, EXAMPLE / program, *arguments], env=alone, capture_output=True,
                          text=True)


def curves(device, folder, *arguments):
    done = run("curves.py", *SMALL, f"--device={device}", f"--json={folder / 'out'}", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "out").read_text())["runs"]


def test_standard_attention_and_flashtile_learn_alike(device, tmp_path):
    runs = curves(device, tmp_path, "--steps=40", "--rate=5e-3", "--dtype=fp32,bf16", "--dropout=0,0.2")
    assert [run["attention"] for run in runs] == ["standard", "flashtile"] * 4
    for standard, ours in zip(runs[::2], runs[1::2]):
        apart = max(abs(a - b) for a, b in zip(standard["losses"], ours["losses"]))
        # In fp32 a scale of 1.05 times the right one sets the losses 2e-4 apart, another dropout mask 1e-2. In bf16
        # rounding grows over the steps, whatever the attention.
        assert apart < {"fp32": 1e-5, "bf16": 0.1}[ours["dtype"]], (ours["dtype"], ours["dropout"])
        assert sum(ours["losses"][-10:]) / 10 < ours["losses"][0] - 0.4


def test_a_resumed_run_is_the_run_that_was_not_stopped(device, tmp_path):
    options = ("--attention=flashtile", "--dtype=bf16", "--dropout=0.2", f"--checkpoint={tmp_path / 'run'}")
    curves(device, tmp_path, "--steps=4", *options)
    resumed = curves(device, tmp_path, "--steps=8", *options)[0]["losses"]
    whole = curves(device, tmp_path, "--steps=8", *options[:-1])[0]["losses"]
    # The example asks for repeatable bits on the CPU only.
    assert resumed == (whole if device.type == "cpu" else pytest.approx(whole, abs=1e-2)) and len(whole) == 8


def test_the_models_are_as_large_as_their_names_say(example):
    _, model = example
    for name, billions in (("1.3b", 1.3), ("2.7b", 2.7)):
        size = model.SIZES[name]
        assert size.width == 128 * size.heads
        with torch.device("meta"):
            gpt = model.Gpt(size, 2048, model.VOCABULARY, None)
        assert round(sum(p.numel() for p in gpt.parameters()) / 1e9, 1) == billions


def test_flops_are_those_that_pytorch_counts_in_a_step(example):
    attention, model = example
    size, seqlen = model.Size(layers=2, width=32, heads=2), 24
    gpt = model.Gpt(size, seqlen, 100, attention.standard)
    ids = torch.zeros(3, seqlen, dtype=torch.int64)
    with FlopCounterMode(display=False) as counted:
        model.loss_of(gpt, ids, ids).backward()
    # The paper counts every parameter; those that nothing is multiplied with by a matrix product are left out here.
    matrices = sum(p.numel() for name, p in gpt.named_parameters() if p.dim() == 2 and "position" not in name)
    assert counted.get_total_flops() == 3 * model.flops(size, matrices, seqlen)


def test_a_method_that_cannot_run_is_refused(example):
    attention, _ = example
    if not torch.cuda.is_available():
        with pytest.raises(SystemExit, match="--attention=cudnn: cudnn does not run on cpu in torch.bfloat16"):
            attention.chosen("flashtile,cudnn", torch.device("cpu"), torch.bfloat16, 64)
    with pytest.raises(SystemExit, match="--attention=fa4 is none of standard, flash, cudnn, flashtile"):
        attention.chosen("fa4", torch.device("cpu"), torch.float32, 64)
    assert attention.chosen("standard,flashtile", torch.device("cpu"), torch.bfloat16, 64, 0.1)


def test_a_speed_is_the_formula_over_the_time(device, tmp_path):
    done = run("speed.py", f"--device={device}", "--size=2,32,2", "--vocabulary=100", "--context=24", "--batch=3",
               "--steps=4", "--warmup=1", "--attention=standard,flashtile", f"--json={tmp_path / 'out'}")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "out").read_text())
    for row in result["rows"]:
        parameters = (100 + 24) * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32
        assert row["parameters"] == parameters and len(row["losses"]) == row["steps"] == 4
        by_formula = 3 * (6 * 24 * parameters + 12 * 2 * 32 * 24**2) / row["step_seconds"]
        assert row["tflops_per_gpu"] == pytest.approx(by_formula / 1e12)
        assert row["tokens_per_second"] == pytest.approx(3 * 24 / row["step_seconds"])
    first, second = (row["losses"] for row in result["rows"])
    assert first == pytest.approx(second, abs=1e-2)


def test_two_ranks_that_share_a_sequence_learn_what_one_learns(device, tmp_path):
    if device.type == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    options = (f"--device={device.type}", "--size=2,32,2", "--vocabulary=100", "--context=24", "--batch=3", "--dtype=fp32",
               "--steps=4", "--warmup=1", "--rate=1e-2", f"--json={tmp_path / 'out'}")
    rows, torchrun = [], ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    for launcher, more in (((), ()), (torchrun, ("--context-parallel",))):
        done = run("speed.py", *options, *more, launcher=launcher)
        assert done.returncode == 0, done.stderr
        rows += json.loads((tmp_path / "out").read_text())["rows"]
    assert rows[1]["losses"] == pytest.approx(rows[0]["losses"], abs=1e-5)
    flops = [row["tflops_per_gpu"] * row["step_seconds"] for row in rows]
    assert flops[1] == pytest.approx(flops[0] / 2)
