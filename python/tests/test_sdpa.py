"""scaled_dot_product_attention: PyTorch's signature and meaning, the context, and the flash implementation."""

import inspect
import logging

import pytest
import torch
import torch.nn.functional as F

import flashtile

SHAPES = {
    "4d": ((2, 4, 33, 16), (2, 4, 47, 16)),
    "no heads": ((33, 16), (47, 16)),
    "3d": ((5, 33, 16), (5, 47, 16)),
    "5d": ((2, 3, 4, 33, 16), (2, 3, 4, 47, 16)),
    "broadcast": ((2, 4, 33, 16), (1, 1, 47, 16)),
}


def both(shape, **options):
    """Ours in fp32 and PyTorch's math in fp64, with their gradients."""
    q, k = (torch.randn(s) for s in shape)
    v = torch.randn(shape[1])
    results = []
    for function, dtype in ((flashtile.scaled_dot_product_attention, torch.float32),
                            (F.scaled_dot_product_attention, torch.float64)):
        leaves = [t.to(dtype).requires_grad_() for t in (q, k, v)]
        wide = {name: value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
                for name, value in options.items()}
        used = leaves
        if dtype is torch.float64 and wide.pop("enable_gqa", False):  # which PyTorch has from 2.5 on
            used = [leaves[0], *(t.repeat_interleave(shape[0][-3] // shape[1][-3], -3) for t in leaves[1:])]
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            out = function(*used, **wide)
            results.append((out, *torch.autograd.grad(out.square().sum(), leaves)))
    for got, expected in zip(*results):
        assert got.shape == expected.shape
        torch.testing.assert_close(got.double(), expected, atol=3e-5, rtol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("causal", [False, True])
def test_shapes(shape, causal):
    both(SHAPES[shape], is_causal=causal)


def test_masks():
    shape = SHAPES["4d"]
    both(shape, attn_mask=torch.rand(33, 47) < 0.8, scale=0.4)
    both(shape, attn_mask=torch.randn(2, 1, 33, 47))
    both(shape, attn_mask=torch.randn(1, 47).expand(33, 47))
    both(SHAPES["5d"], attn_mask=torch.randn(3, 1, 33, 47))
    both(SHAPES["5d"], attn_mask=torch.randn(2, 1, 1, 33, 47))
    both(((2, 8, 33, 16), (2, 2, 47, 16)), enable_gqa=True, is_causal=True)


def test_signature():
    names = [(p.name, p.default) for p in inspect.signature(flashtile.scaled_dot_product_attention).parameters.values()]
    empty = inspect.Parameter.empty
    assert names == [("query", empty), ("key", empty), ("value", empty), ("attn_mask", None), ("dropout_p", 0.0),
                     ("is_causal", False), ("scale", None), ("enable_gqa", False)]


def test_refusals():
    q, k = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 5, 8)
    with pytest.raises(ValueError, match="enable_gqa"):
        flashtile.scaled_dot_product_attention(q, k, k)
    with pytest.raises(ValueError, match="is_causal"):
        flashtile.scaled_dot_product_attention(q, q, q, torch.ones(5, 5, dtype=torch.bool), is_causal=True)


@pytest.fixture
def calls(monkeypatch):
    """How often flashtile's function ran."""
    from flashtile import _sdpa
    count = []
    attend = _sdpa.attend
    monkeypatch.setattr(_sdpa, "attend", lambda *a: (count.append(1), attend(*a))[1])
    return count


def test_context(calls, caplog):
    q = torch.randn(2, 4, 9, 8)
    expected = F.scaled_dot_product_attention(q, q, q)
    with caplog.at_level(logging.WARNING, "flashtile"), flashtile.sdpa():
        torch.testing.assert_close(F.scaled_dot_product_attention(q, q, q), expected)
        assert len(calls) == 1 and not caplog.records
        layer = torch.nn.MultiheadAttention(16, 4, batch_first=True)
        layer(x := torch.randn(2, 9, 16), x, x, need_weights=False)
        assert len(calls) == 2
        for _ in range(2):
            assert F.scaled_dot_product_attention(q.double(), q.double(), q.double()).dtype is torch.float64
    assert [record.getMessage() for record in caplog.records] == [
        "scaled_dot_product_attention falls back to PyTorch: q.dtype is torch.float64, allowed is torch.float32, "
        "torch.float16 or torch.bfloat16"]
    before = len(calls)
    F.scaled_dot_product_attention(q, q, q)
    assert len(calls) == before


def test_context_compiles(calls):
    q = torch.randn(2, 4, 9, 8)
    torch._dynamo.reset()
    compiled = torch.compile(lambda q: F.scaled_dot_product_attention(q, q, q).sin(), fullgraph=True)
    expected = compiled(q)
    with flashtile.sdpa():
        got = compiled(q)
    torch.testing.assert_close(got, expected)
    assert calls


@pytest.mark.skipif(not hasattr(torch.nn.attention, "register_flash_attention_impl"), reason="this PyTorch has no hook")
def test_flash_implementation(device, monkeypatch):
    from torch.nn import attention
    flashtile.register_flash_attention_impl()
    assert attention.current_flash_attention_impl() is None
    # On CUDA PyTorch's flash attention knows neither fp32 nor masks.
    cuda = device.type == "cuda"
    dtype, close = torch.float32, {"atol": 3e-5, "rtol": 1e-4}
    if cuda:
        dtype, close = torch.bfloat16, {"atol": 0.05, "rtol": 0.02}
    q, k, v = (torch.randn(2, 4, 33, 16, dtype=dtype) for _ in range(3))
    options = [{}, {"is_causal": True}, {"scale": 0.5}]
    if not cuda:
        options.append({"attn_mask": torch.randn(33, 33)})

    from flashtile import _flash_implementation as hook
    count = []
    forward = hook._forward
    monkeypatch.setattr(hook, "_forward", lambda *a: (count.append(1), forward(*a))[1])

    def run(backend=attention.SDPBackend.FLASH_ATTENTION, **options):
        leaves = [t.clone().requires_grad_() for t in (q, k, v)]
        with attention.sdpa_kernel(backend):
            out = F.scaled_dot_product_attention(*leaves, **options)
        return out, *torch.autograd.grad(out.square().sum(), leaves)

    expected = [run(attention.SDPBackend.MATH, **o) for o in options]
    attention.activate_flash_attention_impl("flashtile")
    try:
        for o, wanted in zip(options, expected):
            for got, want in zip(run(**o), wanted):
                torch.testing.assert_close(got, want, **close)
    finally:
        attention.restore_flash_attention_impl()
    assert len(count) == len(options)
    run()
    assert len(count) == len(options)
