"""flashtile.append_kv beside indexing and flash-attn's rotation in PyTorch's operators: dense and paged caches, slots,
packed rows, queries rotated alongside, torch.compile."""

import pytest
import torch

import flashtile
from flashtile._append_kv import append_op
from flashtile.flash_attn.layers.rotary import apply_rotary_emb


def tables(angles=16, positions=64, dtype=torch.float32):
    angle = torch.arange(positions)[:, None] * 100.0 ** (-torch.arange(angles) / angles)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def tensors(batch=3, new=4, heads=2, d=40, dtype=torch.float32):
    return torch.randn(batch, new, heads, d, dtype=dtype), torch.randn(batch, new, heads, 24, dtype=dtype)


def close(got, expected):
    """To a unit of the last place: the rotation that is compared with rounds its products."""
    eps = torch.finfo(got.dtype).eps
    torch.testing.assert_close(got, expected, rtol=eps, atol=4 * torch.finfo(torch.float32).eps)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dense(dtype, interleaved):
    k, v = tensors(dtype=dtype)
    q = torch.randn(3, 4, 6, 40, dtype=dtype)
    k_cache, v_cache = torch.randn(5, 30, 2, 40, dtype=dtype), torch.randn(5, 30, 2, 24, dtype=dtype)
    expected_k, expected_v = k_cache.clone(), v_cache.clone()
    lengths, rows = torch.tensor([7, 0, 26], dtype=torch.int32), torch.tensor([4, 0, 2], dtype=torch.int32)
    cos, sin = tables(dtype=dtype)
    before = q.clone()
    rotated = flashtile.append_kv(k_cache, v_cache, k, v, cache_seqlens=lengths, cache_batch_idx=rows, rotary_cos=cos,
                                  rotary_sin=sin, rotary_interleaved=interleaved, q=q, causal=True)
    where = rows.long()[:, None], lengths.long()[:, None] + torch.arange(4)
    expected_k[where] = apply_rotary_emb(k, cos, sin, interleaved, seqlen_offsets=lengths)
    expected_v[where] = v
    close(k_cache, expected_k)
    assert torch.equal(v_cache, expected_v) and torch.equal(q, before)
    close(rotated, apply_rotary_emb(q, cos, sin, interleaved, seqlen_offsets=lengths))
    flashtile.append_kv(k_cache, v_cache, k, v, cache_seqlens=lengths, cache_batch_idx=rows, rotary_cos=cos,
                        rotary_sin=sin, rotary_interleaved=interleaved, q=q, q_out=q, window=(3, 0))
    assert torch.equal(q, rotated)
    at_one = flashtile.append_kv(k_cache, v_cache, k, v, cache_seqlens=3, rotary_cos=cos, rotary_sin=sin, q=before)
    close(at_one, apply_rotary_emb(before.flatten(1, 2)[:, None], cos, sin, seqlen_offsets=3).view(before.shape))


