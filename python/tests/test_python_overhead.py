"""tools/python_overhead.py runs, and measures every method in every pass."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "tools" / "python_overhead.py"


@pytest.mark.skipif(not PROGRAM.is_file(), reason="needs the repository")
def test_every_method_is_measured(tmp_path):
    result = tmp_path / "overhead.json"
    run = subprocess.run([sys.executable, PROGRAM, "--shape=1,2,3,8", "--threads=1", "--samples=2", "--calls=2",
                          f"--json={result}"], capture_output=True, text=True)
    assert result.is_file(), run.stderr
    microseconds = json.loads(result.read_text())["microseconds"]
    assert list(microseconds) == ["forward", "recorded", "forward and backward", "serving"]
    serving = microseconds.pop("serving")
    assert list(serving)[:2] == ["append_kv", "merge"] and all(time > 0 for time in serving.values())
    for measured in microseconds.values():
        assert list(measured) == ["torch", "flashtile.attention", "flashtile.flash_attn.flash_attn_func",
                                  "flashtile.scaled_dot_product_attention", "library alone", "autograd alone"]
        assert all(time > 0 for time in measured.values())
