"""flash-attn 2's and FlashAttention-3's flash_attn_with_kvcache against dense attention in fp64, on a cache that is
filled row by row."""

import pytest
import torch

import flashtile.flash_attn_3
from flashtile import flash_attn
from oracle import dense

LENGTHS = (7, 19, 0)  # used before the call


def turned(x, angle):
    """x (heads, d) rotated by complex numbers, halves with halves."""
    pairs = torch.view_as_complex(x.double().unflatten(-1, (2, -1)).transpose(-1, -2).contiguous())
    return torch.view_as_real(pairs * torch.exp(1j * angle)).transpose(-1, -2).flatten(-2)


@pytest.mark.parametrize("where", ["rows", "picked rows", "pages"])
@pytest.mark.parametrize("new, case", [
    *[(new, case) for new in (0, 3) for case in ("plain", "causal", "window", "leftpad")], (3, "rotary"),
    (3, "rotary causal")])
def test_cache(where, new, case):
    batch, seqlen_q, size = 3, 3, 30
    q = torch.randn(batch, seqlen_q, 4, 16)
    k, v = (torch.randn(batch, new, 2, 16) for _ in range(2))
    page_size = 5
    if where == "pages":
        table = torch.randperm(24)[:batch * 6].view(batch, 6).int()
        caches = [torch.randn(24, page_size, 2, 16) for _ in range(2)]
        at = lambda b, j: (table[b, j // page_size], j % page_size)  # noqa: E731
    else:
        rows = torch.tensor([4, 0, 2]) if where == "picked rows" else torch.arange(batch)
        caches = [torch.randn(5 if where == "picked rows" else batch, size, 2, 16) for _ in range(2)]
        at = lambda b, j: (rows[b], j)  # noqa: E731
    options, wanted = {}, {}
    causal = "causal" in case
    if case == "window":
        options["window_size"], wanted["window"] = (5, 1), (5, 1)
    lengths = torch.tensor(LENGTHS, dtype=torch.int32)
    pad = torch.tensor([0, 4, 0], dtype=torch.int32)
    if case == "leftpad":
        options["cache_leftpad"] = pad
    angles = torch.rand(size + 5, 8, dtype=torch.float64)
    if "rotary" in case:
        options.update(rotary_cos=angles.cos().float(), rotary_sin=angles.sin().float(), rotary_interleaved=False)
    if where == "pages":
        options["block_table"] = table
    elif where == "picked rows":
        options["cache_batch_idx"] = rows.int()

    after = [cache.clone() for cache in caches]
    expected, expected_lse = [], []
    for b, length in enumerate(LENGTHS):
        for n in range(new):
            key = turned(k[b, n], angles[length + n]) if "rotary" in case else k[b, n]
            after[0][at(b, length + n)], after[1][at(b, length + n)] = key.float(), v[b, n]
        first = int(pad[b]) if case == "leftpad" else 0
        keys, values = (torch.stack([cache[at(b, j)] for j in range(first, length + new)])[None]
                        if length + new > first else torch.zeros(1, 0, 2, 16) for cache in after)
        queries = q[b]
        if "rotary" in case:
            queries = torch.stack([turned(row, angles[length + (i if causal else 0)]) for i, row in enumerate(q[b])])
        out, lse = dense(queries[None].double(), keys.double(), values.double(), causal=causal, **wanted)
        expected.append(out), expected_lse.append(lse)
    given = [cache.clone() for cache in caches]
    arguments = (q, *given, k, v) if new else (q, *given)
    out, lse = flash_attn.flash_attn_with_kvcache(*arguments, cache_seqlens=lengths, causal=causal, num_splits=2,
                                                  return_softmax_lse=True, **options)
    torch.testing.assert_close(out.double(), torch.cat(expected), atol=5e-6, rtol=1e-5)
    torch.testing.assert_close(lse.double(), torch.cat(expected_lse), atol=5e-6, rtol=1e-5)
    for cache, filled in zip(given, after):
        torch.testing.assert_close(cache, filled, atol=1e-6, rtol=1e-6)

    given = [cache.clone() for cache in caches]
    arguments = (q, *given, k, v) if new else (q, *given)
    if "block_table" in options:
        options["page_table"] = options.pop("block_table")
    third, third_lse, *rest = flashtile.flash_attn_3.flash_attn_with_kvcache(
        *arguments, cache_seqlens=lengths, causal=causal, return_softmax_lse=True, **options)
    assert torch.equal(third, out) and torch.equal(third_lse, lse) and [t.numel() for t in rest] == [0, 0]


def test_lengths_as_a_number_or_none():
    q, k, v = torch.randn(2, 1, 4, 16), torch.randn(2, 9, 2, 16), torch.randn(2, 9, 2, 16, requires_grad=True)
    for length, used in ((4, 4), (None, 9)):
        out = flash_attn.flash_attn_with_kvcache(q, k, v, cache_seqlens=length, softmax_scale=0.3, softcap=2.0)
        expected, _ = dense(*(t.detach().double() for t in (q, k[:, :used], v[:, :used])), scale=0.3, softcap=2.0)
        torch.testing.assert_close(out.double(), expected, atol=5e-6, rtol=1e-5)
        assert not out.requires_grad


@pytest.mark.parametrize("options, message", [
    ({"k": 1}, "^v is None, allowed is None for both of k and v or for neither"),
    ({"k": 1, "v": 1}, "^cache_seqlens is None, allowed with k and v is"),
    ({"rotary_cos": 1}, "^rotary_cos is given without k and v, allowed is None"),
    ({"block_table": 1, "cache_batch_idx": 1}, "^cache_batch_idx and block_table are both given, allowed is one"),
], ids=str)
def test_what_does_not_go_together(options, message):
    q = torch.randn(1, 1, 2, 8)
    with pytest.raises(ValueError, match=message):
        flash_attn.flash_attn_with_kvcache(q, q, q, **{name: q for name in options})


def test_rows_that_do_not_fit_are_refused_and_nothing_is_written():
    q, k_cache, v_cache = torch.randn(2, 1, 2, 8), torch.zeros(2, 5, 2, 8), torch.zeros(2, 5, 2, 8)
    lengths = torch.tensor([4, 5], dtype=torch.int32, device="cpu")
    if q.is_cuda:
        pytest.skip("lengths on a GPU are not read")
    with pytest.raises(ValueError, match=r"cache_seqlens\[1\] is 5, allowed is at most 4"):
        flash_attn.flash_attn_with_kvcache(q, k_cache, v_cache, q, q, cache_seqlens=lengths)
    assert not k_cache.any() and not v_cache.any()
