"""Results have the strides that PyTorch's have, so that `.view` of one works exactly where it works without flashtile:
within sdpa(), and through PyTorch's registry of flash implementations, where compiled code relies on it."""

import pytest
import torch
import torch.nn.functional as F

import flashtile


def heads_first(*sizes):
    return torch.randn(2, 3, *sizes)


def rows_first(seqlen, d):
    return torch.randn(2, seqlen, 3, d).transpose(1, 2)


LAYOUTS = {
    "heads first": lambda: [heads_first(n, 8) for n in (5, 7, 7)],
    "rows first": lambda: [rows_first(n, 8) for n in (5, 7, 7)],
    "mixed": lambda: [heads_first(5, 8), rows_first(7, 8), heads_first(7, 8)],
    "packed": lambda: [t.transpose(1, 2) for t in torch.randn(2, 5, 3, 3, 8).unbind(2)],
    "sliced": lambda: [heads_first(5, 16)[..., :8] for _ in range(3)],
    "batch innermost": lambda: [torch.randn(5, 2, 3, 8).permute(1, 2, 0, 3) for _ in range(3)],
    "broadcast": lambda: [heads_first(5, 8)[:1].expand(2, 3, 5, 8), heads_first(5, 8), heads_first(5, 8)],
}
# Where PyTorch has the math backend, on the CPU.
MATH = {
    "head_dim_v": (lambda: [rows_first(5, 8), rows_first(7, 8), rows_first(7, 12)], {}),
    "3 dimensions": (lambda: [torch.randn(5, 3, 8).transpose(0, 1) for _ in range(3)], {}),
    "5 dimensions": (lambda: [torch.randn(2, 4, 5, 3, 8).transpose(2, 3) for _ in range(3)], {}),
    "dropout": (lambda: [rows_first(5, 8) for _ in range(3)], {"dropout_p": 0.5}),
    "a mask's gradient": (lambda: [rows_first(5, 8) for _ in range(3)],
                          {"attn_mask": lambda: torch.randn(5, 5, requires_grad=True)}),
    "one head of keys": (lambda: [rows_first(5, 8), rows_first(5, 8)[:, :1], rows_first(5, 8)[:, :1]], {}),
    "broadcast": (lambda: [rows_first(5, 8), rows_first(5, 8)[:1], rows_first(5, 8)[:1]], {}),
}


def run(make, seed=0, function=F.scaled_dot_product_attention, **options):
    torch.manual_seed(seed)
    tensors = [t.detach().requires_grad_() for t in make()]
    weights = torch.randn(()) + torch.arange(5.0)[:, None]
    out = function(*tensors, **options)
    return out, *torch.autograd.grad((out * weights).sum(), tensors)


def alike(got, expected, strides=True):
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
        assert not strides or a.stride() == b.stride()


cpu = pytest.mark.skipif("torch.get_default_device().type != 'cpu'", reason="of PyTorch's CPU operators")


@cpu
@pytest.mark.parametrize("name", LAYOUTS)
def test_results_of_sdpa(name):
    expected = run(LAYOUTS[name])
    with flashtile.sdpa():
        got = run(LAYOUTS[name], function=lambda *t: F.scaled_dot_product_attention(*t))
    alike(got, expected)


@cpu
@pytest.mark.parametrize("name", ["heads first", "rows first", "mixed"])
def test_results_of_compiled_sdpa(name):
    make = LAYOUTS[name]
    expected = run(make)

    def attend(*tensors):
        return F.scaled_dot_product_attention(*tensors)

    torch._dynamo.reset()
    with flashtile.sdpa():
        got = run(make, function=torch.compile(attend, fullgraph=True, backend="aot_eager"))
    alike(got, expected, strides=False)
    assert got[0].stride() == expected[0].stride()


@cpu
@pytest.mark.parametrize("name", MATH)
def test_results_where_pytorch_has_its_math_backend(name):
    make, options = MATH[name]
    options = {key: value() if callable(value) else value for key, value in options.items()}
    tensors = make()
    expected = F.scaled_dot_product_attention(*tensors, **options)
    with flashtile.sdpa():
        got = F.scaled_dot_product_attention(*tensors, **options)
    assert got.shape == expected.shape and got.stride() == expected.stride() and got.is_contiguous()
    if "dropout_p" not in options:
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)


@pytest.fixture
def flash_implementation():
    attention = torch.nn.attention
    if not hasattr(attention, "register_flash_attention_impl"):
        pytest.skip("this PyTorch has no hook")
    flashtile.register_flash_attention_impl()
    attention.activate_flash_attention_impl("flashtile")
    yield attention
    attention.restore_flash_attention_impl()


def expected_of(attention, make, **options):
    attention.restore_flash_attention_impl()
    expected = run(make, **options)
    attention.activate_flash_attention_impl("flashtile")
    return expected


@cpu
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.filterwarnings("ignore:Warning only once")
def test_results_of_the_flash_implementation(name, flash_implementation):
    make = LAYOUTS[name]
    expected = expected_of(flash_implementation, make, is_causal=True)
    alike(run(make, is_causal=True), expected)
    assert flashtile.last_run().startswith("cpu") and "backward" in flashtile.last_run()


@cpu
@pytest.mark.parametrize("name", ["heads first", "rows first", "mixed"])
def test_the_flash_implementation_compiled(name, flash_implementation):
    """Compiled by inductor, which asserts that an operator's results have the expected strides."""
    make = LAYOUTS[name]
    expected = expected_of(flash_implementation, make, is_causal=True)
    torch._dynamo.reset()
    alike(run(make, function=torch.compile(F.scaled_dot_product_attention, fullgraph=True), is_causal=True), expected)


@cpu
@pytest.mark.parametrize("name", ["fp64", "head_dim 600"])
def test_the_flash_implementation_leaves_to_pytorch_what_flashtile_cannot(name, flash_implementation):
    def make():
        if name == "fp64":
            return [t.double() for t in LAYOUTS["rows first"]()]
        return [rows_first(5, 600) for _ in range(3)]

    expected = expected_of(flash_implementation, make)
    alike(run(make), expected)