def test_pages_and_packed_rows():
    counts, lengths = (0, 5, 1, 9), (7, 0, 5, 2)
    k, v = torch.randn(15, 2, 40), torch.randn(15, 2, 24)
    k_cache, v_cache = torch.zeros(20, 3, 2, 40), torch.zeros(20, 3, 2, 24)
    table = torch.randperm(20)[:16].view(4, 4).int()
    cu = torch.tensor([0, *counts]).cumsum(0).int()
    flashtile.append_kv(k_cache, v_cache, k, v, cache_seqlens=torch.tensor(lengths), block_table=table,
                        cu_seqlens_k_new=cu)
    row = 0
    for b, (count, length) in enumerate(zip(counts, lengths)):
        for at in range(length, length + count):
            place = table[b, at // 3].item(), at % 3
            assert torch.equal(k_cache[place], k[row]) and torch.equal(v_cache[place], v[row])
            row += 1
    assert k_cache.flatten(2).any(-1).sum() == 15


def test_slots_and_one_latent_cache():
    """v is a view of k, the last columns are rotated, and positions are given: MLA as engines call it."""
    k, cache = torch.randn(5, 1, 576), torch.zeros(4, 16, 1, 576)
    q = torch.randn(5, 3, 576)
    cos, sin = tables(32)
    slots, positions = torch.tensor([63, -1, 0, 17, 5]), torch.tensor([9, 1, 0, 63, 2])
    cu = torch.tensor([0, 2, 5], dtype=torch.int32)
    rotated = flashtile.append_kv(cache, None, k, None, slots=slots, positions=positions, cu_seqlens_k_new=cu,
                                  rotary_cos=cos, rotary_sin=sin, rotary_begin=512, q=q, cu_seqlens_q=cu)

    def expected(x):
        turned = [apply_rotary_emb(row[None, None, :, 512:], cos, sin, seqlen_offsets=position.item())[0, 0]
                  for row, position in zip(x, positions)]
        return torch.cat((x[..., :512], torch.stack(turned)), -1)

    kept = slots >= 0
    close(cache.view(64, 1, 576)[slots[kept]], expected(k)[kept])
    assert cache.view(64, -1).any(-1).sum() == 4
    close(rotated, expected(q))


def test_compiles_and_passes_opcheck():
    k, v = tensors(d=24)
    lengths = torch.tensor([7, 0, 20], dtype=torch.int32)

    def step(k_cache, v_cache, k, v, lengths):
        flashtile.append_kv(k_cache, v_cache, k * 2, v, cache_seqlens=lengths)
        return flashtile.attention(k, k_cache, v_cache, causal=True, seqused_k=lengths + 4)

    caches = [torch.zeros(3, 30, 2, 24) for _ in range(4)]
    expected = step(*caches[:2], k, v, lengths)
    got = torch.compile(step, fullgraph=True, backend="aot_eager")(*caches[2:], k, v, lengths)
    torch.testing.assert_close(got, expected)
    assert torch.equal(caches[0], caches[2]) and torch.equal(caches[1], caches[3]) and caches[0].any()
    none = None
    torch.library.opcheck(append_op, (k, v, *caches[:2], none, none, none, lengths, *[none] * 9, 0, False, True, False))


def test_a_cache_that_autograd_saved_is_known_to_have_changed():
    k, v = tensors(d=24)
    weight = torch.randn(24, requires_grad=True)
    k_cache, v_cache = torch.randn(3, 30, 2, 24), torch.randn(3, 30, 2, 24)
    product = (k_cache * weight).sum()
    flashtile.append_kv(k_cache, v_cache, k, v, cache_seqlens=0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


@pytest.mark.parametrize(("change", "message"), [
    ({"cache_seqlens": None}, "cache_seqlens is NULL"),
    ({"cache_seqlens": 27}, r"cache_seqlens\[0\] is 27, allowed is at most 26"),
    ({"k_cache": torch.zeros(3, 30, 2, 24, dtype=torch.float16)}, "k_cache.dtype is fp16, allowed is fp32, that of k"),
    ({"block_table": torch.tensor([[0], [-1], [2]], dtype=torch.int32)},
     r"block_table\[1, 0\] is -1, allowed is 0 to 2"),
    ({"k": 3}, "k is a int"),
    ({"q": 3}, "q is a int"),
    ({"slots": torch.zeros(3, 4, dtype=torch.float64)}, "slots.dtype is torch.float64, allowed is torch.int64"),
])
def test_refuses(change, message):
    k, v = tensors(d=24)
    change = {name: x.to(k.device) if isinstance(x, torch.Tensor) else x for name, x in change.items()}
    call = {"k_cache": torch.zeros(3, 30, 2, 24), "v_cache": torch.zeros(3, 30, 2, 24), "k": k, "v": v,
            "cache_seqlens": 0, **change}
    with pytest.raises((TypeError, ValueError), match=message):
        flashtile.append_kv(**call, check_values=True)
    assert not call["k_cache"].any() and not call["v_cache"].any()
