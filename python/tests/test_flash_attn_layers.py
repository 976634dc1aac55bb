"""flash-attn's parts beside attention (bert_padding, rotary embedding, utils) against their definitions in PyTorch's
operators and complex numbers."""

import subprocess
import sys

import pytest
import torch

from flashtile.flash_attn.bert_padding import (
    index_first_axis_residual,
    index_put_first_axis,
    pad_input,
    unpad_input,
    unpad_input_for_concatenated_sequences,
)
from flashtile.flash_attn.layers.rotary import (
    RotaryEmbedding,
    apply_rotary_emb,
    apply_rotary_emb_kv_,
    apply_rotary_emb_qkv_,
)
from flashtile.flash_attn.ops.triton.rotary import apply_rotary
from flashtile.flash_attn.utils.benchmark import benchmark_all


def test_bert_padding():
    x = torch.randn(3, 5, 2, 4, requires_grad=True)
    mask = torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 1, 1, 0]])
    rows, indices, cu_seqlens, longest, used = unpad_input(x, mask)
    assert cu_seqlens.tolist() == [0, 2, 7, 9] and cu_seqlens.dtype is torch.int32
    assert (longest, used.tolist()) == (5, [2, 5, 2]) and indices.tolist() == [0, 1, 5, 6, 7, 8, 9, 12, 13]
    assert torch.equal(rows, x[mask.bool()])
    back = pad_input(rows, indices, 3, 5)
    assert torch.equal(back, torch.where(mask[..., None, None].bool(), x, 0.0))
    back.sum().backward()
    assert torch.equal(x.grad, mask[..., None, None].expand(x.shape).float())

    unused = torch.tensor([[0, 0, 1, 0, 0], [0] * 5, [0] * 5])
    rows, indices, cu_seqlens, longest, used = unpad_input(x, mask, unused)
    assert cu_seqlens.tolist() == [0, 3, 8, 10] and used.tolist() == [2, 5, 2] and len(rows) == 10


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_is_a_rotation_of_the_plane(interleaved):
    """Against complex numbers: the pair (a, b) at position n is (a + ib) e^(i n angle)."""
    x, angles = torch.randn(2, 9, 3, 16), torch.rand(6) * 3
    turns = torch.arange(20)[:, None] * angles
    offsets = torch.tensor([0, 4])
    got = apply_rotary_emb(x, turns.cos(), turns.sin(), interleaved=interleaved, seqlen_offsets=offsets)
    pairs = x[..., :12].unflatten(-1, (6, 2)) if interleaved else x[..., :12].unflatten(-1, (2, 6)).transpose(-1, -2)
    position = torch.arange(9) + offsets[:, None]
    expected = torch.view_as_complex(pairs.contiguous().double()) * torch.exp(
        1j * position[..., None].double() * angles.double())[:, :, None]
    expected = torch.view_as_real(expected)
    expected = (expected if interleaved else expected.transpose(-1, -2)).flatten(-2)
    torch.testing.assert_close(got[..., :12].double(), expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(got[..., 12:], x[..., 12:])

    cu = torch.tensor([0, 4, 9])
    packed = apply_rotary_emb(x[0], turns.cos(), turns.sin(), interleaved=interleaved, cu_seqlens=cu)
    alone = apply_rotary_emb(x[:1, 4:], turns.cos(), turns.sin(), interleaved=interleaved)
    assert torch.equal(packed[4:], alone[0])
    copy = x.clone()
    assert apply_rotary_emb(copy, turns.cos(), turns.sin(), interleaved, inplace=True) is copy
    assert torch.equal(copy, apply_rotary_emb(x, turns.cos(), turns.sin(), interleaved))


def test_concatenated_sequences():
    x = torch.randn(3, 6, 2, 4, requires_grad=True)
    lengths = torch.tensor([[2, 3, 0, 0, 0, 0], [3, 2, 0, 0, 0, 0], [6, 0, 0, 0, 0, 0]])
    rows, indices, cu_seqlens, longest = unpad_input_for_concatenated_sequences(x, lengths)
    assert cu_seqlens.tolist() == [0, 2, 5, 8, 10, 16] and cu_seqlens.dtype is torch.int32 and longest == 6
    assert indices.tolist() == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, *range(12, 18)]
    assert torch.equal(rows, torch.cat((x[0, :5], x[1, :5], x[2])))
    assert torch.equal(pad_input(rows, indices, 3, 6)[0, 5], torch.zeros(2, 4))


