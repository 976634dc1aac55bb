"""torch.nn.attention.varlen on flashtile, activated by PyTorch's own hook: packed batches with gradients, pages, into a
tensor of the caller's. On the CPU PyTorch has nothing for it."""

import inspect

import pytest
import torch

import flashtile
from oracle import dense

varlen = pytest.importorskip("torch.nn.attention.varlen", reason="this PyTorch has no varlen_attn")
if not hasattr(torch.nn.attention, "activate_flash_attention_impl"):
    pytest.skip("this PyTorch has no registry of implementations", allow_module_level=True)
PARAMETERS = inspect.signature(varlen.varlen_attn).parameters
if "block_table" not in PARAMETERS:
    pytest.skip("this PyTorch's varlen_attn has other arguments", allow_module_level=True)


@pytest.fixture(autouse=True)
def active():
    flashtile.register_flash_attention_impl()
    torch.nn.attention.activate_flash_attention_impl("flashtile")
    yield
    torch.nn.attention.restore_flash_attention_impl()


STARTS_Q, STARTS_K = (0, 5, 12), (0, 9, 16)


def starts():
    return (torch.tensor(of, dtype=torch.int32) for of in (STARTS_Q, STARTS_K))


def type_and_tolerance(device):
    """PyTorch's dispatcher lets no flash attention on CUDA have fp32."""
    return (torch.float32, 1e-5) if device.type == "cpu" else (torch.bfloat16, 2e-2)


def expected_of(q, k, v, **options):
    parts = [dense(*(t[None, of[b]:of[b + 1]] for t, of in ((q, STARTS_Q), (k, STARTS_K), (v, STARTS_K))), **options)
             for b in range(2)]
    return torch.cat([out[0] for out, _ in parts]), torch.cat([lse[0] for _, lse in parts], 1)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (3, 0)])
def test_packed(window, compiled, device):
    dtype, tolerance = type_and_tolerance(device)
    cu_q, cu_k = starts()
    q, k, v = (torch.randn(n, heads, 16, dtype=dtype, requires_grad=True) for n, heads in ((12, 4), (16, 2), (16, 2)))
    wide = [t.detach().double().requires_grad_() for t in (q, k, v)]

    def run(q, k, v):
        return varlen.varlen_attn(q, k, v, cu_q, cu_k, 7, 9, window_size=window, scale=0.3, enable_gqa=True,
                                  return_aux=varlen.AuxRequest(lse=True))

    out, lse = (torch.compile(run, backend="aot_eager") if compiled else run)(q, k, v)
    assert "forward" in flashtile.last_run()
    expected, expected_lse = expected_of(*wide, window=window, scale=0.3)
    torch.testing.assert_close(out.double(), expected, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(lse.double(), expected_lse, atol=1e-5, rtol=1e-5)
    dout = torch.randn_like(out)
    wanted_gradients = torch.autograd.grad(expected, wide, dout.double())
    for got, wanted in zip(torch.autograd.grad(out, (q, k, v), dout), wanted_gradients):
        torch.testing.assert_close(got.double(), wanted, atol=2 * tolerance, rtol=2 * tolerance)


@pytest.mark.parametrize("num_splits", [None, 1])
@torch.no_grad()
def test_pages_into_a_tensor_of_the_caller_s(num_splits, device):
    dtype, tolerance = type_and_tolerance(device)
    cu_q, cu_k = starts()
    q, k = torch.randn(12, 4, 16, dtype=dtype), torch.randn(16, 2, 16, dtype=dtype)
    pages = torch.full((7, 4, 2, 16), torch.nan, dtype=dtype)
    table = torch.tensor([[5, 0, 3], [6, 2, -9]], dtype=torch.int32)
    for b in range(2):
        for at, row in enumerate(k[STARTS_K[b]:STARTS_K[b + 1]]):
            pages[table[b, at // 4], at % 4] = row
    out = torch.full_like(q, torch.nan)
    result = varlen.varlen_attn_out(out, q, pages, pages, cu_q, None, 7, 9, window_size=(-1, 0), enable_gqa=True,
                                    seqused_k=cu_k.diff(), block_table=table, num_splits=num_splits)
    expected, _ = expected_of(q.double(), k.double(), k.double(), causal=True)
    assert result is out
    torch.testing.assert_close(out.double(), expected, atol=tolerance, rtol=tolerance)
    again = varlen.varlen_attn(q, pages, pages, cu_q, None, 7, 9, window_size=(-1, 0), enable_gqa=True,
                               seqused_k=cu_k.diff(), block_table=table, num_splits=num_splits)
    assert torch.equal(again, out)
