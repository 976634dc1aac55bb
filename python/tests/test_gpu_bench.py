"""Dry runs of tools/gpu_bench.py on the CPU: every work runs to its end, results are on disk after every point, and the
check of results finds wrong ones."""

import argparse
import json
import os
import subprocess
import sys
import warnings
import weakref
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the package's tests need PyTorch")

TOOLS = Path(__file__).parents[2] / "tools"
if not TOOLS.is_dir():
    pytest.skip("needs the repository", allow_module_level=True)
sys.path.insert(0, str(TOOLS))

from flashtile_torch import Library  # noqa: E402
from gpu_bench import cache_calls, contest, decode, fp8, points, timing  # noqa: E402
from gpu_bench import run as bench_run  # noqa: E402
from gpu_bench.cache import Cache, GrowingCache, attend, rotary_tables  # noqa: E402
from gpu_bench.check import wrong_results  # noqa: E402
from gpu_bench.machine import Host  # noqa: E402
from gpu_bench.methods import Flashtile  # noqa: E402
from gpu_bench.problem import Problem  # noqa: E402
from gpu_bench.slowdowns import VARLEN, VARLEN_DENSE  # noqa: E402
from gpu_bench.summary import ratios, table  # noqa: E402

from flashtile import _library  # noqa: E402

pytestmark = pytest.mark.skipif(os.environ.get("FLASHTILE_TEST_DEVICE", "cpu") != "cpu", reason="dry runs on the CPU")

WORKS = ("memory", "gqa", "head_dims", "fp16", "window", "varlen", "options", "decode")


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
    result, said = dry_run(tmp_path / "result.json", f"--work=forward,backward,{','.join(WORKS)}",
                           "--points=32/8-1x1k")
    assert result["finished"] and not (result["left_out"] or result["wrong"] or result["failed"])
    assert {(r["pass"], r["regime"]) for r in result["rows"]} == {
        (work, regime) for work in ("forward", "backward") for regime in ("burst", "sustained")}
    assert all(result[work] for work in WORKS) and {row["point"] for row in result["decode"]} == {"32/8-1x1k"}
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
        json, seconds, rounds, regimes = str(tmp_path / "result.json"), 100.0, 1, timing.REGIMES

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


def test_the_check_sees_gradients_of_shared_heads(library):
    problem = Problem(Host(), "fp32", 16, True, 64, 2, 4, kv_heads=2)
    method = Flashtile(library, problem)
    assert wrong_results(problem, [method]) == {}
    method.gradients[1].mul_(0.5)  # as if one of a group's two heads were left out
    assert list(wrong_results(problem, [method])) == ["flashtile"]


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
    right = cache_calls.decode(cache)()
    assert cache.error(right) < 1e-4
    assert cache.error(torch.zeros(3, 1, 4, dv)) > 0.5
    assert cache.error(right.roll(1, 2)) > 0.5  # of another head


@pytest.mark.parametrize("page", (0, 8))
def test_decode_knows_where_queries_stand(library, page):
    cache = Cache(Host(), "fp32", heads=4, kv_heads=2, d=16, dv=16, lengths=[40] * 3, page=page, queries=5)
    right = cache_calls.packed(cache)()
    assert cache.error(right) < 1e-4
    assert cache.error(right.roll(1, 1)) > 0.3
    if not page:
        assert cache.error(cache_calls.dense(cache)()) < 1e-4


def test_decode_knows_a_shared_prefix(library):
    cache = Cache(Host(), "fp32", heads=4, kv_heads=2, d=16, dv=16, lengths=[40] * 3, page=8, prefix=32)
    assert len(cache.k) == 4 + 3 and (cache.table[:, :4] == cache.table[0, :4]).all()
    assert len(set(cache.table[:, 4].tolist()) | set(cache.table[0].tolist())) == 4 + 3
    assert cache.bytes() == (32 + 3 * 8) * 2 * (16 + 16) * 4
    for call in (cache_calls.prefix_stated, cache_calls.decode):
        assert cache.error(call(cache)()) < 1e-4
    cache.table[2, 0] = cache.table[2, 1]
    assert cache.error(cache_calls.prefix_stated(cache)()) > 0.1  # the oracle reads each sequence's own table


