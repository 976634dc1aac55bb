"""`with flashtile.sdpa():` makes no call fail that would not fail without it, does not hide calls from tensor
subclasses, modes and tracers, and may be entered from anywhere."""

import threading

import needs
import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

import flashtile
from flashtile import _sdpa_context
from flashtile._sdpa_conditions import why_not

BUILTIN = F.scaled_dot_product_attention


def three(q=(2, 3, 5, 8), k=(2, 3, 7, 8), v=None, dtype=torch.float32):
    return tuple(torch.randn(shape).to(dtype) for shape in (q, k, v or k))


def attend(*args, **options):
    return F.scaled_dot_product_attention(*args, **options)


@pytest.fixture
def ours(monkeypatch):
    """How often flashtile ran."""
    from flashtile import _sdpa
    count, attend = [], _sdpa.attend
    monkeypatch.setattr(_sdpa, "attend", lambda *a: (result := attend(*a), count.append(1))[0])
    return count


# Calls that PyTorch does: what makes the tensors, options, whether flashtile can do it.
CALLS = {
    "plain": (three, {}, True),
    "fp64": (lambda: three(dtype=torch.float64), {}, False),
    "head_dim 600": (lambda: three((1, 2, 5, 600), (1, 2, 5, 600)), {}, False),
    "head_dim_v 600": (lambda: three(v=(2, 3, 7, 600)), {}, False),
    "q broadcasts": (lambda: three((1, 3, 5, 8)), {}, True),
    "q broadcasts before k": (lambda: three((1, 2, 3, 5, 8), (4, 1, 3, 7, 8)), {}, True),
    "q's heads broadcast": (lambda: three((2, 1, 5, 8)), {}, False),
    "k's heads broadcast": (lambda: three(k=(2, 1, 7, 8)), {}, True),
    "k's batch broadcasts": (lambda: three(k=(1, 3, 7, 8)), {}, True),
    "v broadcasts": (lambda: three(v=(1, 3, 7, 8)), {}, True),
    "v's heads broadcast": (lambda: three(v=(2, 1, 7, 8)), {}, False),
    "2 dimensions": (lambda: three((5, 8), (7, 8)), {}, True),
    "2 and 3 dimensions": (lambda: three((5, 8), (1, 7, 8)), {}, True),
    "3 and 4 dimensions": (lambda: three((3, 5, 8), (2, 3, 7, 8)), {}, True),
    "4 and 3 dimensions": (lambda: three((2, 3, 5, 8), (3, 7, 8)), {}, True),
    "enable_gqa": (lambda: three((2, 6, 5, 8)), {"enable_gqa": True}, True),
    "mask": (three, {"attn_mask": lambda: torch.randn(5, 7)}, True),
    "mask of rows": (three, {"attn_mask": lambda: torch.randn(2, 1, 5, 1)}, True),
    "mask and is_causal": (three, {"attn_mask": lambda: torch.randn(5, 7), "is_causal": True}, False),
    "scale is infinite": (lambda: three(), {"scale": float("inf")}, False),
    "no keys": (lambda: three(k=(2, 3, 0, 8)), {}, True),
    "no queries": (lambda: three((2, 3, 0, 8)), {}, True),
}


def made(call):
    """A call with tensors that are made here, by the test, which knows the device."""
    make, options, *can = call
    return make(), {name: value() if callable(value) else value for name, value in options.items()}, *can


def alike(got, expected):
    assert got.shape == expected.shape and got.dtype is expected.dtype
    torch.testing.assert_close(got, expected, atol=3e-5, rtol=1e-4, equal_nan=True)


def unlike_2_4(name):
    """Calls that PyTorch 2.4 does not do, or not right."""
    reason = {"enable_gqa": "does not have it", "mask of rows": "reads such a mask past its end"}.get(name)
    return pytest.param(name, marks=[needs.pytorch("2.5", reason)] if reason else [])


