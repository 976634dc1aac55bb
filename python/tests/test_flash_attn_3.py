"""FlashAttention-3's interface: its signatures, the options that flashtile has, and errors that name the others."""

import inspect
from types import SimpleNamespace

import pytest
import torch

from flashtile import flash_attn_3 as ours
from flashtile.flash_attn_3 import _functions, _kvcache
from flashtile.flash_attn.layers.rotary import apply_rotary_emb
from oracle import dense

SCALES = "q_descale=None, k_descale=None, v_descale=None, window_size=(-1, -1), attention_chunk=0, softcap=0.0"
TAIL = "num_splits=1, pack_gqa=None, deterministic=False, sm_margin=0, return_attn_probs=False"
SIGNATURES = {
    "flash_attn_func": f"q, k, v, softmax_scale=None, causal=False, qv=None, {SCALES}, {TAIL}",
    "flash_attn_varlen_func": "q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q=None, "
                              f"seqused_k=None, softmax_scale=None, causal=False, qv=None, {SCALES}, {TAIL}",
    "flash_attn_qkvpacked_func": f"qkv, softmax_scale=None, causal=False, {SCALES}, deterministic=False, "
                                 "num_heads_q=None, sm_margin=0, return_attn_probs=False",
    "flash_attn_with_kvcache":
        "q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, "
        "cache_batch_idx=None, cache_leftpad=None, page_table=None, cu_seqlens_q=None, cu_seqlens_k_new=None, "
        "max_seqlen_q=None, rotary_seqlens=None, q_descale=None, k_descale=None, v_descale=None, softmax_scale=None, "
        "causal=False, window_size=(-1, -1), attention_chunk=0, softcap=0.0, rotary_interleaved=True, "
        "scheduler_metadata=None, num_splits=0, pack_gqa=None, sm_margin=0, return_softmax_lse=False",
    "flash_attn_combine": "out_partial, lse_partial, out=None, out_dtype=None",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    parameters = inspect.signature(getattr(ours, name)).parameters.values()
    said = ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default}" for p in parameters)
    assert said == SIGNATURES[name]


def close(got, expected):
    torch.testing.assert_close(got.double(), expected, atol=3e-5, rtol=1e-4)


def test_functions():
    qkv = torch.randn(2, 20, 3, 4, 16, requires_grad=True)
    wide = qkv.detach().double().requires_grad_()
    expected, expected_lse = dense(*wide.unbind(2), causal=True, window=(7, 0), scale=0.3, softcap=2.0)
    (expected.square().sum() + expected_lse.sum()).backward()
    options = {"softmax_scale": 0.3, "causal": True, "window_size": (7, 0), "softcap": 2.0}
    heads = qkv.flatten(2, 3)
    cu = torch.tensor([0, 20, 40], dtype=torch.int32)
    rows = [t.flatten(0, 1) for t in qkv.unbind(2)]
    for result in (ours.flash_attn_func(*qkv.unbind(2), num_splits=3, sm_margin=4, return_attn_probs=True, **options),
                   ours.flash_attn_qkvpacked_func(qkv, return_attn_probs=True, **options),
                   ours.flash_attn_qkvpacked_func(heads, num_heads_q=4, return_attn_probs=True, **options),
                   ours.flash_attn_varlen_func(*rows, cu, cu, 20, 20, return_attn_probs=True, **options)):
        out, lse = result
        qkv.grad = None
        (out.square().sum() + lse.sum()).backward(retain_graph=True)
        close(out.view(expected.shape), expected)
        close(lse if lse.dim() == 3 else lse.unflatten(1, (2, 20)).transpose(0, 1), expected_lse)
        close(qkv.grad, wide.grad)
    assert isinstance(ours.flash_attn_func(*qkv.unbind(2)), torch.Tensor)


