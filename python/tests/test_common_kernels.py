"""The kernels that the wheel carries (python/common_kernels.txt): the list has what it promises, and what it has serves the
calls that people make, on a fake driver, by a fake compiler, which is gone when the calls are made."""

import argparse
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_warm_up import COMPILER, DRIVER, run

LIST = Path(__file__).parents[1] / "common_kernels.txt"
ARCHITECTURES, GROUPS = ("sm_80", "sm_86", "sm_89", "sm_90a"), (1, 4, 8)

pytestmark = pytest.mark.skipif(not LIST.is_file(), reason="the list is not part of the package")


def lines():
    return [line for line in LIST.read_text().splitlines() if not line.startswith("#")]


def test_the_list_is_what_it_promises():
    """Both 16-bit types, the common head dimensions, full and causal, dense, packed and decoding, backward where decoding
    is not meant; and nothing else."""
    flags = argparse.ArgumentParser()
    for name in ("arch", "dtypes", "head-dims"):
        flags.add_argument(f"--{name}", type=lambda text: text.split(","))
    flags.add_argument("--with", dest="sets", action="append", type=lambda text: tuple(sorted(text.split(","))))
    flags.add_argument("--group", type=int, default=1)
    flags.add_argument("--forward-only", action="store_true")
    listed = []
    for line in lines():
        one = flags.parse_args(line.split())
        listed += itertools.product(one.arch, one.dtypes, one.head_dims, one.sets, [one.group], [one.forward_only])
    many = [tuple(sorted([*options, "only-many-queries"])) for options in ((), ("causal",), ("packed",), ("packed", "causal"))]
    few = [tuple(sorted([*options, "only-few-queries", "only-without-lse"]))
           for options in ((), ("causal",), ("cache", "seqused", "causal"), ("pages", "seqused", "causal"))]
    sizes = (("bf16", "fp16"), ("64", "96", "128", "256"))
    assert sorted(listed) == sorted([*itertools.product(ARCHITECTURES, *sizes, many, [1], [False]),
                                     *itertools.product(["sm_90a"], *sizes, many, [8], [False]),
                                     *itertools.product(ARCHITECTURES, *sizes, few, GROUPS, [True])])


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """Of one type and head dimension: the others' kernels are chosen alike."""
    if not DRIVER.exists() or not COMPILER.exists():
        pytest.skip("the fake driver and compiler are built by make test")
    folder = tmp_path_factory.mktemp("common")
    text = re.sub("--dtypes=[^ ]*", "--dtypes=bf16", re.sub("--head-dims=[^ ]*", "--head-dims=64", "\n".join(lines())))
    (folder / "list.txt").write_text(text)
    subprocess.run([sys.executable, "-m", "flashtile", "compile", f"--list={folder}/list.txt", f"--output={folder}/kernels.ftb"],
                   env={**os.environ, "FLASHTILE_NVRTC": str(COMPILER), "FLASHTILE_CACHE": str(folder / "cache")}, check=True)
    return folder / "kernels.ftb"


@pytest.mark.parametrize("architecture", [name[3:5] for name in ARCHITECTURES])
def test_common_calls_need_no_compiler(bundle, tmp_path, architecture):
    said = run("""
import itertools
import flashtile
heads = [(16, 16), (32, 8), (64, 8)]
for (q, kv), causal, seqlen in itertools.product(heads, (False, True), (100, 777, 4096)):
    for backward in (False, True):
        flashtile.warm_up([[(4, seqlen, q, 64), (4, seqlen, kv, 64)]], device="cuda:0", causal=causal, backward=backward)
for (q, kv), causal, few, batch in itertools.product(heads, (False, True), (1, 5), (1, 16)):
    flashtile.warm_up([[(batch, few, q, 64), (batch, 8192, kv, 64)]], device="cuda:0", causal=causal, backward=False)

from flashtile._options import CallOptions
from flashtile._prepare import ALIGNED, Problem, prepare
def rows(heads):
    return (ALIGNED, 3, 2, 0, 3, 8000, heads, 64, 64 * heads, 64, 1)
cu_seqlens = (ALIGNED, 6, 2, 0, 1, 9, 1)
for (q, kv), causal, lse in itertools.product(heads, (0, 1), (False, True)):
    inputs = (rows(q), rows(kv), rows(kv), None, None, None, cu_seqlens, cu_seqlens) + (None,) * 5
    prepare([Problem(inputs, CallOptions(max_seqlen_q=1000, max_seqlen_k=1000, causal=causal), True, lse, lse)])
try:
    flashtile.warm_up([(4, 100, 16, 64)], device="cuda:0", softcap=30.0)
except NotImplementedError as error:
    print(error)
""", tmp_path, FAKE_DRIVER_ARCHITECTURE=architecture, FLASHTILE_BUNDLE=str(bundle), FLASHTILE_NVRTC=str(tmp_path / "none"))
    assert "pip install nvidia-cuda-nvrtc" in said  # what is not common asks for it