@pytest.mark.parametrize("name", map(unlike_2_4, CALLS))
def test_what_pytorch_does_works(name, ours):
    tensors, options, can = made(CALLS[name])
    try:
        expected = attend(*tensors, **options)
    except RuntimeError as refusal:
        pytest.skip(f"this PyTorch does not do it on this device: {refusal}")
    with flashtile.sdpa():
        got = attend(*tensors, **options)
    alike(got, expected)
    assert bool(ours) is can
    # A compiler asks for the reason before the call, a plain call is told afterwards: one rule in two places.
    reason = why_not(*tensors, **{"attn_mask": None, "dropout_p": 0.0, "is_causal": False, "scale": None,
                                  "enable_gqa": False, **options})
    assert (reason is None) is can, reason


@pytest.mark.parametrize("name", ["plain", "fp64", "head_dim 600", "q broadcasts", "q's heads broadcast", "mask",
                                  "mask and is_causal", "3 and 4 dimensions"])
def test_what_pytorch_does_works_compiled(name):
    tensors, options, can = made(CALLS[name])
    tensors = [t.requires_grad_() for t in tensors]
    expected = attend(*tensors, **options)
    torch._dynamo.reset()
    graphs = []
    compiled = torch.compile(attend, fullgraph=True, backend=lambda graph, _: (graphs.append(graph), graph)[1])
    with flashtile.sdpa():
        got = compiled(*tensors, **options)
    alike(got, expected)
    alike(torch.autograd.grad(got.sum(), tensors[0])[0], torch.autograd.grad(expected.sum(), tensors[0])[0])
    (graph,) = graphs
    assert any("flashtile" in str(node.target) for node in graph.graph.nodes) is can


