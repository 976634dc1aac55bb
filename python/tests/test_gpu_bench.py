"""Dry runs of tools/gpu_bench.py on the CPU: every work runs to its end, results are on disk after every point, and the
check of results finds wrong ones."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the package's tests need PyTorch")

TOOLS = Path(__file__).parents[2] / "tools"
if not TOOLS.is_dir():
    pytest.skip("needs the repository", allow_module_level=True)
sys.path.insert(0, str(TOOLS))

from flashtile_torch import Library  # noqa: E402
from gpu_bench import run as bench_run  # noqa: E402
from gpu_bench.check import wrong_results  # noqa: E402
from gpu_bench.decode import Cache, error_of, flashtile_call  # noqa: E402
from gpu_bench.machine import Host  # noqa: E402
from gpu_bench.methods import Flashtile  # noqa: E402
from gpu_bench.problem import Problem  # noqa: E402
from gpu_bench.slowdowns import VARLEN, VARLEN_DENSE  # noqa: E402
from gpu_bench.summary import ratios  # noqa: E402

from flashtile import _library  # noqa: E402

pytestmark = pytest.mark.skipif(os.environ.get("FLASHTILE_TEST_DEVICE", "cpu") != "cpu", reason="dry runs on the CPU")

WORKS = ("memory", "gqa", "head_dims", "fp16", "window", "varlen", "options")


def dry_run(path, *arguments):
    small = ("--seqlen=64", "--head-dim=16", "--tokens=64", "--rounds=1", "--causal=1", "--methods=flashtile")
    done = subprocess.run([sys.executable, TOOLS / "gpu_bench.py", "--device=cpu", f"--library={_library.PATH}",
                           f"--json={path}", *small, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text()), done.stdout


@pytest.fixture
def library(monkeypatch):
    monkeypatch.setenv("FLASHTILE_LIBRARY", str(_library.PATH))  # which Library sets, and this takes back
    return Library(_library.PATH)


def test_every_work_runs(tmp_path):
    result, said = dry_run(tmp_path / "result.json", f"--work=forward,backward,{','.join(WORKS)}")
    assert result["finished"] and not (result["left_out"] or result["wrong"] or result["failed"])
    assert {(r["pass"], r["regime"]) for r in result["rows"]} == {
        (work, regime) for work in ("forward", "backward") for regime in ("burst", "sustained")}
    assert all(result[work] for work in WORKS)
    assert {r["option"] for r in result["options"]} == {
        "alibi", "softcap", "bias", "mask", "dropout", "window", "seqused", "causal_alibi"}
    for floor in ("floor 0.95", "at most 1.15", "at most 1.5"):
        assert floor in said
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_what_there_is_no_time_for_is_left_out_and_said(tmp_path):
    result, said = dry_run(tmp_path / "result.json", "--work=fp16,varlen", "--seconds=-1")
    assert len(result["left_out"]) == 3 and result["fp16"] == result["varlen"] == []  # two points and one
    assert said.count("left out: ") == 3


def test_an_interrupted_run_leaves_what_it_has(tmp_path, library, monkeypatch):
    class Arguments:
        json, seconds, rounds = str(tmp_path / "result.json"), 100.0, 1

    def fails(run):
        raise RuntimeError("no luck")

    def is_interrupted(run):
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_run, "ceilings", lambda gpu, rounds: {})
    run = bench_run.Run(Arguments, Host(), library)
    run.point("one", lambda run: run.rows.append({"a": 1}))
    run.point("two", fails)
    with pytest.raises(KeyboardInterrupt):
        run.point("three", is_interrupted)
    result = json.loads(Path(Arguments.json).read_text())
    assert result["rows"] == [{"a": 1}] and not result["finished"]
    assert result["failed"] == [{"work": "two", "reason": "no luck"}]


OPTIONS = {"alibi": {"alibi": True}, "softcap": {"softcap": 1.0}, "bias": {"bias": True}, "mask": {"mask": True},
           "window": {"window": (8, 0)}, "varlen": {"lengths": [40, 24]}, "kv_heads": {"kv_heads": 1}}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_check_sees_each_option(library, name):
    def method(**options):
        problem = Problem(Host(), "fp32", 16, False, 64, 2, 4, **options)
        return problem, Flashtile(library, problem, backward=False)

    problem, right = method(**OPTIONS[name])
    assert wrong_results(problem, [right]) == {}
    if name in ("varlen", "kv_heads"):  # results of another shape without it
        right.out.copy_(right.out.flip(-3))
    else:
        right.out.copy_(method()[1].out)
    assert list(wrong_results(problem, [right])) == ["flashtile"]


def test_the_check_sees_dropout(library):
    problem = Problem(Host(), "fp32", 16, False, 64, 2, 4, dropout=0.3)
    method = Flashtile(library, problem, backward=False)
    kept = library.dropout_mask(0.3, 1, (1, 4, 64, 64), torch.device("cpu"))
    assert wrong_results(problem, [method], kept) == {}
    assert list(wrong_results(problem, [method], ~kept)) == ["flashtile"]


def test_pairs_of_visited_blocks():
    def problem(**options):
        return Problem(Host(), "fp32", 16, False, 100, 1, 1, **options)

    assert problem().visited_pairs((64, 32)) == 2 * 4 * 64 * 32
    # queries 0-63 see keys 0-63, queries 64-99 keys 44-99
    assert problem(window=(20, 0)).visited_pairs((64, 32)) == (2 + 3) * 64 * 32
    window = problem(window=(20, 10))
    assert window.visited_pairs((1, 1)) == window.pairs() == sum(
        abs(i - j) <= (20 if j < i else 10) for i in range(100) for j in range(100))


def test_packed_and_dense_are_as_much_work():
    batch, seqlen = VARLEN_DENSE
    assert sum(VARLEN) == batch * seqlen == 16384 and len(VARLEN) == 16
    assert sum(n * n for n in VARLEN) == batch * seqlen**2


def test_ratios_are_over_the_best_peer_of_each_point():
    def row(method, seqlen, tflops):
        return {"method": method, "pass": "forward", "regime": "burst", "head_dim": 64, "kv_heads": 4, "causal": True,
                "seqlen": seqlen, "tflops": tflops}

    rows = [row("flashtile", 512, 6.0), row("fa3", 512, 2.0), row("torch_cudnn", 512, 3.0),
            row("torch_flash", 512, 9.0), row("flashtile", 1024, 6.0), row("fa3", 1024, 4.0),
            row("flashtile", 2048, 1.0)]
    assert sorted(ratios(rows, "forward", ("torch_cudnn", "fa3"), "burst").values()) == [1.5, 2.0]


@pytest.mark.parametrize("page", (0, 8))
@pytest.mark.parametrize("head_dims", ((16, 16), (24, 16)))  # the second: V is a view of K
def test_decode_finds_what_is_wrong(library, page, head_dims):
    d, dv = head_dims
    cache = Cache(Host(), "fp32", heads=4, kv_heads=2, d=d, dv=dv, lengths=[5, 40, 17], page=page)
    assert error_of(flashtile_call(cache), cache) < 1e-4
    assert error_of(lambda: torch.zeros(3, 1, 4, dv), cache) > 0.5
    call = flashtile_call(cache)
    right = call()
    assert error_of(lambda: right.roll(1, 2), cache) > 0.5  # of another head
