"""flash_attn_interface's private functions and autograd functions, on which ring attention and others are built: their
signatures are those of flash-attn 2.8, and their results are compared with dense attention in fp64."""

import inspect

import pytest
import torch

from flashtile.flash_attn import flash_attn_interface as ours
from oracle import dense

OPTIONS = "dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap, alibi_slopes"
LENGTHS = "cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k"
GRADIENTS = "dout, q, k, v, out, softmax_lse, dq, dk, dv"
SIGNATURES = {
    "_flash_attn_forward": f"q, k, v, {OPTIONS}, return_softmax",
    "_flash_attn_backward": f"{GRADIENTS}, {OPTIONS}, deterministic, rng_state=None",
    "_flash_attn_varlen_forward": f"q, k, v, {LENGTHS}, dropout_p, softmax_scale, causal, window_size_left=-1, "
                                  "window_size_right=-1, softcap=0.0, alibi_slopes=None, return_softmax=False, "
                                  "block_table=None, leftpad_k=None, seqused_k=None, zero_tensors=False",
    "_flash_attn_varlen_backward": f"{GRADIENTS}, {LENGTHS}, {OPTIONS}, deterministic, rng_state=None, "
                                   "zero_tensors=False",
}
FUNC = "dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_softmax"
FORWARDS = {
    "FlashAttnFunc": f"ctx, q, k, v, {FUNC}",
    "FlashAttnQKVPackedFunc": f"ctx, qkv, {FUNC}",
    "FlashAttnKVPackedFunc": f"ctx, q, kv, {FUNC}",
    "FlashAttnVarlenFunc": f"ctx, q, k, v, {LENGTHS}, {FUNC}, block_table",
    "FlashAttnVarlenQKVPackedFunc": f"ctx, qkv, cu_seqlens, max_seqlen, {FUNC}",
    "FlashAttnVarlenKVPackedFunc": f"ctx, q, kv, {LENGTHS}, {FUNC}",
}


def slopes():
    return torch.tensor([0.5, 0.25, 0.125, 0.0625])


def both_options():
    """As flash-attn's arguments in their order, and as the oracle's."""
    options = {"scale": 0.3, "causal": True, "window": (20, 0), "softcap": 2.0, "alibi_slopes": slopes()}
    return (0.0, 0.3, True, 20, 0, 2.0, options["alibi_slopes"]), options


def starts():
    return torch.tensor([0, 13, 40], dtype=torch.int32)


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    assert inspect.isfunction(getattr(ours, name))  # ring-flash-attn reads the defaults of functions only
    parameters = inspect.signature(getattr(ours, name)).parameters.values()
    said = ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default}" for p in parameters)
    assert said == SIGNATURES[name]


@pytest.mark.parametrize("name", FORWARDS)
def test_signature_of_an_autograd_function(name):
    function = getattr(ours, name)
    assert issubclass(function, torch.autograd.Function)
    assert ", ".join(inspect.signature(function.forward).parameters) == f"{FORWARDS[name]}, is_grad_enabled"


def close(got, expected, what, atol=3e-5):
    torch.testing.assert_close(got.double(), expected, atol=atol, rtol=1e-4, msg=lambda said: f"{what}: {said}")


def test_dense():
    q, k, v, dout = (torch.randn(2, n, h, 16) for n, h in ((37, 4), (53, 2), (53, 2), (37, 4)))
    arguments, options = both_options()
    wide = [t.double().requires_grad_() for t in (q, k, v)]
    expected, expected_lse = dense(*wide, **options)
    grads = torch.autograd.grad(expected, wide, dout.double())
    out, lse, s_dmask, rng = ours._flash_attn_forward(q, k, v, *arguments, False)
    close(out, expected.detach(), "out")
    close(lse, expected_lse.detach(), "lse")
    assert s_dmask.numel() == 0 and (rng.dtype, rng.shape) == (torch.int64, (2,)) and not out.requires_grad
    # Written into memory of any strides; a None is not written.
    made = torch.zeros(2, 37, 4, 32)[..., ::2], torch.zeros_like(k), torch.zeros_like(v)
    strided = lse.transpose(1, 2).contiguous().transpose(1, 2)
    d = ours._flash_attn_backward(dout, q, k, v, out, strided, *made, *arguments, False)
    for got, wanted, what in zip(made, grads, ("dq", "dk", "dv")):
        close(got, wanted, what)
    assert d.shape == (2, 4, 128) and d.dtype is torch.float32
    close(d[..., :37], (dout.double() * expected).sum(-1).transpose(1, 2).detach(), "D")
    dk = torch.zeros_like(k)
    ours._flash_attn_backward(dout, q, k, v, out, lse, None, dk, None, *arguments, True)
    close(dk, grads[1], "dk alone")


def test_packed():
    q, k, v, dout = (torch.randn(40, h, 16) for h in (4, 2, 2, 4))
    cu = starts()
    arguments, options = both_options()
    wide = [t.double().requires_grad_() for t in (q, k, v)]
    parts = [dense(*(t[None, a:b] for t in wide), **options) for a, b in ((0, 13), (13, 40))]
    expected = torch.cat([part[0][0] for part in parts])
    grads = torch.autograd.grad(expected, wide, dout.double())
    out, lse, *_ = ours._flash_attn_varlen_forward(q, k, v, cu, cu, 27, 27, *arguments)
    close(out, expected.detach(), "out")
    close(lse, torch.cat([part[1][0] for part in parts], -1).detach(), "lse")
    made = [torch.full_like(t, 7.0) for t in (q, k, v)]
    d = ours._flash_attn_varlen_backward(dout, q, k, v, out, lse, *made, cu, cu, 27, 27, *arguments, False)
    for got, wanted, what in zip(made, grads, ("dq", "dk", "dv")):
        close(got, wanted, what)
    assert d.shape == (4, 40 + 128 * 2)
    rows = (dout.double() * expected.detach()).sum(-1).transpose(0, 1)
    close(d[:, :13], rows[:, :13], "D of the first sequence")
    close(d[:, 13 + 128:40 + 128], rows[:, 13:], "D of the second")


