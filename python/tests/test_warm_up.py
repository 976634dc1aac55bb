"""flashtile.warm_up, and backward's kernels beside forward's, on a fake driver and a fake compiler that count: in processes
of their own, since a process opens its driver once. They are built with the C++ tests; skipped where they were not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import flashtile
from flashtile import _run
from flashtile._options import CallOptions
from flashtile._structs import INPUT_NAMES

BUILD = Path(os.environ.get("FLASHTILE_LIBRARY", "")).parent
DRIVER, COMPILER = BUILD / "libfake_driver.so", BUILD / "libfake_nvrtc.so"


def run(program: str, folder: Path, **variables: str) -> str:
    if not DRIVER.exists() or not COMPILER.exists():
        pytest.skip("the fake driver and compiler are built by make test")
    environment = {**os.environ, "FLASHTILE_CUDA_DRIVER": str(DRIVER), "FLASHTILE_NVRTC": str(COMPILER),
                   "FLASHTILE_CACHE": str(folder / "cache"), "FAKE_NVRTC_LOG": str(folder / "log"), **variables}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def compiles(folder: Path) -> int:
    return (folder / "log").read_text().count("\n") if (folder / "log").exists() else 0


def test_compiles_forward_and_backward_and_says_how_far_it_is(tmp_path):
    said = run("""
import flashtile
calls = []
flashtile.warm_up([(2, 512, 4, 64), (2, 256, 4, 64)], causal=True, device="cuda:0", progress=lambda *at: calls.append(at))
print(calls)
flashtile.warm_up([(2, 512, 4, 64)], causal=True, device="cuda:0", backward=False)
""", tmp_path)
    assert said == "[(1, 4), (2, 4), (3, 4), (4, 4)]\n"  # forward with lse, and backward's three; both shapes share them
    assert compiles(tmp_path) == 5  # and forward without lse


def test_without_a_compiler_it_says_what_to_install(tmp_path):
    said = run("""
import flashtile
try:
    flashtile.warm_up([(2, 512, 4, 64)], device="cuda:0")
except NotImplementedError as error:
    print(error)
""", tmp_path, FLASHTILE_NVRTC=str(tmp_path / "none"))
    assert "pip install nvidia-cuda-nvrtc" in said


def test_backward_is_compiled_beside_forward(tmp_path):
    # The fake driver has no memory that PyTorch could own: the tensors' layouts are told by hand.
    run("""
from flashtile._prepare import ALIGNED, Problem, prepare_aside
from flashtile._options import CallOptions
q = (ALIGNED, 3, 2, 0, 4, 2, 512, 4, 64, 512 * 256, 256, 64, 1)
prepare_aside(Problem((q, q, q) + (None,) * 10, CallOptions(), False, True, True)).join()
""", tmp_path)
    assert compiles(tmp_path) == 3


def test_a_program_may_end_while_kernels_are_compiled(tmp_path):
    run("""
from flashtile._prepare import ALIGNED, Problem, prepare_aside
from flashtile._options import CallOptions
q = (ALIGNED, 3, 2, 0, 4, 2, 512, 4, 64, 512 * 256, 256, 64, 1)
prepare_aside(Problem((q, q, q) + (None,) * 10, CallOptions(), False, True, True))
""", tmp_path, FAKE_NVRTC_MILLISECONDS="200")
    assert compiles(tmp_path) == 3


def test_what_backward_cannot_take_is_the_call_to_say():
    wrong = torch.zeros(1, 4, 2, 8, dtype=torch.float64)
    calls = _run.Calls("forward", (wrong,) * 3, CallOptions(), True, False)
    calls.foresee_backward((wrong,) * 3)  # raises nothing
    with pytest.raises(TypeError, match="q.dtype is torch.float64"):
        calls.run((wrong,) * 3, None)


@pytest.mark.parametrize("needed", [False, True])
def test_the_gradient_of_a_bias_is_compiled_where_it_will_be_asked_for(monkeypatch, needed):
    asked = []
    monkeypatch.setattr(_run, "prepare_aside", asked.append)
    q = torch.zeros(1, 4, 2, 8, requires_grad=True)
    given = [q, q, q, *(None,) * (len(INPUT_NAMES) - 3)]
    given[INPUT_NAMES.index("bias")] = torch.zeros(1, 2, 4, 4, requires_grad=needed)
    _run.Calls("forward", given, CallOptions(), True, False).foresee_backward(given)
    assert [problem.beside for problem in asked] == [needed]


def test_on_the_cpu_there_is_nothing_to_do():
    calls = []
    flashtile.warm_up([(2, 64, 4, 64), [(2, 1, 8, 64), (2, 64, 2, 64)]], device="cpu", dtype=torch.float32, causal=True,
                      progress=lambda *at: calls.append(at))
    assert calls == []


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="heads a multiple of k's 3"):
        flashtile.warm_up([[(2, 64, 4, 64), (2, 64, 3, 64)]], device="cpu")
    with pytest.raises(ValueError, match="shapes holds"):
        flashtile.warm_up([(2, 64, 64)], device="cpu")
    with pytest.raises(ValueError, match="shapes is "):
        flashtile.warm_up((2, 64, 4, 64), device="cpu")
    with pytest.raises(ValueError, match="align is 'middle'"):
        flashtile.warm_up([(2, 64, 4, 64)], device="cpu", align="middle")
    with pytest.raises(TypeError, match="window is"):
        flashtile.warm_up([(2, 64, 4, 64)], device="cpu", window=(1,))
    with pytest.raises(ValueError, match="colour is given, allowed are causal"):
        flashtile.warm_up([(2, 64, 4, 64)], device="cpu", colour=1)
    with pytest.raises(ValueError, match="q.dtype is int32"):
        flashtile.warm_up([(2, 64, 4, 64)], device="cpu", dtype=torch.int32)
    with pytest.raises(ValueError, match="device is meta"):
        flashtile.warm_up([(2, 64, 4, 64)], device="meta")