REFUSED = {
    "1 dimension": (lambda: three((8,), (8,)), {}),
    "several dtypes": (lambda: (*three()[:2], torch.randn(2, 3, 7, 8).half()), {}),
    "several head_dims": (lambda: three(k=(2, 3, 7, 16)), {}),
    "heads": (lambda: three((2, 4, 5, 8), (2, 2, 7, 8)), {}),
    "heads of enable_gqa": (lambda: three((2, 5, 5, 8), (2, 2, 7, 8)), {"enable_gqa": True}),
    "batches": (lambda: three((2, 3, 5, 8), (4, 3, 7, 8)), {}),
    "mask": (three, {"attn_mask": lambda: torch.randn(6, 7)}),
    "mask of more dimensions": (lambda: three((3, 5, 8), (3, 7, 8)), {"attn_mask": lambda: torch.randn(2, 3, 5, 7)}),
    "mask's dtype": (three, {"attn_mask": lambda: torch.ones(5, 7, dtype=torch.int32)}),
    "dropout": (three, {"dropout_p": 1.5}),
    "no tensor": (lambda: (5, *three()[1:]), {}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_refuses_raises_as_there(name):
    tensors, options = made(REFUSED[name])
    try:
        attend(*tensors, **options)
    except Exception as refusal:
        expected = refusal
    else:
        pytest.skip("this PyTorch does it on this device")
    with pytest.raises(type(expected)) as got, flashtile.sdpa():
        attend(*tensors, **options)
    assert got.type is type(expected) and str(got.value) == str(expected)
    if not isinstance(tensors[0], int):
        assert why_not(*tensors, **{"attn_mask": None, "dropout_p": 0.0, "is_causal": False, "scale": None,
                                    "enable_gqa": False, **options}) is not None


def test_nested_tensors():
    rows = [torch.randn(3, 2, 8), torch.randn(4, 2, 8)]
    strided = torch.nested.nested_tensor([t.transpose(0, 1) for t in rows])
    jagged = torch.nested.nested_tensor(rows, layout=torch.jagged).transpose(1, 2)
    for nested in (strided, jagged):
        expected = attend(nested, nested, nested)
        with flashtile.sdpa():
            got = attend(nested, nested, nested)
        for a, b in zip(got.unbind(), expected.unbind()):
            torch.testing.assert_close(a, b)


def test_meta():
    tensors = [t.to("meta") for t in three()]
    with flashtile.sdpa():
        out = attend(*tensors)
    assert out.is_meta and out.shape == (2, 3, 5, 8)


class Wrapper(torch.Tensor):
    """A subclass that, like DTensor, handles operators and no functions."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    seen = []

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(str(func))
        return func(*(a.inner if isinstance(a, Wrapper) else a for a in args), **(kwargs or {}))


def test_subclasses_that_see_operators_see_pytorchs():
    Wrapper.seen.clear()
    q, k, v = three()
    with flashtile.sdpa():
        attend(*map(Wrapper, (q, k, v)))
    assert Wrapper.seen and not any("flashtile" in name for name in Wrapper.seen)


class Named(torch.Tensor):
    """A subclass that has a scaled_dot_product_attention of its own."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is BUILTIN:
            return "its own"
        return super().__torch_function__(func, types, args, kwargs)


def test_subclasses_are_asked():
    q, k, v = three()
    with flashtile.sdpa():
        assert attend(q.as_subclass(Named), k, v) == "its own"
        assert attend(q, k, v, attn_mask=torch.randn(5, 7).as_subclass(Named)) == "its own"

        class Plain(torch.Tensor):
            pass

        assert type(attend(q.as_subclass(Plain), k, v)) is Plain


def test_modes_are_asked(ours):
    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return "its own" if func is BUILTIN else func(*args, **(kwargs or {}))

    q, k, v = three()
    with flashtile.sdpa():
        with Mode():
            assert attend(q, k, v) == "its own"
        assert not ours
        with torch.device("cpu"):  # a mode of PyTorch's that attention is nothing to
            attend(q, k, v)
        assert ours


@pytest.mark.parametrize("rows, columns", [(5, 7), (7, 5), (6, 6)])
@pytest.mark.filterwarnings("ignore:Lower right causal bias")
def test_causal_biases(rows, columns, ours):
    from torch.nn.attention.bias import causal_lower_right, causal_upper_left
    q, k, v = three((2, 3, rows, 8), (2, 3, columns, 8))
    for bias, shift in ((causal_upper_left(rows, columns), 0), (causal_lower_right(rows, columns), columns - rows)):
        mask = torch.ones(rows, columns, dtype=torch.bool).tril(shift)
        wide = [t.double() for t in (q, k, v)]
        scores = (wide[0] @ wide[1].mT / 8**0.5).masked_fill(~mask, -torch.inf)
        expected = scores.softmax(-1).nan_to_num(0.0) @ wide[2]
        ours.clear()
        alike(flashtile.scaled_dot_product_attention(q, k, v, bias).double(), expected)
        with flashtile.sdpa():
            alike(attend(q, k, v, bias).double(), expected)
            assert len(ours) == 2
            new = torch.__version__ >= "2.5"
            theirs = attend(*wide, bias)
            alike(theirs if new else theirs.nan_to_num(0.0), expected)  # PyTorch 2.4 has NaN where a query sees no key
            assert len(ours) == 2
            torch._dynamo.reset()
            compiled = torch.compile(attend, fullgraph=new, backend="aot_eager")  # 2.4 cannot trace modes
            alike(compiled(q, k, v, bias).double(), expected)
            assert len(ours) == 3
            with pytest.raises(ValueError, match="causal"):
                attend(q, k, v, bias, is_causal=True)


def test_a_causal_bias_of_other_lengths_is_refused():
    from torch.nn.attention.bias import causal_lower_right
    q, k, v = three()
    with pytest.raises(ValueError, match="attn_mask is of 3 queries and 4 keys"):
        flashtile.scaled_dot_product_attention(q, k, v, causal_lower_right(3, 4))
    if q.device.type == "cpu":  # on CUDA PyTorch reads the mask as if it had these lengths
        with pytest.raises(RuntimeError), flashtile.sdpa():
            attend(q, k, v, causal_lower_right(3, 4))


class Layer(torch.nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_script():
    q, k, v = three()
    expected = Layer()(q, k, v)
    with flashtile.sdpa():
        scripted = torch.jit.script(Layer())
        alike(scripted(q, k, v), expected)
    assert "aten::scaled_dot_product_attention" in str(scripted.graph)


def test_symbolic_trace():
    q, k, v = three()
    with flashtile.sdpa():
        traced = torch.fx.symbolic_trace(Layer())
    assert [node.target for node in traced.graph.nodes if node.op == "call_function"] == [BUILTIN]


def test_dual_tensors_go_to_pytorch():
    """PyTorch's math backend has forward-mode derivatives."""
    q, k, v = three()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected = torch.func.jvp(lambda q: attend(q, k, v), (q,), (q,))
        with flashtile.sdpa():
            got = torch.func.jvp(lambda q: attend(q, k, v), (q,), (q,))
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b)


def test_contexts_nest_and_overlap(ours):
    first, second = flashtile.sdpa(), flashtile.sdpa()
    tensors = three()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    attend(*tensors)
    assert len(ours) == 1  # the second one is open
    second.__exit__(None, None, None)
    assert F.scaled_dot_product_attention is BUILTIN
    with flashtile.sdpa(), flashtile.sdpa():
        attend(*tensors)
    assert F.scaled_dot_product_attention is BUILTIN and len(ours) == 2
    with pytest.raises(ZeroDivisionError), flashtile.sdpa():
        1 / 0
    assert F.scaled_dot_product_attention is BUILTIN


def test_contexts_of_threads():
    tensors = three()
    start = threading.Barrier(4)
    wrong = []

    def work(number):
        start.wait()
        for _ in range(300):
            with flashtile.sdpa():
                if F.scaled_dot_product_attention is BUILTIN:
                    wrong.append(number)
        attend(*tensors)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and F.scaled_dot_product_attention is BUILTIN and _sdpa_context._inside == 0


def test_others_may_replace_the_function_too(ours):
    """Within a context, left in place after it, and put back after it."""
    tensors = three()
    expected = attend(*tensors)
    calls = []

    def replace():
        found = F.scaled_dot_product_attention

        def others(*args, **kwargs):
            calls.append(1)
            return found(*args, **kwargs)

        F.scaled_dot_product_attention = others
        return found

    try:
        with flashtile.sdpa():
            kept = replace()
            alike(attend(*tensors), expected)
        assert (len(calls), len(ours)) == (1, 1)
        alike(attend(*tensors), expected)  # theirs, which calls ours, which calls PyTorch's
        assert (len(calls), len(ours)) == (2, 1)
        wide = [t.double() for t in tensors]
        with flashtile.sdpa():
            alike(attend(*tensors), expected)
            alike(attend(*wide), attend(*wide))
        F.scaled_dot_product_attention = kept
        alike(attend(*tensors), expected)
        assert len(ours) == 2
        with flashtile.sdpa():
            alike(attend(*tensors), expected)
        assert len(ours) == 3 and F.scaled_dot_product_attention is BUILTIN
    finally:
        F.scaled_dot_product_attention = BUILTIN


def test_entering_again_compiles_nothing():
    tensors = three()
    torch._dynamo.reset()
    graphs = []
    compiled = torch.compile(attend, fullgraph=True, backend=lambda graph, _: (graphs.append(graph), graph)[1])
    for _ in range(3):
        compiled(*tensors)
        with flashtile.sdpa():
            compiled(*tensors)
            with flashtile.sdpa():
                compiled(*tensors)
    assert len(graphs) == 2


@needs.pytorch("2.7", "does not trace context managers")
def test_a_context_within_compiled_code(ours):
    def function(q, k, v):
        with flashtile.sdpa():
            return attend(q, k, v)

    tensors = three()
    torch._dynamo.reset()
    alike(torch.compile(function, fullgraph=True, backend="aot_eager")(*tensors), attend(*tensors))
    assert ours and F.scaled_dot_product_attention is BUILTIN and _sdpa_context._inside == 0