def test_margins_and_splits_reach_forward(monkeypatch):
    """On a GPU of 132 multiprocessors that is none: flashtile.attention is asked for what sm_margin leaves of them."""
    asked = []

    def watched(q, *rest, num_splits=0, sm_limit=0, **options):
        asked.append((num_splits, sm_limit))
        return q

    class OnGPU(torch.Tensor):
        is_cuda = True

    for module in (_functions, _kvcache):
        monkeypatch.setattr(module, "attention", watched)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=132))
    few, many = (torch.zeros(1, n, 2, 8).as_subclass(OnGPU) for n in (64, 65))
    cu = torch.tensor([0, 64])
    for given in ({}, {"num_splits": 3, "sm_margin": 20}, {"num_splits": 3, "sm_margin": 200}):
        ours.flash_attn_func(few, few, few, **given)
        ours.flash_attn_func(many, many, many, **given)
        ours.flash_attn_varlen_func(few[0], few[0], few[0], cu, cu, 64, 64, **given)
    assert asked == 3 * [(0, 0)] + [(3, 112), (0, 112), (3, 112)] + [(3, 1), (0, 1), (3, 1)]
    ours.flash_attn_qkvpacked_func(few[:, :, None].expand(-1, -1, 3, -1, -1), sm_margin=20)
    ours.flash_attn_with_kvcache(few, few, few, num_splits=3, sm_margin=20)
    assert asked[-2:] == [(0, 112), (3, 112)]
    learned = few.clone().requires_grad_()  # backward takes no limit
    ours.flash_attn_func(few, learned, few, sm_margin=20)
    ours.flash_attn_with_kvcache(learned, few, few, sm_margin=20)
    assert asked[-2:] == [(0, 0), (0, 112)]
    ours.flash_attn_func(torch.zeros(1, 1, 2, 8, device="cpu"), few, few, sm_margin=20)
    assert asked[-1] == (0, 0)


def test_used_keys():
    q, k, v = (torch.randn(40, h, 16) for h in (4, 2, 2))
    cu, used = torch.tensor([0, 20, 40], dtype=torch.int32), torch.tensor([20, 5], dtype=torch.int32)
    out = ours.flash_attn_varlen_func(q, k, v, cu, cu, 20, 20, seqused_k=used, causal=True)
    expected, _ = dense(*(t[None].double() for t in (q[20:], k[20:25], v[20:25])), causal=True)
    close(out[20:], expected[0])


def test_combine():
    """Parts of the keys. Some rows see no key of one part, and NaN in that part must not reach them."""
    q, k, v = torch.randn(2, 9, 4, 16), torch.randn(2, 30, 4, 16), torch.randn(2, 30, 4, 16)
    parts = [ours.flash_attn_func(q, k[:, a:b], v[:, a:b], return_attn_probs=True) for a, b in ((0, 11), (11, 30))]
    outs = torch.stack([part[0] for part in parts] + [torch.full_like(q, torch.nan)])
    lses = torch.stack([part[1].transpose(1, 2) for part in parts] + [torch.full((2, 9, 4), -torch.inf)])
    expected, expected_lse = dense(q.double(), k.double(), v.double())
    out, lse = ours.flash_attn_combine(outs, lses)
    close(out, expected)
    close(lse, expected_lse.transpose(1, 2))
    place = torch.empty_like(q)
    assert ours.flash_attn_combine(outs, lses, place)[0] is place and torch.equal(place, out)
    assert ours.flash_attn_combine(outs, lses, out_dtype=torch.bfloat16)[0].dtype is torch.bfloat16


def test_what_is_missing_is_named():
    q = torch.randn(1, 1, 2, 8)
    with pytest.raises(NotImplementedError, match="^qv is given, which flashtile does not have: allowed is None"):
        ours.flash_attn_func(q, q, q, qv=q)
    with pytest.raises(NotImplementedError, match="^qv is given"):
        ours.flash_attn_with_kvcache(q, q, q, qv=q)


def test_scales_of_fp8():
    scales = [torch.rand(2, 2) + 0.5 for _ in range(3)]
    q, k, v = (torch.randn(2, 40, heads, 64).to(torch.float8_e4m3fn) for heads in (4, 2, 2))
    wide = [t.double() * (of.repeat_interleave(2, 1) if t is q else of)[:, None, :, None]
            for t, of in zip((q, k, v), scales)]
    expected, _ = dense(*wide, causal=True)
    names = dict(zip(("q_descale", "k_descale", "v_descale"), scales))
    out = ours.flash_attn_func(q, k, v, causal=True, **names)
    assert out.dtype is torch.bfloat16
    torch.testing.assert_close(out.double(), expected, atol=2e-2, rtol=2e-2)
    lengths = torch.tensor([40, 17], dtype=torch.int32)
    expected = torch.cat([dense(wide[0][b:b + 1, :1], wide[1][b:b + 1, :n], wide[2][b:b + 1, :n])[0]
                          for b, n in enumerate(lengths.tolist())])
    out = ours.flash_attn_with_kvcache(q[:, :1], k, v, cache_seqlens=lengths, **names)
    torch.testing.assert_close(out.double(), expected, atol=2e-2, rtol=2e-2)


