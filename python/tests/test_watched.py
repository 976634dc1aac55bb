"""Calls under torch.jit.trace, forward-mode derivatives, the profiler and the FLOP counter, and calls with negated
views and meta tensors: they are right or refused, never wrong."""

import subprocess
import sys

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

import flashtile
from flashtile._options import CallOptions
from flashtile._run import ABSENT
from oracle import dense


def through_hook(q, k, v):
    with flashtile.sdpa():
        return F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v))).transpose(1, 2)


def through_function(q, k, v):
    return flashtile.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v))).transpose(1, 2)


def through_transformers(q, k, v):
    module = torch.nn.Module()
    module.is_causal = False
    return flashtile.transformers.attention_forward(module, *(t.transpose(1, 2) for t in (q, k, v)), None)[0]


WAYS = {"attention": flashtile.attention, "scaled_dot_product_attention": through_function, "sdpa": through_hook,
        "flash_attn": flashtile.flash_attn.flash_attn_func, "transformers": through_transformers}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def three(seqlen=9, **how):
    return tuple(torch.randn(2, seqlen, 3, 8, **how) for _ in range(3))


def check(got, q, k, v):
    torch.testing.assert_close(got.double(), dense(q.double(), k.double(), v.double())[0], atol=1e-5, rtol=1e-4)


@every_way
def test_jit_trace(way):
    example = three()
    traced = torch.jit.trace(way, example)
    for tensors in (example, three(), three(17)):
        check(traced(*tensors), *tensors)
    leaves = three(requires_grad=True)
    for got, expected in zip(torch.autograd.grad(traced(*leaves).square().sum(), leaves),
                             torch.autograd.grad(dense(*leaves)[0].square().sum(), leaves)):
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


def test_jit_trace_draws_dropout_afresh():
    q, k, _ = three()
    identity = torch.eye(9)[None, :, None, :8].expand(2, 9, 3, 8).contiguous()
    traced = torch.jit.trace(lambda *t: flashtile.attention(*t, dropout_p=0.5), (q, k, identity), check_trace=False)
    first, second = (traced(q, k, identity) != 0 for _ in range(2))
    assert not torch.equal(first, second) and 0.3 < first[:, :, :, :8].double().mean() < 0.7


def test_onnx_gets_pytorchs(monkeypatch):
    """torch.onnx.export traces like this with dynamo=False."""
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    traced = torch.jit.trace(through_hook, three())
    assert "aten::scaled_dot_product_attention" in str(traced.graph) and "flashtile::" not in str(traced.graph)


FORWARD_MODE = "flashtile has no forward-mode derivatives"


@every_way
@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("recorded", [False, True])
def test_dual_tensors_are_refused(way, which, recorded):
    tensors = list(three(requires_grad=recorded))
    with forward_ad.dual_level():
        way(*tensors)  # none is dual
        tensors[which] = forward_ad.make_dual(tensors[which].detach(), torch.ones_like(tensors[which]))
        # What flashtile.sdpa() gives to PyTorch, that refuses.
        with pytest.raises(NotImplementedError, match="forward AD" if way is through_hook else FORWARD_MODE):
            way(*tensors)


def test_a_dual_gradient_is_refused():
    leaves = three(requires_grad=True)
    out = flashtile.attention(*leaves)
    with forward_ad.dual_level():
        dout = forward_ad.make_dual(torch.ones_like(out), torch.ones_like(out))
        with pytest.raises(NotImplementedError, match=FORWARD_MODE):
            torch.autograd.grad(out, leaves, dout)


OPTIONS = (*ABSENT, *CallOptions(), None)  # the operators' arguments after q, k and v


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("which", range(3))
def test_operators_refuse_dual_tensors(which, recorded):
    tensors = list(three(requires_grad=recorded))
    out, lse = (t.detach() for t in torch.ops.flashtile.forward(*tensors, *OPTIONS))
    with forward_ad.dual_level():
        torch.ops.flashtile.forward(*tensors, *OPTIONS)  # none is dual
        tensors[which] = forward_ad.make_dual(tensors[which], torch.ones_like(tensors[which]))
        with pytest.raises(NotImplementedError, match=FORWARD_MODE):
            torch.ops.flashtile.forward(*tensors, *OPTIONS)
        with pytest.raises(NotImplementedError, match=FORWARD_MODE):
            torch.ops.flashtile.backward(*tensors, *OPTIONS, out, lse, torch.ones_like(out), None, False, False)


@pytest.mark.parametrize("name", ["jvp", "jacfwd"])
def test_operators_refuse_functional_forward_mode(name):
    q, k, v = three()

    def attend(q):
        return torch.ops.flashtile.forward(q, k, v, *OPTIONS)[0]

    with pytest.raises(NotImplementedError, match=FORWARD_MODE):
        torch.func.jvp(attend, (q,), (q,)) if name == "jvp" else torch.func.jacfwd(attend)(q)


