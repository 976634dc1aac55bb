"""Lists of blocks against dense attention with the mask that they mean."""

import pytest
import torch

import flashtile
import flashtile.numpy
from conftest import DEVICE
from function_cases import check, dense

ROWS, KEYS, HEADS = 150, 210, 4
SIZE = (64, 128)


def problem(rows=ROWS, keys=KEYS):
    return [torch.randn(2, n, h, 32) for n, h in ((rows, HEADS), (keys, 2), (keys, 2))]


def lists(counts, indices):
    return [torch.tensor(of, dtype=torch.int32, device=DEVICE) for of in (counts, indices)]


# Three blocks of queries by two of keys; what lies past a count is not read.
SHARED = lists([[[1, 2, 0]]], [[[[1, 99], [1, 0], [-7, 0]]]])
BY_HEAD = lists([[[1, 0, 2], [0, 1, 1], [1, 1, 1], [0, 0, 0]]],
                [[[[0, 5], [0, 0], [1, 0]], [[1, 1], [1, 1], [0, 0]], [[1, 0]] * 3, [[0, 0]] * 3]])
FULL = lists([[[1, 0, 1]], [[0, 0, 2]]], [[[[0, 9], [0, 0], [1, 1]]], [[[0, 0], [0, 0], [1, 0]]]])
NONE = [None, None]


def thirds(b, h, i, j):
    return (i + j) % 3 != 0


CASES = {"shared": (SHARED, NONE, None), "by head": (BY_HEAD, NONE, None), "masked": (BY_HEAD, NONE, thirds),
         "full": (SHARED, FULL, thirds)}


def named(counts, indices, b, h, i, j):
    """Whether the lists name the block of each position."""
    names = torch.zeros(*counts.shape, 2, dtype=torch.bool)
    for row in torch.cartesian_prod(*(torch.arange(n, device="cpu") for n in counts.shape)).tolist():
        for block in indices[tuple(row)][:counts[tuple(row)]].tolist():
            names[(*row, block)] = True
    return names[b % counts.shape[0], h % counts.shape[1], i // SIZE[0], j // SIZE[1]]


def meaning(partial, full, mask):
    def seen(b, h, i, j):
        shown = named(*partial, b, h, i, j)
        if mask is not None:
            shown = shown & mask(b, h, i, j)
        return shown if full[0] is None else shown | named(*full, b, h, i, j)

    return seen


@pytest.mark.parametrize("name", CASES)
def test_block_lists(name):
    partial, full, mask = CASES[name]
    block_lists = flashtile.BlockLists(*partial, *full, block_size=SIZE)
    check(problem(), lambda *given: flashtile.attention(*given, mask=mask, block_lists=block_lists, return_lse=True),
          lambda *given: dense(*given, mask=meaning(partial, full, mask)))


def test_with_a_score_function_and_its_gradient():
    table = torch.randn(HEADS, 17)
    partial, full, mask = CASES["full"]
    block_lists = flashtile.BlockLists(*partial, *full, block_size=SIZE)

    def score(table):
        return lambda s, b, h, i, j: s + table[h, (j - i).clamp(-8, 8) + 8]

    check([*problem(), table],
          lambda q, k, v, table: flashtile.attention(q, k, v, score=score(table), mask=mask, block_lists=block_lists,
                                                     return_lse=True),
          lambda q, k, v, table: dense(q, k, v, score=score(table), mask=meaning(partial, full, mask)),
          names=("q", "k", "v", "table"))


def test_compiled():
    torch._dynamo.reset()
    block_lists = flashtile.BlockLists(*SHARED, block_size=SIZE)

    def attend(q, k, v):
        return flashtile.attention(q, k, v, mask="i >= j - 60", block_lists=block_lists)

    given = problem()
    assert torch.equal(torch.compile(attend, fullgraph=True, backend="aot_eager")(*given), attend(*given))


@pytest.mark.skipif(DEVICE != "cpu", reason="NumPy's arrays are on the CPU")
def test_numpy():
    q, k, v = problem()
    options = {"mask": "(i + j) % 3 != 0", "return_lse": True}
    out, lse = flashtile.attention(q, k, v, **options, block_lists=flashtile.BlockLists(*SHARED, *FULL, SIZE))
    arrays = flashtile.BlockLists(*(t.numpy() for t in (*SHARED, *FULL)), SIZE)
    got, got_lse = flashtile.numpy.attention(*(t.numpy() for t in (q, k, v)), **options, block_lists=arrays)
    assert torch.equal(torch.from_numpy(got), out) and torch.equal(torch.from_numpy(got_lse), lse)


@pytest.mark.parametrize("change, kind, message", [
    ((), TypeError, "^block_lists is a tuple, allowed is None or a flashtile.BlockLists"),
    ({"block_size": (64, 100)}, ValueError, "^block_lists.block_k is 100, allowed is a multiple of 64"),
    ({"block_size": 64}, TypeError, "^block_lists.block_size is 64, allowed are two whole numbers"),
    ({"counts": None}, TypeError, "^block_lists.counts is a NoneType"),
    ({"full_counts": FULL[0]}, ValueError, "^block_lists has one of full_counts and full_indices"),
    ({"counts": SHARED[0].long()}, ValueError, "^block_lists.counts.dtype is int64, allowed is int32"),
    ({"counts": SHARED[0][..., :2]}, ValueError, r"^block_lists.counts.shape is \(1, 1, 2\), allowed is .* = \(1, 1, 3\)"),
    pytest.param({"indices": SHARED[1] * 0}, ValueError, r"^block_lists.indices\[0, 0, 1, 1\] is 0, allowed is a block "
                 "that no entry before names", marks=pytest.mark.skipif(DEVICE != "cpu", reason="not read there")),
])
def test_errors(change, kind, message):
    block_lists = flashtile.BlockLists(*SHARED, block_size=SIZE)._replace(**change) if change else ()
    with pytest.raises(kind, match=message):
        flashtile.attention(*problem(), block_lists=block_lists)