def test_chunks_and_used_queries():
    q, k, v = (torch.randn(2, 20, heads, 16) for heads in (4, 2, 2))
    at = torch.arange(20)
    chunk = at[:, None] // 6 == at // 6
    wide = [t.double() for t in (q, k, v)]
    expected, _ = dense(*wide, causal=True, mask=chunk)
    close(ours.flash_attn_func(q, k, v, causal=True, attention_chunk=6), expected)
    rows, cu = [t.flatten(0, 1) for t in (q, k, v)], torch.tensor([0, 20, 40], dtype=torch.int32)
    out = ours.flash_attn_varlen_func(*rows, cu, cu, 20, 20, causal=True, attention_chunk=6)
    close(out.view_as(q), expected)
    used = torch.tensor([20, 7], dtype=torch.int32)
    out = ours.flash_attn_varlen_func(*rows, cu, cu, 20, 20, seqused_q=used, seqused_k=used, causal=True).view_as(q)
    close(out[0], dense(*(t[:1] for t in wide), causal=True)[0][0])
    close(out[1, :7], dense(*(t[1:, :7] for t in wide), causal=True)[0][0])
    assert not out[1, 7:].any()


def test_packed_queries_and_new_keys_on_a_cache():
    """Different numbers of queries and of new keys, chunks, and rotation from other positions than the rows'."""
    q, new = torch.randn(7, 4, 16), torch.randn(5, 2, 16)
    cu_q, cu_k = torch.tensor([0, 1, 7], dtype=torch.int32), torch.tensor([0, 1, 5], dtype=torch.int32)
    cache, lengths, turns = torch.randn(6, 4, 2, 16), torch.tensor([9, 3]), torch.tensor([2, 30])
    table = torch.tensor([[4, 1, 0], [3, 5, 2]], dtype=torch.int32)
    angles = torch.rand(64, 8)
    arguments = {"cache_seqlens": lengths, "page_table": table, "cu_seqlens_q": cu_q, "cu_seqlens_k_new": cu_k,
                 "max_seqlen_q": 6, "rotary_cos": angles.cos(), "rotary_sin": angles.sin(), "rotary_seqlens": turns,
                 "causal": True, "attention_chunk": 5, "scheduler_metadata": torch.zeros(3), "pack_gqa": True}
    k_cache, v_cache = cache.clone(), cache.clone()
    out, lse, *_ = ours.flash_attn_with_kvcache(q, k_cache, v_cache, new, new, return_softmax_lse=True, **arguments)
    for b, (n, added) in enumerate(((1, 1), (6, 4))):
        length = int(lengths[b]) + added
        keys, values = (c[table[b].long()].flatten(0, 1)[:length] for c in (k_cache, v_cache))
        assert torch.equal(values[-added:], new[cu_k[b]:cu_k[b + 1]])
        before = cache[table[b].long()].flatten(0, 1)[:length - added]
        assert torch.equal(keys[:-added], before)
        turn = apply_rotary_emb(new[None, cu_k[b]:cu_k[b + 1]], angles.cos(), angles.sin(), True,
                                seqlen_offsets=int(turns[b]))
        close(keys[-added:], turn[0].double())
        queries = apply_rotary_emb(q[None, cu_q[b]:cu_q[b + 1]], angles.cos(), angles.sin(), True,
                                   seqlen_offsets=int(turns[b]))
        at, place = torch.arange(length), torch.arange(n)[:, None] + length - n
        expected, expected_lse = dense(queries.double(), keys[None].double(), values[None].double(), causal=True,
                                       mask=at // 5 == place // 5)
        close(out[cu_q[b]:cu_q[b + 1]], expected[0])
        close(lse[:, cu_q[b]:cu_q[b + 1]], expected_lse[0])