@pytest.mark.parametrize("compiled", [False, True])
def test_functional_forward_mode_is_refused(compiled):
    q, k, v = three()

    def attend(q):
        return flashtile.attention(q, k, v)

    def loss(q):
        return attend(q).square().sum()

    cases = [lambda q: torch.func.jvp(attend, (q,), (q,))[1]]
    if not compiled:
        cases += [torch.func.jacfwd(attend), torch.func.hessian(loss),
                  lambda q: torch.func.jvp(torch.func.grad(loss), (q,), (q,))[1]]
    for case in cases:
        torch._dynamo.reset()
        with pytest.raises(Exception, match=FORWARD_MODE):
            (torch.compile(case, backend="aot_eager") if compiled else case)(q)


def negated(tensor):
    return torch._neg_view(-tensor.detach())


@every_way
def test_negated_views(way):
    tensors = three()
    check(way(*map(negated, tensors)), *tensors)
    q, k, v = tensors
    check(way(q, torch.complex(k, -k).conj().imag, v), q, k, v)  # where such views come from


@pytest.mark.parametrize("name", ["bias", "alibi_slopes"])
def test_negated_views_of_options(name):
    q, k, v = three()
    value = torch.randn(9, 9) if name == "bias" else torch.rand(3)
    assert torch.equal(flashtile.attention(q, k, v, **{name: negated(value)}),
                       flashtile.attention(q, k, v, **{name: value}))


def test_negated_gradients():
    leaves = three(requires_grad=True)
    dout = torch.randn(2, 9, 3, 8)
    got = torch.autograd.grad(flashtile.attention(*leaves), leaves, negated(dout))
    for a, b in zip(got, torch.autograd.grad(dense(*leaves)[0], leaves, dout)):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
    recorded = [negated(t).requires_grad_() for t in leaves]
    got = torch.autograd.grad(flashtile.attention(*recorded), recorded, dout)
    for a, b in zip(got, torch.autograd.grad(dense(*leaves)[0], leaves, dout)):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@every_way
def test_meta(way):
    tensors = [torch.randn(2, 9, 3, 8, device="meta", requires_grad=True) for _ in range(3)]
    out = way(*tensors)
    assert out.is_meta and out.shape == (2, 9, 3, 8)
    assert [t.shape for t in torch.autograd.grad(out.sum(), tensors)] == [t.shape for t in tensors]


def test_profiler_shows_calls():
    leaves = three(requires_grad=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        flashtile.attention(*leaves).sum().backward()
    names = {event.key: event.count for event in profile.key_averages()}
    assert names["flashtile_forward"] == names["flashtile_backward"] == 1


@pytest.mark.parametrize("meta", [False, True])
def test_flops(meta):
    """Two products forward, five backward, each of 2 * rows * columns * width."""
    device = {"device": "meta"} if meta else {}
    q = torch.randn(2, 5, 6, 8, requires_grad=True, **device)
    k = torch.randn(2, 7, 3, 8, **device)
    v = torch.randn(2, 7, 3, 4, **device)
    with FlopCounterMode(display=False) as counter:
        flashtile.attention(q, k, v, causal=True).sum().backward()
    pairs = 2 * 6 * 5 * 7
    counts = counter.get_flop_counts()["Global"]
    assert counts == {torch.ops.flashtile.forward: 2 * pairs * (8 + 4),
                      torch.ops.flashtile.backward: 2 * pairs * (3 * 8 + 2 * 4)}


def test_flops_of_packed_sequences():
    cu_seqlens = torch.tensor([0, 4, 10], dtype=torch.int32)
    q = torch.randn(10, 3, 8)
    with FlopCounterMode(display=False) as counter:
        flashtile.attention(q, q, q, cu_seqlens_q=cu_seqlens, cu_seqlens_k=cu_seqlens, max_seqlen_q=6, max_seqlen_k=6)
    assert counter.get_total_flops() == 2 * 3 * (4 * 4 + 6 * 6) * (8 + 8)


def test_flops_of_packed_sequences_whose_lengths_are_not_known():
    """Each counts as long as the longest."""
    cu_seqlens = torch.empty(4, dtype=torch.int32, device="meta")
    q, k = torch.empty(10, 3, 8, device="meta"), torch.empty(20, 3, 8, device="meta")
    with FlopCounterMode(display=False) as counter:
        flashtile.attention(q, k, k, cu_seqlens_q=cu_seqlens, cu_seqlens_k=cu_seqlens, max_seqlen_q=5, max_seqlen_k=7)
    assert counter.get_total_flops() == 2 * 3 * (3 * 5 * 7) * (8 + 8)


def test_flops_of_a_program_that_uses_flashtile_within_the_counter_first():
    program = ("import torch, flashtile; from torch.utils.flop_counter import FlopCounterMode\n"
               "q = torch.randn(1, 4, 2, 8)\n"
               "with FlopCounterMode(display=False) as counter: flashtile.attention(q, q, q)\n"
               "print(counter.get_total_flops())")
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == (
        f"{2 * 2 * 4 * 4 * (8 + 8)}\n")


def test_last_run(device):
    leaves = three(requires_grad=True)
    out = flashtile.attention(*leaves)
    assert flashtile.last_run().startswith(device.type) and "forward" in flashtile.last_run()
    out.sum().backward()
    if device.type == "cpu":  # on CUDA backward runs on a thread of autograd's
        assert "backward" in flashtile.last_run()