def test_keys_of_a_packed_batch():
    """Used keys, left padding and pages."""
    q, k, v = torch.randn(40, 4, 16), torch.randn(40, 2, 16), torch.randn(40, 2, 16)
    cu = starts()
    used, pad = torch.tensor([9, 27], dtype=torch.int32), torch.tensor([0, 5], dtype=torch.int32)
    out, lse, *_ = ours._flash_attn_varlen_forward(q, k, v, cu, cu, 27, 27, 0.0, None, True, seqused_k=used,
                                                   leftpad_k=pad)
    for a, b, n, first in ((0, 13, 9, 0), (13, 40, 27, 5)):
        keys = slice(a + first, a + n)
        expected, expected_lse = dense(*(t[None].double() for t in (q[a:b], k[keys], v[keys])), causal=True)
        close(out[a:b], expected[0], "out")
        close(lse[:, a:b], expected_lse[0], "lse")
    table = torch.tensor([[3, 1, 99], [0, 4, 2]], dtype=torch.int32)  # 99: past the sequence's end
    pages = [torch.randn(5, 10, 2, 16) for _ in range(2)]
    for b, (a, e) in enumerate(((0, 13), (13, 40))):
        for j in range(e - a):
            for page, rows in zip(pages, (k, v)):
                page[table[b, j // 10], j % 10] = rows[a + j]
    paged, *_ = ours._flash_attn_varlen_forward(q, *pages, cu, cu, 27, 27, 0.0, None, True, block_table=table)
    public = ours.flash_attn_varlen_func(q, *pages, cu, cu, 27, 27, causal=True, block_table=table)
    expected = torch.cat([dense(*(t[None, a:b].double() for t in (q, k, v)), causal=True)[0][0]
                          for a, b in ((0, 13), (13, 40))])
    close(paged, expected, "paged")
    assert torch.equal(public, paged)


def test_dropout_is_replayed():
    q, k, v, dout = (torch.randn(2, 64, 4, 16) for _ in range(4))
    out, lse, s_dmask, rng = ours._flash_attn_forward(q, k, v, 0.25, None, False, -1, -1, 0.0, None, True)
    keep = s_dmask[:, :, :64, :64] > 0
    assert abs(keep.double().mean() - 0.75) < 0.02
    wide = [t.double().requires_grad_() for t in (q, k, v)]
    expected, _ = dense(*wide, keep=keep, dropout_p=0.25)
    close(out, expected.detach(), "out")
    made = [torch.empty_like(t) for t in (q, k, v)]
    options = (0.25, None, False, -1, -1, 0.0, None, False)
    ours._flash_attn_backward(dout, q, k, v, out, lse, *made, *options, rng)
    for got, wanted, what in zip(made, torch.autograd.grad(expected, wide, dout.double()), ("dq", "dk", "dv")):
        close(got, wanted, what)
    with pytest.raises(ValueError, match="^rng_state is None, allowed with dropout_p=0.25 is"):
        ours._flash_attn_backward(dout, q, k, v, out, lse, *made, *options)


@pytest.mark.parametrize("name", FORWARDS)
def test_autograd_functions(name, device):
    """With lse's gradient, and within autocast, which flash-attn's functions ignore."""
    packed = "Varlen" in name
    qkv = torch.randn(*((40,) if packed else (2, 20)), 3, 4, 16, requires_grad=True)
    wide = qkv.detach().double().requires_grad_()
    rows = wide if packed else wide.flatten(0, 1)
    bounds = ((0, 13), (13, 40)) if packed else ((0, 20), (20, 40))
    parts = [dense(*(t[None, a:b] for t in rows.unbind(1)), causal=True, alibi_slopes=slopes()) for a, b in bounds]
    expected = torch.cat([part[0][0] for part in parts]).view(wide.shape[:-3] + (4, 16))
    expected_lse = torch.cat([part[1][0] for part in parts], -1) if packed else torch.cat([part[1] for part in parts])
    lengths = () if not packed else (starts(), 27) if "QKV" in name else (starts(), starts(), 27, 27)
    tensors = (qkv,) if "QKV" in name else (qkv.select(-3, 0), qkv.narrow(-3, 1, 2)) if "KV" in name else qkv.unbind(-3)
    tail = (None, True) if name == "FlashAttnVarlenFunc" else (True,)
    with torch.autocast(device.type, torch.bfloat16):
        out, lse, _ = getattr(ours, name).apply(*tensors, *lengths, 0.0, None, True, (-1, -1), 0.0, slopes(), False,
                                                True, *tail)
    close(out, expected.detach(), "out")
    close(lse, expected_lse.detach(), "lse")
    dout, dlse = torch.randn_like(out), torch.randn_like(lse)
    (got,) = torch.autograd.grad((out, lse), qkv, (dout, dlse))
    close(got, torch.autograd.grad((expected, expected_lse), wide, (dout.double(), dlse.double()))[0], "dqkv")
