"""torch.nn.attention.varlen on flashtile, activated by PyTorch's own hook: packed batches with gradients, pages, into a
tensor of the caller's. On the CPU PyTorch has nothing for it."""

import inspect

import needs
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


CU_Q, CU_K = torch.tensor([0, 5, 12], dtype=torch.int32), torch.tensor([0, 9, 16], dtype=torch.int32)


def expected_of(q, k, v, **options):
    parts = [dense(*(t[None, cu[b]:cu[b + 1]] for t, cu in ((q, CU_Q), (k, CU_K), (v, CU_K))), **options)
             for b in range(2)]
    return torch.cat([out[0] for out, _ in parts]), torch.cat([lse[0] for _, lse in parts], 1)


@needs.CPU_ONLY  # in fp32, which PyTorch's dispatcher lets no flash attention on CUDA have
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (3, 0)])
def test_packed(window, compiled):
    q, k, v = (torch.randn(n, heads, 16, requires_grad=True) for n, heads in ((12, 4), (16, 2), (16, 2)))
    wide = [t.detach().double().requires_grad_() for t in (q, k, v)]

    def run(q, k, v):
        return varlen.varlen_attn(q, k, v, CU_Q, CU_K, 7, 9, window_size=window, scale=0.3, enable_gqa=True,
                                  return_aux=varlen.AuxRequest(lse=True))

    out, lse = (torch.compile(run, backend="aot_eager") if compiled else run)(q, k, v)
    assert "forward" in flashtile.last_run()
    expected, expected_lse = expected_of(*wide, window=window, scale=0.3)
    torch.testing.assert_close(out.double(), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(lse.double(), expected_lse, atol=1e-5, rtol=1e-5)
    dout = torch.randn_like(out)
    wanted_gradients = torch.autograd.grad(expected, wide, dout.double())
    for got, wanted in zip(torch.autograd.grad(out, (q, k, v), dout), wanted_gradients):
        torch.testing.assert_close(got.double(), wanted, atol=1e-5, rtol=1e-5)


@needs.CPU_ONLY
@pytest.mark.parametrize("num_splits", [None, 1])
@torch.no_grad()
def test_pages_into_a_tensor_of_the_caller_s(num_splits):
    q, k = torch.randn(12, 4, 16), torch.randn(16, 2, 16)
    pages, table = torch.full((7, 4, 2, 16), torch.nan), torch.tensor([[5, 0, 3], [6, 2, -9]], dtype=torch.int32)
    for b in range(2):
        for at, row in enumerate(k[CU_K[b]:CU_K[b + 1]]):
            pages[table[b, at // 4], at % 4] = row
    out = torch.full_like(q, torch.nan)
    result = varlen.varlen_attn_out(out, q, pages, pages, CU_Q, None, 7, 9, window_size=(-1, 0), enable_gqa=True,
                                    seqused_k=CU_K.diff(), block_table=table, num_splits=num_splits)
    expected, _ = expected_of(q.double(), k.double(), k.double(), causal=True)
    assert result is out
    torch.testing.assert_close(out.double(), expected, atol=1e-5, rtol=1e-5)
    again = varlen.varlen_attn(q, pages, pages, CU_Q, None, 7, 9, window_size=(-1, 0), enable_gqa=True,
                               seqused_k=CU_K.diff(), block_table=table, num_splits=num_splits)
    assert torch.equal(again, out)
