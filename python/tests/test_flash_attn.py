"""flash-attn's interface: names, defaults, return values, and results against dense attention in fp64."""

import inspect

import pytest
import torch

import flashtile
from flashtile import flash_attn as ours
from flashtile.flash_attn.bert_padding import pad_input, unpad_input
from flashtile.flash_attn.layers.rotary import apply_rotary_emb
from oracle import dense

TAIL = ("dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, "
        "deterministic=False, return_attn_probs=False")
SIGNATURES = {
    "flash_attn_func": f"q, k, v, {TAIL}",
    "flash_attn_qkvpacked_func": f"qkv, {TAIL}",
    "flash_attn_kvpacked_func": f"q, kv, {TAIL}",
    "flash_attn_varlen_func": f"q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, {TAIL}, "
                              "block_table=None",
    "flash_attn_varlen_qkvpacked_func": f"qkv, cu_seqlens, max_seqlen, {TAIL}",
    "flash_attn_varlen_kvpacked_func": f"q, kv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, {TAIL}",
    "flash_attn_with_kvcache": "q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, "
                               "cache_seqlens=None, cache_batch_idx=None, cache_leftpad=None, block_table=None, "
                               "softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, "
                               "rotary_interleaved=True, alibi_slopes=None, num_splits=0, return_softmax_lse=False",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    parameters = inspect.signature(getattr(ours, name)).parameters.values()
    said = ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default}" for p in parameters)
    assert said == SIGNATURES[name]


def close(got, expected, atol=2e-6):
    torch.testing.assert_close(got.double(), expected, atol=atol, rtol=1e-4)


def test_packed_forms_are_the_plain_one():
    qkv = torch.randn(2, 33, 3, 4, 16, requires_grad=True)
    wide = qkv.detach().double().requires_grad_()
    expected, _ = dense(*wide.unbind(2), causal=True, window=(7, 0), scale=0.3, softcap=2.0)
    expected.square().sum().backward()
    options = {"softmax_scale": 0.3, "causal": True, "window_size": (7, 0), "softcap": 2.0}
    for function, arguments in ((ours.flash_attn_func, qkv.unbind(2)),
                                (ours.flash_attn_qkvpacked_func, (qkv,)),
                                (ours.flash_attn_kvpacked_func, (qkv[:, :, 0], qkv[:, :, 1:]))):
        qkv.grad = None
        out = function(*arguments, **options)
        out.square().sum().backward()
        close(out, expected)
        close(qkv.grad, wide.grad, atol=3e-5)


def test_varlen_forms():
    qkv = torch.randn(40, 3, 4, 16)
    cu = torch.tensor([0, 13, 40], dtype=torch.int32)
    q, k, v = qkv.unbind(1)
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    expected = torch.cat([dense(*(t[None, a:b].double() for t in (q, k, v)), causal=True, alibi_slopes=slopes)[0][0]
                          for a, b in ((0, 13), (13, 40))])
    options = {"causal": True, "alibi_slopes": slopes}
    close(ours.flash_attn_varlen_func(q, k, v, cu, cu, 27, 27, **options), expected)
    close(ours.flash_attn_varlen_qkvpacked_func(qkv, cu, 27, **options), expected)
    close(ours.flash_attn_varlen_kvpacked_func(q, qkv[:, 1:], cu, cu, 27, 27, **options), expected)


def probabilities(q, k, **options):
    identity = torch.eye(k.shape[1], dtype=torch.float64)[None, :, None].expand(k.shape[0], -1, k.shape[2], -1)
    return dense(q.double(), k.double(), identity, **options)[0].transpose(1, 2)


def test_return_attn_probs():
    q, k, v = torch.randn(2, 37, 4, 16), torch.randn(2, 140, 2, 16), torch.randn(2, 140, 2, 16)
    out, lse, s_dmask = ours.flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    expected, expected_lse = dense(*(t.double() for t in (q, k, v)), causal=True)
    close(out, expected)
    close(lse, expected_lse)
    assert lse.dtype is torch.float32 and s_dmask.numel() == 0

    out, lse, s_dmask = ours.flash_attn_func(q, k, v, dropout_p=0.25, causal=True, return_attn_probs=True)
    assert s_dmask.shape == (2, 4, 128, 256)
    close(lse, expected_lse)
    p = probabilities(q, k, causal=True)
    close(s_dmask[:, :, :37, :140].abs(), p)
    assert not s_dmask[:, :, 37:].any() and not s_dmask[..., 140:].any()
    keep = s_dmask[:, :, :37, :140] > 0
    assert abs(keep[p > 0].double().mean() - 0.75) < 0.02
    close(out, dense(*(t.double() for t in (q, k, v)), causal=True, keep=keep, dropout_p=0.25)[0])


def test_return_attn_probs_varlen():
    lengths_q, lengths_k = (5, 20), (9, 600)
    q, k, v = torch.randn(25, 2, 16), torch.randn(609, 2, 16), torch.randn(609, 2, 16)
    cu_q, cu_k = (torch.tensor((0, *n)).cumsum(0).int() for n in (lengths_q, lengths_k))
    out, lse, s_dmask = ours.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 20, 600, dropout_p=0.5, return_attn_probs=True)
    assert lse.shape == (2, 25) and s_dmask.shape == (2, 2, 128, 640)
    for b in range(2):
        rows, keys = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
        part = s_dmask[b, :, : lengths_q[b], : lengths_k[b]]
        close(part.abs(), probabilities(q[None, rows], k[None, keys])[0])
        wide = (q[None, rows].double(), k[None, keys].double(), v[None, keys].double())
        close(out[rows], dense(*wide, keep=part[None] > 0, dropout_p=0.5)[0][0], atol=1e-5)


def test_results_lie_where_the_arguments_do(device):
    """The default device must not matter. Here it is meta, whose tensors hold no values, so using it would show."""
    qkv = torch.randn(2, 9, 3, 2, 16, requires_grad=True)
    cu = torch.tensor([0, 9, 18], dtype=torch.int32)
    mask = torch.ones(2, 9, dtype=torch.bool)
    angles = torch.rand(9, 8)
    options = {"dropout_p": 0.5, "return_attn_probs": True}
    with torch.device("meta"):
        results = [*ours.flash_attn_qkvpacked_func(qkv, **options),
                   *ours.flash_attn_varlen_qkvpacked_func(qkv.flatten(0, 1), cu, 9, **options),
                   flashtile.scaled_dot_product_attention(*qkv.unbind(2), dropout_p=0.5),
                   apply_rotary_emb(qkv[:, :, 0], angles.cos(), angles.sin()),
                   apply_rotary_emb(qkv[0, :, 0], angles.cos(), angles.sin(), cu_seqlens=cu[:2])]
        rows, indices, *_ = unpad_input(qkv, mask)
        results.append(pad_input(rows, indices, 2, 9))
        results += torch.autograd.grad(sum(result.sum() for result in results), qkv)
    assert all(result.device.type == device.type for result in results)


def test_errors_name_the_argument():
    q = torch.randn(1, 1, 2, 8)
    with pytest.raises(RuntimeError, match="k.dtype"):
        ours.flash_attn_func(q, q.half(), q)