@pytest.mark.parametrize("page", (0, 8))
@pytest.mark.parametrize("wrong", ("nothing", "no append", "q not rotated", "k not rotated", "other pairs"))
def test_decode_finds_a_wrong_append(library, page, wrong):
    rotary = rotary_tables(Host(), "fp32", 40, 16)
    cache = GrowingCache(Host(), "fp32", rotary, heads=4, kv_heads=2, d=16, dv=16, lengths=[40, 17], page=page)
    given = {"k": cache.new_k, "v": cache.new_v, "rotary_cos": cache.cos, "rotary_sin": cache.sin}
    if wrong == "no append":
        given = {}
    elif wrong == "q not rotated":
        cache.q, q = torch.zeros_like(cache.q), cache.q
        cache_calls.append_and_decode(cache)()  # writes the cache, as it should
        cache.q, given = q, {}
    elif wrong == "k not rotated":
        given["rotary_cos"], given["rotary_sin"] = torch.ones_like(cache.cos), torch.zeros_like(cache.sin)
    elif wrong == "other pairs":
        given["rotary_interleaved"] = True
    from flashtile import Append, attention
    out = attention(cache.q, cache.k, cache.v, causal=True, seqused_k=cache.before if given else cache.used,
                    block_table=cache.table, append=Append(**given) if given else None)
    error = cache.error(out)
    assert error < 1e-4 if wrong == "nothing" else error > 0.1


