"""flashtile.attention against dense attention in fp64: every option, forward and backward, and what PyTorch adds, such
as autocast, generators and deterministic mode."""

import re

import numpy as np
import pytest
import torch

import flashtile
from conftest import DEVICE
from oracle import assert_close, dense, roundoff_of_dbias

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def problem(dtype=torch.float32, batch=2, seqlen_q=37, seqlen_k=53, heads=4, kv_heads=2, d=16, dv=16):
    shapes = ((batch, seqlen_q, heads, d), (batch, seqlen_k, kv_heads, d), (batch, seqlen_k, kv_heads, dv))
    return tuple(torch.randn(shape).to(dtype).requires_grad_() for shape in shapes)


def check(tensors, ours, standard=dense, bias=None, roundoff=lambda dout, dlse: 0.0):
    """Compares out, lse and the gradients of `ours` with those of `standard` in fp64. The bound is set by the error of
    `standard` in the tensors' dtype; that of dbias is larger by `roundoff`."""
    leaves = tensors if bias is None else (*tensors, bias)
    results = []
    for function, wide in ((ours, False), (standard, True), (standard, False)):
        used = [leaf.detach().double() if wide else leaf.detach().clone() for leaf in leaves]
        for leaf in used:
            leaf.requires_grad_()
        out, lse = function(*used[:3], **({} if bias is None else {"bias": used[3]}))
        if not results:
            dout, dlse = torch.randn(out.shape).to(out.dtype), torch.randn(lse.shape)
            dlse = torch.where(lse.isfinite(), dlse, 0.0)
        grads = torch.autograd.grad((out, lse), used, (dout.to(out.dtype), dlse.to(lse.dtype)))
        results.append((out, lse, *grads))
    for got, reference, usual, what in zip(*results, ("out", "lse", "dq", "dk", "dv", "dbias")):
        assert got.isnan().sum() == 0, what
        assert_close(got, reference, usual, what, roundoff(dout, dlse) if what == "dbias" else 0.0)


OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "top-left": {"causal": True, "align": "top-left"},
    "window": {"window": (9, 4)},
    "window top-left": {"window": (9, 4), "align": "top-left"},
    "causal window": {"causal": True, "window": (5, -1)},
    "scale": {"scale": 0.7},
    "softcap": {"softcap": 1.5},
    "alibi": {"alibi_slopes": lambda: torch.tensor([0.5, 0.25, 0.125, 0.0625])},
    "alibi of each sequence": {"alibi_slopes": lambda: torch.rand(2, 4)},
    "mask": {"mask": lambda: torch.rand(2, 1, 37, 53) < 0.7},
    "empty rows": {"mask": lambda: (torch.arange(37) % 3 > 0)[:, None]},
    "all": {"causal": True, "window": (20, 0), "softcap": 2.0, "scale": 0.3,
            "alibi_slopes": lambda: torch.tensor([0.5, 0.25, 0.125, 0.0625])},
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OPTIONS)
def test_options(name, dtype):
    options = {option: value() if callable(value) else value for option, value in OPTIONS[name].items()}
    check(problem(dtype), lambda q, k, v: flashtile.attention(q, k, v, return_lse=True, **options),
          lambda q, k, v: dense(q, k, v, **options))