def test_rows_put_and_taken():
    values, indices = torch.randn(3, 2, requires_grad=True), torch.tensor([4, 0, 2])
    put = index_put_first_axis(values, indices, 5)
    assert torch.equal(put[indices], values) and not put[[1, 3]].any()
    taken, rest = index_first_axis_residual(put, indices)
    assert torch.equal(taken, values) and torch.equal(rest, put)
    (taken.sum() + 2 * rest.sum()).backward()
    assert torch.equal(values.grad, torch.full((3, 2), 3.0))


def turned(x, angle, conjugate=False):
    """Rotated by complex numbers: x (batch, seqlen, heads, 16), of which the first 12 by angle (seqlen, 6)."""
    pairs = x[..., :12].double().unflatten(-1, (2, 6)).transpose(-1, -2).contiguous()
    turn = torch.exp((-1j if conjugate else 1j) * angle.double())[:, None]
    return torch.cat((torch.view_as_real(torch.view_as_complex(pairs) * turn).transpose(-1, -2).flatten(-2),
                      x[..., 12:].double()), -1)


@pytest.mark.parametrize("form", ["five dimensions", "heads", "kv"])
def test_rotary_in_place(form):
    """A leaf is rotated in place; its gradient is rotated the other way."""
    angle, angle_k = torch.rand(9, 6) * 3, torch.rand(9, 6) * 3
    tables = [t for a in (angle, angle_k) for t in (a.cos(), a.sin())]
    if form == "kv":
        before = torch.randn(2, 9, 2, 4, 16)
        x, angles = before.clone(), (angle, None)
        out = apply_rotary_emb_kv_(x.requires_grad_(), *tables[:2])
    elif form == "heads":
        before = torch.randn(2, 9, 4 + 2 + 2, 16)
        x, angles = before.clone(), (angle, angle, angle_k, None)  # of each two heads
        out = apply_rotary_emb_qkv_(x.requires_grad_(), *tables, num_heads_q=4)
    else:
        before = torch.randn(2, 9, 3, 4, 16)
        x, angles = before.clone(), (angle, angle_k, None)
        out = apply_rotary_emb_qkv_(x.requires_grad_(), *tables)

    def expected(x, conjugate=False):
        parts = x.chunk(len(angles), 2)
        return torch.cat([part.double() if of is None else turned(part.flatten(2, -2), of, conjugate).view(part.shape)
                          for part, of in zip(parts, angles)], 2)

    torch.testing.assert_close(out.detach().double(), expected(before), atol=1e-5, rtol=1e-5)
    assert torch.equal(x, out)
    dout = torch.randn_like(out)
    kept = dout.clone()
    out.backward(dout)
    torch.testing.assert_close(x.grad.double(), expected(dout, conjugate=True), atol=1e-5, rtol=1e-5)
    assert torch.equal(dout, kept)


