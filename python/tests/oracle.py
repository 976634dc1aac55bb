"""Dense attention from its definition, in PyTorch's operators and the inputs' dtype. In fp64 it is the reference; in a
narrower dtype it is the standard attention whose error sets the bound: at most twice its error, plus 2 ulp."""

import math

import torch


def dense(q, k, v, *, causal=False, window=(-1, -1), align="bottom-right", scale=None, softcap=0.0, alibi_slopes=None,
          bias=None, mask=None, keep=None, dropout_p=0.0):
    """(out, lse) of q (b, i, h, d), k and v (b, j, h_k, d). keep: the dropout mask."""
    group = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
    s = torch.einsum("bihd,bjhd->bhij", q, k)
    wide = torch.float64 if q.dtype is torch.float64 else torch.float32
    s = s.to(wide) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    rows, columns = s.shape[-2:]
    offset = columns - rows if align == "bottom-right" else 0
    distance = torch.arange(columns) - torch.arange(rows)[:, None] - offset
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    if alibi_slopes is not None:
        s = s - alibi_slopes.to(wide)[..., None, None] * distance.abs()
    if bias is not None:
        s = s + bias.to(wide)
    seen = torch.ones(rows, columns, dtype=torch.bool)
    if causal:
        seen = seen & (distance <= 0)
    if window[0] >= 0:
        seen = seen & (distance >= -window[0])
    if window[1] >= 0:
        seen = seen & (distance <= window[1])
    seen = (seen if mask is None else seen & mask).expand(s.shape)
    s = s.masked_fill(~seen, -1e300 if wide is torch.float64 else -1e38)
    some = seen.any(-1)
    lse = torch.where(some, s.logsumexp(-1), -torch.inf)
    p = torch.where(seen, s.softmax(-1), 0.0)
    if keep is not None:
        p = torch.where(keep, p / (1 - round(dropout_p * 65536) / 65536), 0.0)
    return torch.einsum("bhij,bjhd->bihd", p.to(q.dtype), v), lse


def roundoff_of_dbias(q, k, v, bias, dout, dlse, **options):
    """How far rounding alone may change a bias' gradient.

    The gradient is a sum of many dS of both signs, which nearly cancel. A scalar bias has a single such sum, and it is
    luck how near standard attention's comes to the truth. A term's error comes from its exponent in fp32 and from its
    row's D, which is computed from out in q's dtype; the squares of independent errors add up. This is
    gradient_roundoff of tests/oracle/tolerance.cpp.
    """
    eps = torch.finfo(q.dtype).eps
    q, k, v, bias, dout, dlse = (t.detach().double() for t in (q, k, v, bias, dout, dlse))
    full = bias.expand(q.shape[0], q.shape[2], q.shape[1], k.shape[1]).clone().requires_grad_()
    out, lse = dense(q, k, v, bias=full, **options)
    (ds,) = torch.autograd.grad((out, lse), full, (dout, dlse), retain_graph=True)
    (p,) = torch.autograd.grad(lse.sum(), full)
    of_d = (dout * out.detach()).square().sum(-1).sqrt().transpose(1, 2)[..., None]
    if bias.dim() == 0 or bias.shape[-1] == 1:  # a row's terms share its D
        p = p.sum(-1, keepdim=True)
    terms, from_out = (t.square().sum_to_size(bias.shape).max().sqrt() for t in (ds, p * of_d))
    return 2**-24 * (lse[lse.isfinite()].abs().max() + 2) * terms + eps * from_out


def assert_close(got, reference, standard, what, roundoff=0.0):
    """Max and rms error at most twice standard attention's, plus 2 ulp of got's dtype at the largest reference, plus
    roundoff."""
    got, standard = got.detach().double(), (standard.detach().double(), torch.finfo(got.dtype).eps)
    reference = reference.detach()
    assert torch.equal(got.isinf(), reference.isinf()), what
    finite = reference.isfinite()
    error = (got - reference)[finite].abs()
    allowed = (standard[0] - reference)[finite].abs()
    if error.numel() == 0:
        return
    floor = 2 * standard[1] * reference[finite].abs().max() + roundoff
    assert error.max() <= 2 * allowed.max() + floor, f"{what}: max error {error.max():.3g}, {allowed.max():.3g}"
    rms = [x.square().mean().sqrt() for x in (error, allowed)]
    assert rms[0] <= 2 * rms[1] + floor, f"{what}: rms error {rms[0]:.3g}, standard attention's {rms[1]:.3g}"
