"""attention on a cache and with what else serving asks for, against attention of each sequence by itself in fp64."""

import pytest
import torch

import flashtile
from flashtile.flash_attn import flash_attn_with_kvcache

CPU_ONLY = pytest.mark.skipif(__import__("os").environ.get("FLASHTILE_TEST_DEVICE", "cpu") != "cpu",
                              reason="CUDA refuses these arguments by name so far")


def reference(q, k, v, allowed, sink=None, scale=None):
    """One sequence: q (n, heads, d), k and v (m, kv_heads, ..), allowed (n, m) or (heads, n, m)."""
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.double().transpose(0, 1) for x in (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores.masked_fill(~allowed, -torch.inf)
    every = scores if sink is None else torch.cat([scores, sink.double()[:, None, None].expand(*scores.shape[:2], 1)], -1)
    lse = torch.logsumexp(every, -1)
    weights = (scores - lse[..., None]).exp().masked_fill(~allowed, 0.0)
    return (weights @ v).transpose(0, 1), lse


def causal(n, m):
    return torch.arange(m)[None] <= torch.arange(n)[:, None] + (m - n)


def pages_of(k, lengths, page_size, generator):
    """k (batch, seqlen, ..) as pages in random order and a table; pages of nobody are NaN."""
    table = torch.full((k.shape[0], k.shape[1] // page_size + 2), -5, dtype=torch.int32)
    count = [-(-n // page_size) for n in lengths]
    order = torch.randperm(sum(count) + 2, generator=generator)
    pages = torch.full((len(order), page_size, *k.shape[2:]), torch.nan, dtype=k.dtype)
    at = 0
    for b, n in enumerate(lengths):
        for page in range(count[b]):
            rows = k[b, page * page_size:min((page + 1) * page_size, n)]
            pages[order[at], :len(rows)] = rows
            table[b, page] = order[at]
            at += 1
    return pages, table


@CPU_ONLY
@pytest.mark.parametrize("page_size", [1, 16, 50])
@pytest.mark.parametrize("dtype,tolerance", [(torch.float32, 2e-6), (torch.bfloat16, 1e-2)])
def test_packed_queries_on_pages(page_size, dtype, tolerance):
    generator = torch.Generator().manual_seed(page_size)
    lengths_q, lengths = [1, 70, 3], [300, 90, 33]
    q = torch.randn(sum(lengths_q), 4, 32, generator=generator).to(dtype)
    k, v = (torch.randn(3, 300, 2, 32, generator=generator).to(dtype) for _ in range(2))
    pages_k, table = pages_of(k, lengths, page_size, torch.Generator().manual_seed(1))
    pages_v, _ = pages_of(v, lengths, page_size, torch.Generator().manual_seed(1))
    sinks = torch.randn(4, generator=generator)
    cu = torch.tensor([0, 1, 71, 74], dtype=torch.int32)
    out, lse = flashtile.attention(q, pages_k, pages_v, causal=True, cu_seqlens_q=cu, max_seqlen_q=70,
                                   block_table=table, seqused_k=torch.tensor(lengths, dtype=torch.int32), sinks=sinks,
                                   return_lse=True)
    for b, (n, m) in enumerate(zip(lengths_q, lengths)):
        rows = slice(int(cu[b]), int(cu[b + 1]))
        expected, expected_lse = reference(q[rows], k[b, :m], v[b, :m], causal(n, m), sinks)
        torch.testing.assert_close(out[rows].double(), expected, atol=tolerance, rtol=tolerance)
        torch.testing.assert_close(lse[:, rows].double(), expected_lse, atol=1e-5, rtol=1e-5)


@CPU_ONLY
def test_first_keys_used_queries_trees_and_chunks():
    generator = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(2, n, 2, 16, generator=generator) for n in (6, 40, 40))
    tree = torch.rand(2, 1, 6, 6, generator=generator) < 0.5
    first, used = torch.tensor([0, 11], dtype=torch.int32), torch.tensor([6, 4], dtype=torch.int32)
    out = flashtile.attention(q, k, v, causal=True, first_k=first, seqused_q=used, attention_chunk=24)
    grown = flashtile.attention(q, k, v, tree_mask=tree)
    for b, n in enumerate(used.tolist()):
        position = torch.arange(n)[:, None] + 40 - n
        keys = torch.arange(40)[None]
        allowed = (keys <= position) & (keys >= int(first[b])) & (keys // 24 == position // 24)
        expected, _ = reference(q[b, :n], k[b], v[b], allowed)
        torch.testing.assert_close(out[b, :n].double(), expected, atol=2e-6, rtol=2e-6)
        assert not out[b, n:].any()
        allowed = torch.cat([torch.ones(6, 34, dtype=torch.bool), tree[b, 0]], 1)
        expected, _ = reference(q[b], k[b], v[b], allowed)
        torch.testing.assert_close(grown[b].double(), expected, atol=2e-6, rtol=2e-6)


@CPU_ONLY
def test_gradients_and_dropout_are_refused_by_name():
    q, k, v = (torch.randn(1, 4, 2, 16) for _ in range(3))
    with pytest.raises(NotImplementedError, match="no gradient with sinks"):
        flashtile.attention(q.requires_grad_(), k, v, sinks=torch.zeros(2))
    with torch.no_grad(), pytest.raises(NotImplementedError, match="dropout_p is given"):
        flashtile.attention(q, k, v, sinks=torch.zeros(2), dropout_p=0.5)
    with torch.no_grad(), pytest.raises(ValueError, match=r"block_table\[0, 0\] is 7, allowed is 0 to 0"):
        flashtile.attention(q, k, v, block_table=torch.tensor([[7]], dtype=torch.int32))


@CPU_ONLY
def test_compiled_and_traced():
    q, k, v = (torch.randn(1, 4, 2, 16) for _ in range(3))
    sinks = torch.randn(2)

    def function(q, k, v):
        return flashtile.attention(q, k, v, causal=True, sinks=sinks) * 2

    torch.testing.assert_close(torch.compile(function, fullgraph=True, backend="aot_eager")(q, k, v), function(q, k, v))


@CPU_ONLY
@pytest.mark.parametrize("num_splits", [0, 3])
def test_kvcache_reads_pages_where_they_lie(num_splits):
    """The pages are far larger than what a copy could hold: only those that the table names have memory of their own."""
    page = torch.randn(1, 16, 2, 16)
    pages = page.expand(1 << 40, 16, 2, 16)
    q = torch.randn(1, 1, 2, 16)
    table = torch.tensor([[(1 << 31) - 1, 5]], dtype=torch.int32)
    out = flash_attn_with_kvcache(q, pages, pages, cache_seqlens=20, block_table=table, causal=True,
                                  num_splits=num_splits)
    keys = torch.cat([page[0], page[0]])[:20]
    expected, _ = reference(q[0], keys, keys, causal(1, 20))
    torch.testing.assert_close(out[0].double(), expected, atol=2e-6, rtol=2e-6)