def test_rotary_in_place_on_a_view_and_on_a_leaf():
    """Parts of a projection are views, which autograd does not let code write to."""
    angle = torch.rand(9, 6)
    qkv = torch.randn(2, 9, 3, 4, 16, requires_grad=True)
    q = (qkv * 1).unbind(2)[0]
    apply_rotary_emb(q, angle.cos(), angle.sin(), inplace=True).sum().backward()
    leaf = qkv.detach()[:, :, 0].clone().requires_grad_()
    apply_rotary_emb(leaf, angle.cos(), angle.sin(), inplace=True).sum().backward()
    expected = turned(torch.ones(2, 9, 4, 16), angle, conjugate=True)
    torch.testing.assert_close(qkv.grad[:, :, 0].double(), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(leaf.grad.double(), expected, atol=1e-5, rtol=1e-5)


def test_what_rotary_cannot_know_is_named():
    qkv = torch.randn(1, 4, 8, 16)
    with pytest.raises(ValueError, match="^num_heads_q is None, allowed with a qkv of"):
        apply_rotary_emb_qkv_(qkv, torch.ones(4, 8), torch.ones(4, 8))
    with pytest.raises(ValueError, match="^num_heads_q is 5, allowed is one that leaves an even number"):
        apply_rotary_emb_qkv_(qkv, torch.ones(4, 8), torch.ones(4, 8), num_heads_q=5)
    with pytest.raises(ValueError, match="^max_seqlen is None"):
        RotaryEmbedding(16)(qkv, seqlen_offset=torch.zeros(1), num_heads_q=4)


def test_kernel_s_rotary():
    x, angle = torch.randn(2, 9, 4, 16), torch.rand(9, 6)
    out = apply_rotary(x, angle.cos(), angle.sin())
    torch.testing.assert_close(out.double(), turned(x, angle), atol=1e-5, rtol=1e-5)
    again = x.clone()
    back = apply_rotary(again, angle.cos(), angle.sin(), conjugate=True, inplace=True)
    assert back is again
    torch.testing.assert_close(back.double(), turned(x, angle, conjugate=True), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("scale_base", [None, 512])
def test_rotary_embedding(scale_base):
    """Scores depend on the distance of positions alone: each is that of the same vectors at position 0 and there. With
    XPos they also shrink with it: by ((2 i / dim + 0.4) / 1.4)^(distance / scale_base) for pair i."""
    module = RotaryEmbedding(12, base=100.0, scale_base=scale_base)
    row = torch.randn(3, 1, 16)
    qkv = row.expand(1, 12, 3, 1, 16).clone()
    out = module(qkv, seqlen_offset=3).double()
    assert torch.equal(out[:, :, 2], row[2].expand(1, 12, 1, 16).double())
    scores = torch.einsum("bihd,bjhd->ij", out[:, :, 0], out[:, :, 1])
    distance = torch.arange(12)[:, None] - torch.arange(12)
    pair = torch.arange(6, dtype=torch.float64)
    a, b = (torch.view_as_complex(x[0, :12].double().unflatten(-1, (2, 6)).T.contiguous()) for x in row[:2])
    growth = 1.0 if scale_base is None else ((2 * pair / 12 + 0.4) / 1.4) ** (distance[..., None] / scale_base)
    angle = distance[..., None] * 100.0 ** (-2 * pair / 12)
    expected = (a * b.conj() * torch.exp(1j * angle) * growth).real.sum(-1) + (row[0, 0, 12:] @ row[1, 0, 12:]).double()
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=1e-4)

    q, kv = row[0].expand(1, 12, 1, 16).clone(), row[1:].expand(1, 12, 2, 1, 16).clone()
    offsets = torch.tensor([3])
    rotated, kv = module(q, kv, seqlen_offset=offsets, max_seqlen=15)
    assert torch.equal(rotated.double(), out[:, :, 0]) and torch.equal(kv.double(), out[:, :, 1:])


def test_rotary_embedding_of_a_narrow_model():
    """Angles are computed in fp32 whatever dtype the model was cast to."""
    module = RotaryEmbedding(16).to(torch.bfloat16)
    module(torch.randn(1, 3000, 3, 1, 16).bfloat16())
    angle = torch.arange(3000)[:, None] * 10000.0 ** (-torch.arange(0, 16, 2, dtype=torch.float64) / 16)
    torch.testing.assert_close(module._cos_cached.double(), angle.cos(), atol=0.005, rtol=0)


def test_benchmark_counts_what_it_is_given():
    x, calls = torch.randn(4, requires_grad=True), []

    def square(x):
        calls.append(1)
        return x.square(), None

    (_, forward), (_, backward), (_, both) = benchmark_all(square, x, repeats=2, verbose=False, grad=torch.ones(4))
    assert forward.mean > 0 and backward.mean > 0 and both.mean > 0
    torch.testing.assert_close(x.grad, 2 * x.detach())


def test_collectives(tmp_path):
    """Two processes gather, sum and scatter, and take the gradients of each."""
    program = """
import os, sys
import torch, torch.distributed as dist
from flashtile.flash_attn.utils.distributed import all_gather, all_reduce, reduce_scatter
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
group = dist.group.WORLD
x = (torch.arange(2.0) + 10 * rank).requires_grad_()
out = all_gather(x, group)
assert out.tolist() == [0, 1, 10, 11]
out.backward(torch.arange(4.0) + rank)  # summed: 1, 3, 5, 7
assert x.grad.tolist() == [[1, 3], [5, 7]][rank]
x.grad = None
out = reduce_scatter(x, group)
assert out.tolist() == [[10], [12]][rank]
out.backward(torch.tensor([1.0 + rank]))
assert x.grad.tolist() == [1, 2]
x.grad = None
out = all_reduce(x, group)
assert out.tolist() == [10, 12] and x.tolist() == [10 * rank, 10 * rank + 1]
out.backward(torch.tensor([5.0, 6.0]))
assert x.grad.tolist() == [5, 6]
dist.barrier()
os._exit(0)  # gloo's threads may outlive the interpreter, and then end the process by std::terminate
"""
    command, store = [sys.executable, "-c", program], str(tmp_path / "store")
    workers = [subprocess.Popen([*command, str(rank), store]) for rank in range(2)]
    try:
        assert [worker.wait(120) for worker in workers] == [0, 0]
    finally:
        for worker in workers:
            worker.kill()
