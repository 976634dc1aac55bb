"""tools/bench_ranks.py on two processes of the CPU: its reference in fp64, its peers, and one that cannot run."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

TOOL = Path(__file__).parents[2] / "tools/bench_ranks.py"
pytestmark = [pytest.mark.skipif(not TOOL.is_file(), reason="needs the repository"),
              pytest.mark.skipif(importlib.util.find_spec("ring_flash_attn") is None, reason="needs ring-flash-attn"),
              pytest.mark.skipif(torch.cuda.is_available(), reason="tools/ranks-check runs it on GPUs")]


def test_rows_of_a_point(tmp_path):
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", TOOL,
                           "--tokens=128", "--heads=4/2", "--head-dim=32", "--repeats=2", "--sample=16", "--link",
                           "--strategies=ring,auto", "--against=ring_flash_attn,torch", f"--json={tmp_path / 'out'}"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    points = {point["strategy"]: point for point in json.loads((tmp_path / "out").read_text())["points"]}
    assert points.keys() == {"torch", "one device", "ring", "auto", "ring_flash_attn"}
    assert "No viable backend" in points["torch"]["error"]
    for name in ("ring", "auto", "ring_flash_attn"):
        point = points[name]
        assert all(0 < error < 0.01 for error in point["errors"].values()) and len(point["errors"]) == 4
        assert len(point["seconds"]) == 3
        assert point["share"] == pytest.approx(points["one device"]["ms"] / point["ms"])
        assert ("predicted_share" in point) == (name != "ring_flash_attn")
