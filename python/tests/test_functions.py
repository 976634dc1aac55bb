"""Score and mask functions, as texts and as functions of Python's, against dense attention in fp64 that evaluates the
Python function itself, forward and backward."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import flashtile
from conftest import DEVICE
from function_cases import BATCH, CASES, D, DOCUMENTS, HEADS, KEYS, KV_HEADS, ROWS, SLOPES, TABLE, check, dense
from function_cases import gradients, problem

CPU_ONLY = pytest.mark.skipif(DEVICE != "cpu", reason="NumPy's arrays are on the CPU")


@pytest.mark.parametrize("how", ["text", "traced"])
@pytest.mark.parametrize("name", CASES)
def test_functions(name, how):
    score, mask, score_text, mask_text, tensors = CASES[name]
    given = dict(score=score, mask=mask) if how == "traced" else dict(score=score_text, mask=mask_text, tensors=tensors)
    check(problem(), lambda q, k, v: flashtile.attention(q, k, v, return_lse=True, **given),
          lambda q, k, v: dense(q, k, v, score, mask))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_narrow_dtypes(dtype):
    score, mask, *_ = CASES["both"]
    check(problem(dtype), lambda q, k, v: flashtile.attention(q, k, v, score=score, mask=mask, return_lse=True),
          lambda q, k, v: dense(q, k, v, score, mask))


def test_beside_other_options():
    """The score function is given what softcap and bias have made of a score; causal, dropout and sinks follow."""
    score, mask, *_ = CASES["both"]
    q, k, v = problem()
    bias, sinks = torch.randn(HEADS, ROWS, KEYS), torch.randn(HEADS)
    options = dict(causal=True, softcap=2.0)
    identity = torch.eye(KEYS)[None, :, None].expand(BATCH, -1, KV_HEADS, -1)
    torch.manual_seed(5)
    keep = flashtile.attention(q * 0, k, identity, dropout_p=0.3).transpose(1, 2) != 0

    def ours(q, k, v, bias, sinks):
        torch.manual_seed(5)
        return flashtile.attention(q, k, v, score=score, mask=mask, bias=bias, sinks=sinks, dropout_p=0.3,
                                   return_lse=True, **options)

    def reference(q, k, v, bias, sinks):
        return dense(q, k, v, score, mask, bias=bias, sinks=sinks, keep=keep, dropout_p=0.3, **options)

    check((q, k, v, bias, sinks), ours, reference, ("q", "k", "v", "bias", "sinks"))


@pytest.mark.parametrize("name", ["both", "prefix"])
def test_packed(name):
    """Positions are the sequence's own, and b is the sequence."""
    score, mask, *_ = CASES[name]
    lengths = (20, 0, 29)
    starts = [0, 20, 20, 49]
    cu = torch.tensor(starts, dtype=torch.int32)
    q, k, v = (torch.randn(51, h, D, requires_grad=True) for h in (HEADS, KV_HEADS, KV_HEADS))  # 2 rows of nobody
    # The sequences 0 and 1 of the cases' tensors are 0 and 2 here.
    def shifted(function):
        return function and (lambda *of: function(*of[:-4], of[-4] // 2, *of[-3:]))

    out, lse = flashtile.attention(q, k, v, score=shifted(score), mask=shifted(mask), causal=name == "both",
                                   cu_seqlens_q=cu, cu_seqlens_k=cu, max_seqlen_q=max(lengths),
                                   max_seqlen_k=max(lengths), return_lse=True)
    assert not out[49:].any()
    out.square().sum().backward()
    wide = [t.detach().double().requires_grad_() for t in (q, k, v)]
    for b in (0, 2):
        rows = slice(starts[b], starts[b + 1])
        expected, expected_lse = dense(*(t[None, rows] for t in wide), score, mask, causal=name == "both",
                                       first=(b // 2, 0))
        torch.testing.assert_close(out[rows].double(), expected[0], atol=2e-6, rtol=1e-5)
        torch.testing.assert_close(lse[:, rows].double(), expected_lse[0], atol=2e-6, rtol=1e-5)
        expected.square().sum().backward()
    for got, expected in zip((q, k, v), wide):
        torch.testing.assert_close(got.grad.double(), expected.grad, atol=2e-5, rtol=1e-4)


def test_on_a_cache():
    """Without a gradient: keys in rows of a cache, a query the last of its sequence."""
    q, k, v = problem()
    q, used = q[:, :1], torch.tensor([30, 53], dtype=torch.int32)
    text = "s - slopes[h] * abs(n[b] - 1 - j)"
    rows = torch.tensor([1, 0], dtype=torch.int32)
    out, lse = flashtile.attention(q, k, v, cache_batch_idx=rows, seqused_k=used, score=text, mask="j % 2 == 0",
                                   tensors={"slopes": SLOPES, "n": used}, return_lse=True)
    for b, n in enumerate(used.tolist()):
        expected, expected_lse = dense(
            *(t[None, at].double() for t, at in ((q, b), (k[:, :n], 1 - b), (v[:, :n], 1 - b))),
            lambda s, b, h, i, j: s - SLOPES[h] * (n - 1 - j).abs(), lambda b, h, i, j: j % 2 == 0)  # noqa: B023
        torch.testing.assert_close(out[b].double(), expected[0], atol=2e-6, rtol=1e-5)
        torch.testing.assert_close(lse[b].double(), expected_lse[0], atol=2e-6, rtol=1e-5)


def test_shards():
    """A shard's positions are the whole's."""
    score, mask, *_ = CASES["both"]
    q, k, v = problem()
    expected, expected_lse = flashtile.attention(q, k, v, score=score, mask=mask, return_lse=True)
    parts = [flashtile.attention(q[1:, 9:], k[1:, j:j + n], v[1:, j:j + n], score=score, mask=mask,
                                 origin=(1, 0, 9, j), return_lse=True) for j, n in ((0, 20), (20, 33))]
    out, lse = flashtile.merge(*map(list, zip(*parts)))
    torch.testing.assert_close(out, expected[1:, 9:], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(lse, expected_lse[1:, :, 9:], atol=1e-6, rtol=1e-5)


def test_closures_are_read_at_each_call():
    q, k, v = problem()
    factor, shift = 2.0, torch.ones(HEADS)

    def score(s, b, h, i, j):
        return s * factor + shift[h] * j

    for factor in (2.0, 3.0):
        shift += 0.5
        expected = flashtile.attention(q, k, v, score=f"s * {factor} + x[h] * j", tensors={"x": shift})
        assert torch.equal(flashtile.attention(q, k, v, score=score), expected)


def test_what_changes_nothing_is_none():
    q, k, v = problem()
    expected = flashtile.attention(q, k, v)
    out = flashtile.attention(q, k, v, score=lambda s, b, h, i, j: s, mask=lambda b, h, i, j: True)
    assert torch.equal(out, expected)


def test_callables_of_any_kind():
    class Scale:
        def __init__(self, by):
            self.by = by

        def __call__(self, s, b, h, i, j):
            return s * self.by

        def method(self, s, b, h, i, j):
            return s * self.by

    q, k, v = problem()
    expected = flashtile.attention(q, k, v, score="s * 3")
    for score in (Scale(3), Scale(3).method, torch.nn.Module.__call__.__get__(_Module())):
        assert torch.equal(flashtile.attention(q, k, v, score=score), expected)


class _Module(torch.nn.Module):
    def forward(self, s, b, h, i, j):
        return s * 3


NO = NotImplementedError
WRONG_SCORES = [
    (lambda s, b, h, i, j: torch.sin(s), NO, r"^score calls aten.sin.default; allowed are abs, add, "),
    (lambda s, b, h, i, j: s + TABLE[h].sum(), NO, "^score calls aten.sum.default; allowed are"),
    (lambda s, b, h, i, j: s + TABLE[h, :2].sum(), NO, "^score branches on a value, or .* slices by it"),
    (lambda s, b, h, i, j: s if i > j else -s, NO, "^score branches on a value, .* allowed are torch.where, &"),
    (lambda s, b, h, i, j: s + TABLE[h], NO, r"^score computes with a tensor of shape \(17,\); allowed are single"),
    (lambda s, b, h, i, j: s + TABLE, NO, r"^score computes with a tensor of shape \(4, 17\); allowed are single"),
    (lambda s, b, h, i, j: s + TABLE[h, 17], IndexError, "^score has the index 17 for a dimension of size 17"),
    (lambda s, b, h, i, j: s + TABLE[h, i, j], IndexError, "^score gives a tensor more indices"),
    (lambda s, b, h, i, j: s + TABLE[h, s], NO, "^score has a float as an index; allowed is an int"),
    (lambda s, b, h, i, j: s % 2, NO, "^score calls remainder of torch.float32; allowed are ints"),
    (lambda s, b, h, i, j: s ** s, NO, "^score calls pow of two tensors"),
    (lambda s, b, h, i, j: s ** 0.3, NO, "^score calls pow with the exponent 0.3"),
    (lambda s, b, h, i, j: s.detach(), NO, "^score detaches a value"),
    (lambda s, b, h, i, j: i.mul_(0.5), NO, "^score writes torch.float32 to torch.int64"),
    (lambda s, b, h, i, j: TABLE[0, 0].add_(s), NO, "^score calls aten.add_.Tensor; allowed is what makes a"),
    (lambda s, b, h, i, j: s > 0, NO, "^score gives a bool; allowed is a float"),
    (lambda s, b, h, i, j: s + TABLE.to(torch.uint8)[h, 0], TypeError, "^a tensor .* that score reads is torch.uint8"),
    (lambda s, b, h, i, j: s.to(torch.uint8), NO, "^score converts to torch.uint8"),
    (lambda s, b, h: s, TypeError, "positional arguments"),
    ("s + ", ValueError, "^score_function is wrong at character 5, its end: a value was expected"),
    ("s + x", ValueError, "^score_function is wrong at character 5, 'x': 'x' is not known; known are s, b"),
    (3, TypeError, "^score is a int, allowed is None, a text or a function"),
]
WRONG_MASKS = [
    (lambda b, h, i, j: i - j, NO, "^mask gives a int; allowed is a bool"),
    (lambda b, h, i, j: None, NO, "^mask computes with a NoneType"),
    ("i - j", ValueError, "^mask_function is wrong at character 1, .* a mask function gives a bool, not an int"),
    ("i \0", ValueError, "^mask_function is wrong at character 3.* no part of the language"),
    ("i ≥ j", ValueError, "^mask_function is wrong at character 3.* no part of the language"),
    (np.ones(3), TypeError, "^mask is a ndarray, allowed is a torch.Tensor, a text or a function"),
]
WRONG_TENSORS = [
    ({"x y": SLOPES}, ValueError, r"^function_tensors\[0\].name is 'x y', allowed is letters"),
    ({f"x{n}": SLOPES for n in range(9)}, ValueError, "^function_tensor_count is 9, allowed is 0 to 8"),
    ({"x": torch.tensor(1.0, device=DEVICE)}, ValueError, "^x.rank is 0, allowed is 1 to 4"),
    ({"x": SLOPES.double()}, TypeError, "^x.dtype is torch.float64, allowed is"),
    ({"x": 3}, TypeError, r"^tensors\['x'\] is a int, allowed is a torch.Tensor"),
    ({1: SLOPES}, TypeError, "^tensors is .*, allowed is a dict of names and tensors"),
    ([SLOPES], TypeError, "^tensors is .*, allowed is a dict of names and tensors"),
]


@pytest.mark.parametrize("given, kind, message", [
    *(({"score": score}, kind, message) for score, kind, message in WRONG_SCORES),
    *(({"mask": mask}, kind, message) for mask, kind, message in WRONG_MASKS),
    *(({"score": "s", "tensors": tensors}, kind, message) for tensors, kind, message in WRONG_TENSORS),
    ({"tensors": {"x": SLOPES}}, ValueError, "^function_tensors is given without a function"),
], ids=lambda of: of if isinstance(of, str) else "")
def test_errors(given, kind, message):
    with pytest.raises(kind, match=message):
        flashtile.attention(*problem(), **given)


def assert_same_sums(got, expected):
    """The CPU adds gradients of tensors up in one order, a GPU in any."""
    if DEVICE == "cpu":
        assert torch.equal(got, expected)
    else:
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6 * expected.abs().max().item())


def of_t5(s, b, h, i, j, table):
    """T5's: a learned bias by the distance, up to 8 either way."""
    return s + table[h, (j - i).clamp(-8, 8) + 8]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["table", "several"])
def test_gradients_of_captured_tensors(name, dtype):
    table, slopes = TABLE.clone(), SLOPES.clone()
    score, tensors = {
        "table": (lambda s, b, h, i, j, t: of_t5(s, b, h, i, j, t), [table.to(dtype)]),
        "several": (lambda s, b, h, i, j, t, x: s * t[h, i % 17] + torch.exp(0.3 * t[h, j % 17]) * x[h] - (x * 2)[b],
                    [table, slopes]),
    }[name]

    def of(attend):
        return lambda q, k, v, *tensors: attend(q, k, v, score=lambda *at: score(*at, *tensors),
                                                mask=lambda b, h, i, j: i + 20 >= j)

    check([*problem(dtype), *tensors], of(lambda *given, **options: flashtile.attention(*given, return_lse=True,
                                                                                        **options)),
          of(dense), names=("q", "k", "v", *range(len(tensors))), of_row_sums=2.0 if name == "several" else 0.0)


def test_t5s_table_against_pytorch():
    """The buckets of the model itself, and the gradient that PyTorch's attention and embedding give their table."""
    bucket_of = pytest.importorskip("transformers.models.t5.modeling_t5").T5Attention._relative_position_bucket
    length = 150  # past 128, from where on all distances are of the last bucket
    q, k, v = (torch.randn(BATCH, length, h, D) for h in (HEADS, KV_HEADS, KV_HEADS))
    buckets = bucket_of(torch.arange(1 - length, length))

    def ours(q, k, v, table):
        return flashtile.attention(q, k, v, score=lambda s, b, h, i, j: s + table[buckets[j - i + length - 1], h],
                                   scale=1.0, return_lse=True)

    def pytorch(q, k, v, table):
        at = torch.arange(length)
        bias = torch.nn.functional.embedding(bucket_of(at - at[:, None]), table).permute(2, 0, 1).unsqueeze(0)
        q, k, v = (t.transpose(1, 2).repeat_interleave(HEADS // t.shape[2], 1) for t in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)
        return out.transpose(1, 2), (q @ k.mT + bias).logsumexp(-1)

    check([q, k, v, torch.randn(32, HEADS)], ours, pytorch, names=("q", "k", "v", "table"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_gradients_of_single_numbers(dtype):
    """Of a number that a function captures, as of a named tensor's only element."""
    q, k, v = problem()
    weight = torch.tensor(0.7, dtype=dtype, requires_grad=True)
    named = weight.detach().reshape(1).to(dtype if dtype is torch.float16 else torch.float32).requires_grad_()
    got, = torch.autograd.grad(flashtile.attention(q, k, v, score=lambda s, b, h, i, j: (s * weight).tanh()).sum(),
                               weight)
    expected, = torch.autograd.grad(flashtile.attention(q, k, v, score="tanh(s * w[0])", tensors={"w": named}).sum(),
                                    named)
    assert got.dtype is dtype and got.shape == ()
    assert_same_sums(got.to(expected.dtype), expected[0])


def test_tensors_that_are_not_read_have_no_gradient():
    q, k, v = (t.requires_grad_() for t in problem())
    table, slopes = TABLE.clone().requires_grad_(), SLOPES.clone().requires_grad_()
    out = flashtile.attention(q, k, v, score=lambda s, b, h, i, j: s + table.detach()[h, 3])
    assert torch.autograd.grad(out.sum(), [table, slopes], allow_unused=True) == (None, None)
    with pytest.raises(NotImplementedError, match="detaches a value that has a gradient"):
        flashtile.attention(q, k, v, score=lambda s, b, h, i, j: s + table[h, 3].detach())
    with pytest.raises(NotImplementedError, match="detaches a value that has a gradient"):
        flashtile.attention(q, k, v, score=lambda s, b, h, i, j: s + table[h].detach()[3])

    @torch.no_grad()
    def score(s, b, h, i, j):
        return s + table[h, 3]

    with pytest.raises(NotImplementedError, match="score computes under torch.no_grad"):
        flashtile.attention(q, k, v, score=score)


def test_gradients_of_named_tensors():
    """Of texts' tensors, with the operator as without it, and where q, k and v need none."""
    q, k, v = problem()
    table = TABLE.clone().requires_grad_()

    def attend(table):
        return flashtile.attention(q, k, v, score="s + x[h, min(max(j - i, -8), 8) + 8] * y[h]",
                                   tensors={"x": table, "y": SLOPES})

    expected, = torch.autograd.grad(attend(table).square().sum(), table)
    wide = table.detach().double().requires_grad_()
    out, _ = dense(*(t.double() for t in (q, k, v)),
                   score=lambda s, b, h, i, j: s + wide[h, (j - i).clamp(-8, 8) + 8] * SLOPES.double()[h])
    reference, = torch.autograd.grad(out.square().sum(), wide)
    torch.testing.assert_close(expected, reference.float(), rtol=1e-4, atol=1e-4 * reference.abs().max().item())
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    assert_same_sums(torch.autograd.grad(compiled(table).square().sum(), table)[0], expected)


def test_gradients_of_gradients_and_transforms_are_refused():
    q, k, v = (t.requires_grad_() for t in problem())
    out = flashtile.attention(q, k, v, mask="i >= j")
    with pytest.raises((NotImplementedError, RuntimeError)):
        (dq,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
        torch.autograd.grad(dq.sum(), q)
    with pytest.raises(NotImplementedError, match="torch.func's transforms"):
        torch.func.grad(lambda q: flashtile.attention(q, k, v, mask="i >= j").sum())(q)


def test_autocast():
    q, k, v = problem()
    with torch.autocast(DEVICE, torch.bfloat16):
        out = flashtile.attention(q, k, v, mask="i >= j")
    assert torch.equal(out, flashtile.attention(*(t.bfloat16() for t in (q, k, v)), mask="i >= j"))


def test_an_import_of_dynamo_is_spared():
    """It takes a second."""
    program = ("import sys, torch, flashtile; q = torch.ones(1, 2, 1, 4); "
               "flashtile.attention(q, q, q, score=lambda s, b, h, i, j: s + i, mask=lambda b, h, i, j: i >= j); "
               "assert 'torch._dynamo' not in sys.modules")
    subprocess.run([sys.executable, "-c", program], check=True)


@CPU_ONLY
def test_numpy():
    q, k, v = (t.requires_grad_() for t in problem())
    given = dict(score="s - slopes[h] * abs(i - j)", mask="d[b, i] == d[b, j]")
    tensors = {"slopes": SLOPES.clone().requires_grad_(), "d": DOCUMENTS}
    expected = flashtile.attention(q, k, v, tensors=tensors, return_lse=True, **given)
    arrays = [t.detach().numpy() for t in (q, k, v)]
    given["tensors"] = {name: tensor.detach().numpy() for name, tensor in tensors.items()}
    out, lse = flashtile.numpy.attention(*arrays, return_lse=True, **given)
    assert np.array_equal(out, expected[0].detach()) and np.array_equal(lse, expected[1].detach())
    dout = np.ones_like(out)
    grads = torch.autograd.grad(expected[0], (q, k, v, tensors["slopes"]), torch.from_numpy(dout))
    ours = flashtile.numpy.attention_backward(dout, *arrays, out, lse, return_dtensors=["slopes"], **given)
    for got, wanted in zip(ours, grads, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-6, rtol=1e-5)
    with pytest.raises(ValueError, match="^return_dtensors has 'x', allowed are names of tensors: slopes, d"):
        flashtile.numpy.attention_backward(dout, *arrays, out, lse, return_dtensors=["x"], **given)
    for changes, kind, message in (
            ({"score": abs}, TypeError, "^score is a builtin_function_or_method, allowed is None or a text"),
            ({"score": "s +"}, ValueError, "^score_function is wrong"), ({"tensors": 3}, TypeError, "^tensors is 3"),
            ({"tensors": {"slopes": np.ones(4)}}, TypeError, "^tensors.slopes.dtype is float64, allowed is float32, ")):
        with pytest.raises(kind, match=message):
            flashtile.numpy.attention(*arrays, **{**given, **changes})


# PyTorch's compilers.


@pytest.fixture
def fresh_compiler():
    torch._dynamo.reset()


def of_texts(q, k, v, slopes):
    return flashtile.attention(q * 2, k, v.sin(), score="s - x[h] * abs(i - j)", mask="i >= j",
                               tensors={"x": slopes}).relu()


def of_functions(q, k, v, slopes):
    return flashtile.attention(q * 2, k, v.sin(), score=lambda s, b, h, i, j: s - slopes[h] * (i - j).abs(),
                               mask=lambda b, h, i, j: i >= j).relu()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("function, whole", [(of_texts, True), (of_functions, False)])
def test_compile(function, whole):
    inputs = [*(t.requires_grad_() for t in problem()), SLOPES]
    compiled = torch.compile(function, fullgraph=whole, backend="aot_eager")
    for got, expected in zip(gradients(compiled, inputs), gradients(of_texts, inputs), strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.usefixtures("fresh_compiler")
def test_export():
    class Block(torch.nn.Module):
        def forward(self, q, k, v, slopes):
            return of_texts(q, k, v, slopes)

    inputs = (*problem(), SLOPES)
    program = torch.export.export(Block(), inputs)
    assert any(node.target is torch.ops.flashtile.forward_with_functions.default for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(*inputs), of_texts(*inputs))


@pytest.mark.parametrize("layout", ["heads first", "packed"])
def test_opcheck(layout):
    from flashtile._options import CallOptions
    from flashtile._structs import ONE_FOR_ALL
    from flashtile._with_functions import backward_op, forward_op

    cu = None
    q, k, v = problem()
    if layout == "heads first":
        q, k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v))
    if layout == "packed":
        cu = torch.tensor([0, 20, 37], dtype=torch.int32)
        q, k, v = q[0], k[0, :37].contiguous(), v[0, :37].contiguous()
    longest = -1 if cu is None else 20
    options = CallOptions(max_seqlen_q=longest, max_seqlen_k=longest)
    lists = torch.ones(1, 1, 1, dtype=torch.int32), torch.zeros(1, 1, 1, 1, dtype=torch.int32)
    rest = (None, None, None, cu, cu, None, None, *ONE_FOR_ALL, *options,
            "s - x[h] * abs(i - j)", "i >= j", ["x"], [64, 64], [SLOPES, *lists], None)
    torch.library.opcheck(forward_op, (*(t.requires_grad_() for t in (q, k, v)), *rest))
    plain = [t.detach() for t in (q, k, v)]
    out, lse = forward_op(*plain, *rest)
    torch.library.opcheck(backward_op, (*plain, *rest, out, lse, torch.randn_like(out), torch.randn_like(lse), False,
                                        False, ["x"]))