def test_an_appended_key_counts_in_a_long_cache():
    rotary = rotary_tables(Host(), "fp32", 4000, 64)
    cache = GrowingCache(Host(), "fp32", rotary, heads=4, kv_heads=2, d=64, dv=64, lengths=[4000])
    unseen = torch.zeros(1, 1, 4, 64)
    for b, h in cache.checked():
        (k, v), (new_k, new_v) = (cache.rows(x, b, h) for x in (cache.k, cache.v)), cache.appended(b, h)
        unseen[b, :, h] = attend(cache.rotated(cache.q[b, :, h], b), k[:-1], v[:-1])
        cache.k[b, -1, h // 2], cache.v[b, -1, h // 2] = new_k, new_v
    assert cache.error(unseen) > 0.5


class HostThatKeepsNothing(Host):
    """Its graphs hold what they call no more than CUDA's hold the memory that they use."""

    @staticmethod
    def graph(calls):
        held = [weakref.ref(call) for call in calls]
        return lambda: [call()() for call in held]

    @staticmethod
    def size(n):
        return n // 128


def test_points_of_fp8_run(tmp_path):
    result, said = dry_run(tmp_path / "result.json", "--work=fp8", "--points=e4m3-cache-16/1-16x8k,quantize")
    assert result["finished"] and not (result["left_out"] or result["wrong"] or result["failed"])
    assert {row["method"] for row in result["fp8"]} == {"flashtile", "flashtile_blocks64", "flashtile_bf16"}
    assert {row["kind"] for row in result["quantize"]} == {"copy", "blocks of 128", "M", "rotary, M",
                                                           "rotary, M, blocks of 64"}


@pytest.fixture
def decode_run(library, monkeypatch):
    """A run of the work decode that measures as shortly as it can, and sees a peer that refuses everything."""
    class Arguments:
        json, seconds, rounds, dtype, fa3, methods = None, 100.0, 1, "fp32", None, ("flashtile", "torch_cudnn")
        points = list(decode.POINTS)
        regimes = timing.REGIMES

    def refuse(cache):
        warnings.warn("the reason")
        raise RuntimeError("refused\nand so on")

    for name in ("IDLE", "LOAD", "SAMPLE"):
        monkeypatch.setattr(timing, name, 0.0)
    monkeypatch.setattr(bench_run.gc, "collect", lambda: 0)  # after every point: most of the test's time
    monkeypatch.setattr(contest, "HOST_SAMPLES", 1)
    monkeypatch.setattr(contest, "CALLS", 1)
    monkeypatch.setattr(contest, "seeds", lambda gpu, first: (1,))  # a second cache, as on a GPU
    monkeypatch.setattr(cache_calls, "cudnn_decode", refuse)
    monkeypatch.setattr(bench_run, "ceilings", lambda gpu, rounds: {"gemm_bf16_tflops": {"sustained": 1.0}})
    return bench_run.Run(Arguments(), HostThatKeepsNothing(), library)


def test_every_point_of_decode_has_its_floor(decode_run):
    decode.decode(decode_run)
    assert not (decode_run.failed or decode_run.wrong)
    rows = {(row["point"], row["regime"]): row for row in decode_run.extra["decode"]}
    assert set(rows) == {(point, regime) for point in decode.POINTS
                         for regime in (("host",) if point.startswith("host") else timing.REGIMES)}
    assert decode_run.left_out == [{"work": f"decode {point}", "method": "torch_cudnn", "reason": "refused; the reason"}
                                   for point in decode.TABLE]
    made_of = {"append-32/8-1x1k": ("alone", lambda t: t + 1.5), "append-32/8-16x8k": ("alone", lambda t: t + 1.5),
               "chunked-prefill": ("dense", lambda t: t / 0.92), "cascade": ("unstated", lambda t: t / 8),
               "unequal": ("equal", lambda t: 1.08 * t), "32/8-16x8k-pages16": ("dense", lambda t: 1.04 * t),
               "32/8-16x8k-pages64": ("dense", lambda t: 1.02 * t),
               "32/8-16x8k-pages256": ("dense", lambda t: 1.02 * t)}
    for point, (other, floor) in made_of.items():
        row = rows[point, "burst"]
        assert row["floor_us"] == pytest.approx(floor(row["us"][f"flashtile_{other}"]))
    assert rows["16/1-16x8k", "burst"]["floor_us"] == 21 and rows["16/1-16x8k", "burst"]["issue_peer_us"] == 23.8
    assert rows["MLA-128/1-32x4k", "burst"]["floor_us"] == pytest.approx(2 * 32 * 128 * 32 * (576 + 512) / 0.75e6)
    assert [rows[f"host-{what}", "host"]["floor_us"] for what in ("dense", "pages64", "append")] == [20, 20, None]
    prefill = rows["chunked-prefill", "burst"]  # of 4 new queries on 64 cached keys the first sees 65, the last 68
    assert prefill["tflops"]["flashtile"] * prefill["us"]["flashtile"] == pytest.approx(
        4e-6 * 8 * 32 * 128 * sum(range(65, 69)))
    said = "\n".join(table(decode_run))
    assert "best peer before 23.8 us" in said and said.count("at most") == len(rows) - 1


def test_a_wrong_side_has_no_time_and_a_refusing_one_is_said(decode_run, monkeypatch):
    monkeypatch.setattr(cache_calls, "decode", lambda cache: lambda: torch.zeros_like(cache.q))
    monkeypatch.setattr(cache_calls, "prefix_stated", cache_calls.cudnn_decode)  # refuses
    monkeypatch.setattr(cache_calls, "with_kvcache", cache_calls.cudnn_decode)
    decode_run.arguments.points = ["cascade", "append-32/8-1x1k", "host-dense"]
    decode.decode(decode_run)
    assert [(w["work"], w["method"]) for w in decode_run.wrong] == [
        ("decode append-32/8-1x1k", "flashtile_alone"), ("decode cascade", "flashtile_unstated")]
    assert decode_run.failed == [{"work": f"decode {point}", "method": "flashtile", "reason": "refused; the reason"}
                                 for point in ("cascade", "host-dense")]
    assert [(r["point"], list(r["us"]), r["floor_us"]) for r in decode_run.extra["decode"]] == [
        ("append-32/8-1x1k", ["flashtile"], None)] * 2


def test_points_are_chosen_by_name_and_by_part_of_one():
    assert points.points_of("32/8-16x8k") == ["32/8-16x8k"]
    assert points.points_of("1x1k,cascade") == ["32/8-1x1k", "append-32/8-1x1k", "cascade"]
    assert points.points_of("cache,quantize") == [*(f"e4m3-cache-{what}" for what in fp8.DECODE), "quantize"]
    assert points.points_of("host") == ["host-dense", "host-pages64", "host-append"]
    for text in ("cascde", "", "host,"):
        with pytest.raises(argparse.ArgumentTypeError, match="allowed are names"):
            points.points_of(text)
    assert not any(set(name) & set(", ") for name in points.POINTS)  # gpu-check --bench cuts at spaces
