"""flashtile.merge: parts that attended to different keys give what attending to all of them gives, gradients included,
beside autograd through the definition in fp64."""

import pytest
import torch

import flashtile
from flashtile._merge import merge_op
from oracle import dense

INFINITY = float("inf")


def definition(outs, lses):
    """(out, lse) in the parts' dtype, of parts of which none is empty."""
    lse = torch.logsumexp(lses, 0)
    weights = torch.exp(lses - lse).transpose(-1, -2).unsqueeze(-1)
    return (weights * outs).sum(0), lse


def parts(n=3, dtype=torch.float32, requires_grad=False):
    outs, lses = torch.randn(n, 2, 5, 4, 8, dtype=dtype), 3 * torch.randn(n, 2, 4, 5)
    return outs.requires_grad_(requires_grad), lses.requires_grad_(requires_grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_merges(dtype):
    outs, lses = parts(dtype=dtype)
    out, lse = flashtile.merge(outs, lses)
    expected_out, expected_lse = definition(outs.double(), lses.double())
    assert out.dtype is dtype and lse.dtype is torch.float32
    torch.testing.assert_close(out.double(), expected_out, rtol=torch.finfo(dtype).eps, atol=1e-6)
    torch.testing.assert_close(lse.double(), expected_lse, rtol=1e-6, atol=1e-6)
    wide = flashtile.merge(outs, lses, dtype=torch.float32)[0]
    torch.testing.assert_close(wide.double(), expected_out, rtol=1e-6, atol=1e-6)
    assert torch.equal(flashtile.merge(list(outs), list(lses))[0], out)
    assert "merge" in flashtile.last_run()


def test_packed():
    outs, lses = torch.randn(2, 7, 3, 16), torch.randn(2, 3, 7)
    out, lse = flashtile.merge(outs, lses)
    expected = definition(outs.double(), lses.double())
    torch.testing.assert_close((out.double(), lse.double()), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("through", ["out", "lse", "both"])
def test_gradients(through):
    outs, lses = parts(requires_grad=True)
    wide = [x.detach().double().requires_grad_() for x in (outs, lses)]
    dout, dlse = torch.randn(2, 5, 4, 8), torch.randn(2, 4, 5)

    def gradients(function, inputs):
        out, lse = function(*inputs)
        losses = {"out": (out * dout).sum(), "lse": (lse * dlse).sum()}
        return torch.autograd.grad(sum(losses.values()) if through == "both" else losses[through], inputs,
                                   materialize_grads=True)

    for got, expected in zip(gradients(flashtile.merge, (outs, lses)), gradients(definition, wide)):
        torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)


def test_empty_parts_have_no_gradient_and_no_effect():
    outs, lses = parts()
    empty = torch.zeros(3, 2, 4, 5, dtype=torch.bool)
    empty[1], empty[:, 0, 0, 0] = True, True
    lses = lses.masked_fill(empty, -INFINITY).requires_grad_()
    outs = outs.masked_fill(empty.transpose(-1, -2).unsqueeze(-1), float("nan")).requires_grad_()
    out, lse = flashtile.merge(outs, lses)
    expected = flashtile.merge(outs[::2].nan_to_num(), lses[::2])[0]
    torch.testing.assert_close(out, expected)
    assert lse[0, 0, 0] == -INFINITY and not out[0, 0, 0].any()
    douts, dlses = torch.autograd.grad(out.sum() + lse[lse.isfinite()].sum(), (outs, lses))
    assert douts.isfinite().all() and dlses.isfinite().all()
    assert not douts[1].any() and not dlses[1].any() and not dlses[:, 0, 0, 0].any()
    assert douts[0].any() and dlses[0].any()


def test_attention_split_by_keys():
    """The gradients of q, k and v go through out and lse of each part."""
    q, k, v = (torch.randn(2, n, 4, 16, requires_grad=True) for n in (9, 30, 30))
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    pieces = [flashtile.attention(q, k[:, a:b], v[:, a:b], return_lse=True) for a, b in ((0, 7), (7, 20), (20, 30))]
    out, lse = flashtile.merge(*zip(*pieces))
    expected_out, expected_lse = dense(*wide)
    torch.testing.assert_close((out.double(), lse.double()), (expected_out, expected_lse), rtol=1e-5, atol=1e-5)
    dout, dlse = torch.randn_like(out), torch.randn_like(lse)
    got = torch.autograd.grad((out, lse), (q, k, v), (dout, dlse))
    expected = torch.autograd.grad((expected_out, expected_lse), wide, (dout.double(), dlse.double()))
    for gradient, reference in zip(got, expected):
        torch.testing.assert_close(gradient.double(), reference, rtol=1e-4, atol=1e-4)


def test_compiles_and_passes_opcheck():
    outs, lses = parts(requires_grad=True)

    def block(outs, lses):
        out, lse = flashtile.merge(outs * 2, lses + 1)
        return out.sin().sum() + lse.sum()

    expected = torch.autograd.grad(block(outs, lses), (outs, lses))
    got = torch.autograd.grad(torch.compile(block, fullgraph=True, backend="aot_eager")(outs, lses), (outs, lses))
    torch.testing.assert_close(got, expected)
    torch.library.opcheck(merge_op, (outs, lses, None))
    torch.library.opcheck(merge_op, (outs.detach().half(), lses.detach(), torch.float32))


def test_transforms():
    outs, lses = parts()
    expected = torch.stack([flashtile.merge(outs * scale, lses)[0] for scale in (1, 2)])
    got = torch.vmap(lambda scale: flashtile.merge(outs * scale, lses)[0])(torch.tensor([1.0, 2.0]))
    torch.testing.assert_close(got, expected)
    gradient = torch.func.grad(lambda x: flashtile.merge(x, lses)[0].sum())(outs)
    torch.testing.assert_close(gradient.sum(0), torch.ones(2, 5, 4, 8))
    with pytest.raises(NotImplementedError, match="forward-mode"):
        torch.func.jvp(lambda x: flashtile.merge(x, lses)[0], (outs,), (outs,))


@pytest.mark.parametrize(("spoil", "message"), [
    (lambda outs, lses: (outs, lses[:, :, :3]), r"lses.shape is \(3, 2, 3, 5\), allowed is .* = \(3, 2, 4, 5\)"),
    (lambda outs, lses: (outs.double(), lses), r"outs.dtype is torch.float64"),
    (lambda outs, lses: (outs, lses.half()), r"lses.dtype is fp16, allowed is fp32"),
    (lambda outs, lses: (outs, 3), r"lses is a int"),
    (lambda outs, lses: ([1, 2], lses), r"outs is a list"),
    (lambda outs, lses: (outs[0, 0], lses), r"outs.rank is 3"),
])
def test_refuses(spoil, message):
    with pytest.raises((TypeError, ValueError), match=message):
        flashtile.merge(*spoil(*parts()))
