"""examples/train_jax.py: the curve with flashtile lies on XLA's, and the model learns. tools/bench_jax.py: a row has
what it promises."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from jax_cases import jax

ROOT = Path(__file__).resolve().parent.parent.parent


def module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("dtype, apart", [("fp32", 1e-4), ("bf16", 2e-2)])
def test_curves_lie_on_each_other(dtype, apart):
    sizes = ["--steps=10", "--batch=2", "--context=48", "--layers=2", "--width=64", "--heads=2", "--rate=5e-3",
             f"--dtype={dtype}"]
    curves = module(ROOT / "examples/train_jax.py").main(sizes)
    ours, xla = (np.array(curves[name]) for name in ("flashtile", "xla"))
    assert np.abs(ours - xla).max() < apart
    assert ours[0] > 5 and ours[-1] < ours[0] - 0.5  # log 256 is 5.5


def test_the_benchmark(tmp_path, monkeypatch, capsys):
    if jax.default_backend() != "cpu":
        pytest.skip("other sizes on a GPU")
    file = tmp_path / "jax.json"
    monkeypatch.setattr(sys, "argv", ["bench_jax.py", "--lengths=48", "--heads=2", "--repeats=1", f"--json={file}"])
    bench = module(ROOT / "tools/bench_jax.py")
    bench.SAMPLE = 0
    bench.main()
    rows = json.loads(file.read_text())["rows"]
    assert [(row["dtype"], row["pass"]) for row in rows] == [
        (dtype, name) for dtype in ("fp32", "bf16") for name in ("forward", "with gradients")]
    for row in rows:
        for name in ("flashtile", "xla"):  # both computed attention
            assert 0 < row[name]["error"] < (1e-5 if row["dtype"] == "fp32" else 0.03)
        assert row["ratio"] == row["xla"]["seconds"] / row["flashtile"]["seconds"]
    assert "ratio" in capsys.readouterr().out