@pytest.mark.parametrize("shape", [(2, 4, 37, 53), (4, 37, 53), (37, 1), (1, 1, 1, 53), ()], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_bias_of_any_shape_gets_its_gradient(shape, dtype):
    tensors, bias = problem(dtype), torch.randn(shape).to(dtype)
    check(tensors, lambda q, k, v, bias: flashtile.attention(q, k, v, bias=bias, causal=True, return_lse=True),
          lambda q, k, v, bias: dense(q, k, v, bias=bias, causal=True), bias,
          lambda dout, dlse: roundoff_of_dbias(*tensors, bias, dout, dlse, causal=True))


def test_head_dimension_of_v_and_heads():
    check(problem(heads=6, kv_heads=1, d=24, dv=40),
          lambda q, k, v: flashtile.attention(q, k, v, return_lse=True))


def test_views_come_as_they_are():
    qkv = torch.randn(2, 37, 3, 4, 16, requires_grad=True)
    views = qkv.unbind(2)
    turned = [view.detach().transpose(1, 2).contiguous().transpose(1, 2) for view in views]
    strided = [view.detach().repeat_interleave(2, -1)[..., ::2] for view in views]
    expected = flashtile.attention(*(view.detach().contiguous() for view in views), causal=True)
    for tensors in (views, turned, strided):
        assert torch.equal(flashtile.attention(*tensors, causal=True), expected)
    flashtile.attention(*views, causal=True).square().sum().backward()
    reference = qkv.detach().double().requires_grad_()
    dense(*reference.unbind(2), causal=True)[0].square().sum().backward()
    torch.testing.assert_close(qkv.grad.double(), reference.grad, atol=2e-5, rtol=1e-4)


def test_expanded_gradient():
    """The gradient of sum() is one number that is expanded with strides of 0."""
    q, k, v = problem()
    wide = [t.detach().double().requires_grad_() for t in (q, k, v)]
    flashtile.attention(q, k, v).sum().backward()
    dense(*wide)[0].sum().backward()
    for got, expected in zip((q, k, v), wide):
        torch.testing.assert_close(got.grad.double(), expected.grad, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_packed(dtype):
    lengths_q, lengths_k = (7, 0, 20, 5), (9, 4, 20, 3)
    q, k, v = (torch.randn(n, h, 16, requires_grad=True) for n, h in ((34, 4), (38, 2), (38, 2)))  # 2 rows of nobody
    cu_q, cu_k = (torch.tensor((0, *lengths)).cumsum(0).to(dtype) for lengths in (lengths_q, lengths_k))
    out, lse = flashtile.attention(q, k, v, causal=True, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, max_seqlen_q=20,
                                   max_seqlen_k=20, return_lse=True)
    assert lse.shape == (4, 34) and not out[32:].any()
    (out.square().sum() + torch.where(lse.isfinite(), lse, 0.0).sum()).backward()
    wide = [t.detach().double().requires_grad_() for t in (q, k, v)]
    total = 0
    for a, b, c, d in zip(cu_q, cu_q[1:], cu_k, cu_k[1:]):
        expected, expected_lse = dense(wide[0][None, a:b], wide[1][None, c:d], wide[2][None, c:d], causal=True)
        torch.testing.assert_close(out[a:b].double(), expected[0], atol=2e-6, rtol=1e-5)
        torch.testing.assert_close(lse[:, a:b].double(), expected_lse[0], atol=2e-6, rtol=1e-5)
        total = total + expected.square().sum() + torch.where(expected_lse.isfinite(), expected_lse, 0.0).sum()
    total.backward()
    for got, expected in zip((q, k, v), wide):
        torch.testing.assert_close(got.grad.double(), expected.grad, atol=2e-5, rtol=1e-4)


def test_used_keys():
    q, k, v = (t.detach() for t in problem())
    out = flashtile.attention(q, k, v, seqused_k=torch.tensor([53, 11], dtype=torch.int32))
    expected, _ = dense(*(t[1:, :n].double() for t, n in ((q, 37), (k, 11), (v, 11))))
    torch.testing.assert_close(out[1:].double(), expected, atol=2e-6, rtol=1e-5)


def kept(q, k, p):
    """The dropout mask that the generator draws next. With the identity matrix as v, out is the probabilities; those
    that are not 0 were kept."""
    identity = torch.eye(k.shape[1])[None, :, None, :].expand(k.shape[0], -1, k.shape[2], -1)
    return flashtile.attention(q, k, identity, dropout_p=p).transpose(1, 2) != 0


def test_dropout_is_drawn_from_the_generator_and_replayed_in_backward():
    q, k, v = problem(seqlen_q=64, seqlen_k=96)
    torch.manual_seed(5)
    keep = kept(q.detach(), k.detach(), 0.3)
    assert abs(keep.double().mean() - 0.7) < 0.01  # 49152 draws: six standard deviations

    def ours(q, k, v):
        torch.manual_seed(5)
        return flashtile.attention(q, k, v, dropout_p=0.3, return_lse=True)

    check((q, k, v), ours, lambda q, k, v: dense(q, k, v, keep=keep, dropout_p=0.3))
    first, second = (flashtile.attention(q, k, v, dropout_p=0.3) for _ in range(2))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("options", [{"causal": True}, {"window": (30, 11)}, {"causal": True, "dropout_p": 0.4},
                                     {"alibi_slopes": torch.tensor([0.1, 0.0, 0.4, 0.2], device=DEVICE)}],
                         ids=lambda options: "+".join(options))
def test_shards_are_parts_of_the_whole(options):
    """Queries in two parts and keys in three, which nothing divides: forward merged, gradients added up."""
    q, k, v, dout = (torch.randn(2, 77, heads, 16, requires_grad=True) for heads in (4, 2, 2, 4))

    def run(*tensors, **more):
        torch.manual_seed(5)
        return flashtile.attention(*tensors, align="top-left", return_lse=True, **options, **more)

    whole, whole_lse = run(q, k, v)
    expected = torch.autograd.grad(whole, (q, k, v), dout)
    outs, lses = [], []
    for i, rows in ((0, 29), (29, 48)):
        parts = [run(q.narrow(1, i, rows), k.narrow(1, j, keys), v.narrow(1, j, keys), diagonal=i - j,
                     origin=(0, 0, i, j)) for j, keys in ((0, 13), (13, 47), (60, 17))]
        out, lse = flashtile.merge(*map(list, zip(*parts)))
        outs.append(out)
        lses.append(lse)
    out = torch.cat(outs, 1)
    torch.testing.assert_close(out, whole, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(torch.cat(lses, 2), whole_lse, atol=1e-5, rtol=1e-5)
    for got, want in zip(torch.autograd.grad(out, (q, k, v), dout), expected):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)


def masked_by(diagonals, rows, columns, left, right):
    """The mask (batch, 1, rows, columns) of windows whose diagonals start at columns - rows + those."""
    i, j = torch.arange(rows)[:, None], torch.arange(columns)
    center = i + columns - rows + diagonals[:, None, None]
    return ((j >= center - left) & (j <= center + right))[:, None]


def test_a_diagonal_for_each_sequence():
    diagonals = torch.tensor([-21, 8])
    mask = masked_by(diagonals, 37, 53, 9, 4)
    check(problem(), lambda q, k, v: flashtile.attention(q, k, v, window=(9, 4), diagonal=diagonals, return_lse=True),
          lambda q, k, v: dense(q, k, v, mask=mask))
    every_second = torch.tensor([-21, 0, 8, 0])[::2]  # which the library does not read where it lies
    q, k, v = problem()
    assert torch.equal(*(flashtile.attention(q, k, v, window=(9, 4), diagonal=each)
                         for each in (diagonals, every_second)))


def test_a_diagonal_for_each_packed_sequence():
    q, k, v = (torch.randn(50, heads, 16) for heads in (4, 2, 2))
    cu, diagonals = torch.tensor([0, 17, 50], dtype=torch.int32), torch.tensor([3, -5])
    out = flashtile.attention(q, k, v, causal=True, cu_seqlens_q=cu, cu_seqlens_k=cu, max_seqlen_q=33, max_seqlen_k=33,
                              diagonal=diagonals)
    for b, (start, end) in enumerate(((0, 17), (17, 50))):
        own = [t[None, start:end].double() for t in (q, k, v)]
        expected, _ = dense(*own, mask=masked_by(diagonals[b:b + 1], end - start, end - start, 1000, 0))
        torch.testing.assert_close(out[start:end].double(), expected[0], atol=2e-6, rtol=2e-5)


def test_a_diagonal_for_each_sequence_of_a_cache():
    q, cache_k, cache_v = torch.randn(2, 3, 4, 16), torch.randn(2, 90, 2, 16), torch.randn(2, 90, 2, 16)
    diagonals = torch.tensor([-40, 1])
    out = flashtile.attention(q, cache_k, cache_v, causal=True, cache_batch_idx=torch.tensor([0, 1]),
                              diagonal=diagonals)
    expected, _ = dense(q.double(), cache_k.double(), cache_v.double(), mask=masked_by(diagonals, 3, 90, 1000, 0))
    torch.testing.assert_close(out.double(), expected, atol=2e-6, rtol=2e-5)


@pytest.mark.parametrize("each", ("ij", "i", "j"))
def test_origins_of_each_sequence(each):
    """Sequences are parts of a whole's sequences, whose dropout is theirs."""
    whole_q, whole_k, _ = (t.detach() for t in problem(seqlen_q=60, seqlen_k=80))
    torch.manual_seed(5)
    keep = kept(whole_q, whole_k, 0.3)
    i, j = (torch.tensor(at) if axis in each else at[0] for axis, at in (("i", [3, 20]), ("j", [25, 0])))
    keep = torch.stack([keep[b, :, at_i:at_i + 37, at_j:at_j + 53]
                        for b, (at_i, at_j) in enumerate(zip((3, 20 if "i" in each else 3),
                                                             (25, 0 if "j" in each else 25)))])

    def ours(q, k, v):
        torch.manual_seed(5)
        return flashtile.attention(q, k, v, dropout_p=0.3, origin=(0, 0, i, j), return_lse=True)

    check(problem(), ours, lambda q, k, v: dense(q, k, v, keep=keep, dropout_p=0.3))


@pytest.mark.parametrize("options, kind, message", [
    ({"diagonal": torch.tensor([1, 2, 3], device=DEVICE)}, ValueError, r"diagonals.shape is \(3\), allowed is \(batch\) = \(2\)"),
    ({"diagonal": torch.tensor([1, 2], dtype=torch.int32, device=DEVICE)}, ValueError, "diagonals.dtype is int32, allowed is int64"),
    ({"diagonal": np.array([1, 2])}, TypeError, r"diagonal is array\(\[1, 2\]\), allowed is .* int64 \(batch\)"),
    ({"origin": (torch.tensor([1, 2]), 0, 0, 0)}, TypeError, "origin is .* of which i and j may be int64"),
    ({"origin": (0, 0, 1), "diagonal": torch.tensor([1, 2])}, TypeError, r"origin is \(0, 0, 1\), allowed is"),
    ({"origin": (0, 0, torch.tensor([0, -2], device=DEVICE), 0)}, ValueError, r"origins_i\[1\] is -2, allowed is 0 to"),
], ids=lambda value: None)
def test_a_shards_place_that_is_none(options, kind, message):
    if DEVICE == "cuda" and "-2" in message:
        pytest.skip("lengths on a GPU are not read")
    q, k, v = (t.detach() for t in problem())
    with pytest.raises(kind, match="^" + message):
        flashtile.attention(q, k, v, **options)


def test_autocast(device):
    q, k, v = problem()
    with torch.autocast(device.type, torch.bfloat16):
        out = flashtile.attention(q, k, v)
    assert out.dtype is torch.bfloat16
    expected = flashtile.attention(*(t.to(torch.bfloat16) for t in (q, k, v)))
    assert torch.equal(out, expected)
    out.sum().backward()
    assert q.grad.dtype is torch.float32


def test_deterministic_follows_pytorch():
    q, k, v = problem(seqlen_q=300, seqlen_k=300)
    torch.use_deterministic_algorithms(True)
    try:
        grads = [torch.autograd.grad(flashtile.attention(q, k, v).square().sum(), (q, k, v)) for _ in range(3)]
    finally:
        torch.use_deterministic_algorithms(False)
    for other in grads[1:]:
        assert all(torch.equal(a, b) for a, b in zip(grads[0], other))


def test_only_lse_is_used():
    q, k, v = problem()
    wide = [t.detach().double().requires_grad_() for t in (q, k)]
    flashtile.attention(q, k, v, return_lse=True)[1].sum().backward()
    dense(*wide, v.detach().double())[1].sum().backward()
    torch.testing.assert_close(q.grad.double(), wide[0].grad, atol=2e-6, rtol=1e-4)
    torch.testing.assert_close(k.grad.double(), wide[1].grad, atol=2e-6, rtol=1e-4)
    assert not v.grad.any()


def test_empty_batch():
    q, k, v = problem(batch=0)
    out = flashtile.attention(q, k, v)
    assert out.shape == (0, 37, 4, 16)
    out.sum().backward()
    assert q.grad.shape == q.shape


def test_gradients_of_gradients_are_refused():
    q, k, v = problem()
    (dq,) = torch.autograd.grad(flashtile.attention(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        dq.sum().backward()


def test_many_threads_at_once():
    from concurrent.futures import ThreadPoolExecutor
    problems = [tuple(t.detach() for t in problem(seqlen_q=n, seqlen_k=n)) for n in range(1, 41)]
    expected = [flashtile.attention(*p) for p in problems]
    with ThreadPoolExecutor(8) as pool:
        for got, wanted in zip(pool.map(lambda p: flashtile.attention(*p), problems * 3), expected * 3):
            assert torch.equal(got, wanted)


@pytest.mark.parametrize("error, message, change", [
    (ValueError, "q.shape is", lambda q, k, v: ((q, k[..., :3, :].repeat(1, 1, 2, 1)[:, :, :3], v), {})),
    (ValueError, "dropout_p is 1.0, allowed", lambda q, k, v: ((q, k, v), {"dropout_p": 1.0})),
    (ValueError, "softcap is -1, allowed", lambda q, k, v: ((q, k, v), {"softcap": -1.0})),
    (ValueError, "softcap is 1e-38, allowed", lambda q, k, v: ((q, k, v), {"softcap": 1e-38})),
    (ValueError, "softcap is 1e-50, allowed", lambda q, k, v: ((q, k, v), {"softcap": 1e-50})),
    (ValueError, r"window is \(-2, 0\), allowed", lambda q, k, v: ((q, k, v), {"window": (-2, 0)})),
    (ValueError, "align is 'left', allowed", lambda q, k, v: ((q, k, v), {"align": "left"})),
    (ValueError, "k.dtype is bf16, allowed is fp32", lambda q, k, v: ((q, k.bfloat16(), v), {})),
    (ValueError, "max_seqlen_q is -1, allowed", lambda q, k, v: ((q[0], k[0], v[0]), {
        "cu_seqlens_q": torch.tensor([0, 37]), "cu_seqlens_k": torch.tensor([0, 53])})),
    (ValueError, "bias.shape is", lambda q, k, v: ((q, k, v), {"bias": torch.zeros(3, 3)})),
    (ValueError, "bias.dtype is bool, allowed is fp32$", lambda q, k, v: ((q, k, v), {
        "bias": torch.zeros(53, dtype=torch.bool)})),
    (ValueError, "max_seqlen_k is 53, allowed is -1", lambda q, k, v: ((q, k, v), {"max_seqlen_k": 53})),
    (TypeError, "q.dtype is torch.float64, allowed is torch.float32, torch.float16 or torch.bfloat16",
     lambda q, k, v: ((q.double(), k.double(), v.double()), {})),
    (TypeError, "lies on meta", lambda q, k, v: ((q, k.to("meta"), v), {})),
    (TypeError, "k is a NoneType, allowed is a torch.Tensor", lambda q, k, v: ((q, None, v), {})),
    (TypeError, "mask is a bool, allowed is a torch.Tensor", lambda q, k, v: ((q, k, v), {"mask": True})),
], ids=lambda value: value if isinstance(value, str) else "")
def test_errors_are_the_librarys(error, message, change):
    arguments, options = change(*(t.detach() for t in problem()))
    with pytest.raises(error, match=message):
        flashtile.attention(*arguments, **options)
    with pytest.raises(RuntimeError if error is ValueError and "align" not in message else error):
        flashtile.attention(*arguments, **options)  # flash-attn's callers catch RuntimeError


@pytest.mark.parametrize("name, value, allowed", [
    *[("window", value, r"\(left, right\), whole numbers from -1 \(open\)")
      for value in (5, None, "ab", (1,), (1, 2, 3), (0.5, 0), (2**70, 0), (-2, 0))],
    *[("scale", value, "None or a finite number") for value in ("a", [1], 1j, 1e300)],
    *[("softcap", value, r"0 \(off\) or a positive number") for value in ("a", None, [1])],
    *[("dropout_p", value, r"a probability in \[0, 1\)") for value in ("a", None, [1], 1.5, -0.5)],
    *[("align", value, "'bottom-right', 'top-left'") for value in (5, None, [1], "left")],
    *[("max_seqlen_q", value, "None or a whole number") for value in ("a", 2.5, [1])],
    *[("max_seqlen_k", value, "None or a whole number") for value in ("a", 2.5, [1])],
    *[(flag, value, "True or False")
      for flag in ("causal", "return_lse", "deterministic", "batch_invariant", "exact_max")
      for value in ("no", None, [], 2, 1.0)],
], ids=str)
@pytest.mark.parametrize("recorded", [False, True], ids=["", "recorded"])
def test_an_option_of_a_wrong_type_or_size_is_named(name, value, allowed, recorded):
    q, k, v = (t if recorded else t.detach() for t in problem())
    message = f"^{name} is {re.escape(repr(value))}, allowed (is|are) {allowed}"
    with pytest.raises((TypeError, ValueError), match=message):
        flashtile.attention(q, k, v, **{name: value})


@pytest.mark.parametrize("name, value", [("scale", "a"), ("dropout_p", "a")])
def test_an_option_of_another_way_in_is_named(name, value):
    q, k, v = (t.detach().transpose(1, 2) for t in problem(kv_heads=4))
    with pytest.raises(TypeError, match=f"^{name} is 'a', allowed is"):
        flashtile.scaled_dot_product_attention(q, k, v, **{name: value})


def test_options_that_are_as_good_as_theirs():
    q, k, v = (t.detach() for t in problem())
    expected = flashtile.attention(q, k, v, causal=True, window=(9, -1), scale=0.5)
    for causal in (1, np.True_, torch.tensor(True)):
        assert torch.equal(flashtile.attention(q, k, v, causal=causal, window=[9, -1], scale=np.float32(0.5)), expected)
