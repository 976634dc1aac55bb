"""flashtile.distributed: four processes on gloo, started once. They run cases on all of them, on groups of three and two
of them, and on one alone; each compares its rows with dense attention in fp64 on everything. What is pure Python is
tested without processes."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from conftest import DEVICE
from flashtile.distributed import Machine, Work, choose, predict, seen_share
from flashtile.distributed._layout import Layout, rows_in
from flashtile.distributed._pieces import Rule, pieces_of

WORKER = Path(__file__).with_name("distributed_worker.py")
# On GPUs one each, of an even number of them.
PROCESSES = torch.cuda.device_count() // 2 * 2 if DEVICE == "cuda" else 4
# How many times so many processes share the checks. On GPUs most of the time is for compiling kernels, on the CPU's cores.
SHARES = 8 if DEVICE == "cuda" else 1


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """What each process has found, by the name of its checks."""
    folder = tmp_path_factory.mktemp("ranks")
    named = list(itertools.product(range(PROCESSES), range(SHARES)))
    workers = [subprocess.Popen([sys.executable, WORKER, *map(str, (rank, PROCESSES, folder, share, SHARES))])
               for rank, share in named]
    try:
        ended = [worker.wait(150) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert ended == [0] * len(workers)
    return {at: torch.load(folder / f"found{at[0]}of{at[1]}.pt") for at in named}


@pytest.mark.skipif(PROCESSES == 0, reason="needs two GPUs")
@pytest.mark.parametrize("check", ["cases", "random", "repeats", "errors", "shards", "around"])
def test_processes(reports, check):
    for rank in range(PROCESSES):
        assert any(check in reports[rank, share] for share in range(SHARES))
    for (rank, share), report in reports.items():
        assert report.get(check, {"faults": []})["faults"] == [], f"rank {rank}, share {share}, seed {report['seed']}"


@pytest.mark.skipif(PROCESSES == 0, reason="needs two GPUs")
def test_processes_are_where_they_should_be(reports):
    for (rank, _), report in reports.items():
        assert (report["device"], report["backend"]) == \
            ((f"cuda:{rank}", "nccl") if DEVICE == "cuda" else ("cpu", "gloo"))


@pytest.mark.parametrize("kind", ["zigzag", "contiguous"])
@pytest.mark.parametrize("world, seqlen", [(1, 7), (2, 16), (3, 17), (4, 3), (4, 0), (8, 1000)])
def test_layouts_are_partitions(kind, world, seqlen):
    layout = Layout(kind, world, seqlen)
    rows = sorted(row for rank in range(world) for part in layout.of(rank) for row in range(*part))
    assert rows == list(range(seqlen))
    for first, end in itertools.combinations(range(world + 1), 2):
        together = layout.of_neighbours(first, end)
        assert sorted(row for part in together for row in range(*part)) == \
            sorted(row for rank in range(first, end) for part in layout.of(rank) for row in range(*part))
        assert rows_in(together) == sum(map(layout.rows, range(first, end)))


def seen_by_definition(rule, i, j):
    documents = rule.documents or (0, 1 << 30)
    document = [next(n for n in range(len(documents)) if documents[n] <= row < documents[n + 1]) for row in (i, j)]
    left, right = rule.window
    return document[0] == document[1] and (left < 0 or j >= i - left) and (right < 0 or j <= i + right)


@pytest.mark.parametrize("places_count", [False, True])
@pytest.mark.parametrize("window", [(-1, 0), (-1, -1), (9, 0), (4, 6), (0, 30)])
@pytest.mark.parametrize("documents", [None, (0, 5, 5, 31, 32, 60), (0, 60)])
def test_pieces_see_what_the_whole_sees(documents, window, places_count):
    """Each (query, key) that is seen is in exactly one piece, at its place; each that is not is hidden there."""
    rule = Rule(window, documents, places_count)
    left, right = window
    for kind, world in (("zigzag", 4), ("contiguous", 3), ("zigzag", 1)):
        layout = Layout(kind, world, 60)
        for q_rank, k_rank in itertools.product(range(world), repeat=2):
            rows, columns = ([row for part in layout.of(rank) for row in range(*part)] for rank in (q_rank, k_rank))
            seen, home = {}, set()
            for piece in pieces_of(rule, layout.of(q_rank), layout.of(k_rank)):
                cu_q, cu_k = piece.lengths or ((0, piece.q_rows[1] - piece.q_rows[0]),
                                               (0, piece.k_rows[1] - piece.k_rows[0]))
                for n in range(len(cu_q) - 1):
                    for i, j in itertools.product(range(cu_q[n + 1] - cu_q[n]), range(cu_k[n + 1] - cu_k[n])):
                        row = rows[piece.q_rows[0] + cu_q[n] + i]
                        column = columns[piece.k_rows[0] + cu_k[n] + j]
                        center = i + piece.diagonal
                        if not piece.all_seen and ((left >= 0 and j < center - left) or
                                                   (right >= 0 and j > center + right)):
                            continue
                        assert (row, column) not in seen
                        document, i0, j0 = piece.origin
                        seen[row, column] = document + n, i0 + i, j0 + j
                        home |= {row} if piece.home else set()
            expected = {(i, j) for i in rows for j in columns if seen_by_definition(rule, i, j)}
            assert seen.keys() == expected
            assert home == (set(rows) if q_rank == k_rank else set())
            if places_count:
                for (row, column), (document, i, j) in seen.items():
                    starts = documents or (0,)
                    assert (row - starts[document], column - starts[document]) == (i, j)


def test_zigzag_balances_a_causal_mask():
    for kind, spread in (("zigzag", 1.0), ("contiguous", 7.0)):
        layout = Layout(kind, 4, 4096)
        work = [sum(i + 1 for part in layout.of(rank) for i in range(*part)) for rank in range(4)]
        assert max(work) / min(work) == pytest.approx(spread, abs=0.01)


def test_predictions():
    """What the model must say whatever its numbers are."""
    work = Work(1 << 20, 32, 8, 128, 128)
    one = predict("ring", work, 1)
    assert (one.folding, one.hidden, one.waiting) == (0, 0, 0)
    for strategy in ("ring", "all_gather", "ulysses", "ring+ulysses"):
        cost = predict(strategy, work, 4)
        assert cost.compute == pytest.approx(one.compute / 4)
        assert cost.seconds > one.seconds / 4
        assert predict(strategy, work, 4, Machine(link=1e15, latency=0, memory=1e18)).seconds == pytest.approx(one.seconds / 4, 1e-3)
    # 1M causal tokens on one device: 7 * 32 * n^2 * 256 / 2 FLOPs
    assert one.compute * Machine().flops == pytest.approx(7 * 32 * (1 << 40) * 256 / 2)
    assert predict("ring", work, 4, balanced=False).compute == pytest.approx(one.compute / 4 * 1.75)
    assert choose(work, 4) != "all_gather"
    assert choose(work._replace(heads=3, kv_heads=3), 4) in ("ring", "all_gather")
    assert choose(work._replace(seqlen=64), 2, Machine(latency=1e-3)) == "all_gather"
    assert seen_share(100, (-1, 0)) == pytest.approx(0.505)
    assert seen_share(100, (0, 0)) == pytest.approx(0.01)
    assert seen_share(50, (7, 3)) == pytest.approx(
        sum(-7 <= j - i <= 3 for i in range(50) for j in range(50)) / 2500)


def test_outside_of_torch_distributed(device):
    from flashtile.distributed import context_parallel_attention
    q = torch.randn(1, 4, 2, 8)
    with pytest.raises(RuntimeError, match="not initialised"):
        context_parallel_attention(q, q, q)


def test_importing_loads_no_compiler():
    code = "import sys, flashtile.distributed; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ).returncode == 0


def test_the_documents_predictions_are_the_models():
    lengths = {"16k": 1 << 14, "64k": 1 << 16, "256k": 1 << 18, "1M": 1 << 20, "10M": 10 << 20}
    machines = {"NVLink": Machine(), "InfiniBand": Machine(link=4.5e10, latency=3e-5)}
    text = (Path(__file__).parents[2] / "docs/scale-out.md").read_text()
    cells = [line.strip("| ").split(" | ") for line in text.splitlines()]
    rows = [row for row in cells if row[0] in lengths]
    assert len(rows) == 24
    for tokens, link, ranks, *shares, best, seconds in rows:
        work, machine, ranks = Work(lengths[tokens], 32, 8, 128, 128), machines[link], int(ranks)
        linear = predict("ring", work, 1, machine).seconds / ranks
        for strategy, share in zip(("all_gather", "ring", "ulysses", "ring+ulysses"), shares, strict=True):
            if share != "-":
                assert share == f"{linear / predict(strategy, work, ranks, machine).seconds:.2f}"
        assert best == choose(work, ranks, machine)
        assert seconds == f"{predict(best, work, ranks, machine).seconds:.3g}"
