"""flashtile.flex_attention against PyTorch's, and its gradients against dense attention in fp64."""

import contextlib

import pytest
import torch

import flashtile
from conftest import DEVICE
from function_cases import BATCH, CASES, D, HEADS, KEYS, KV_HEADS, ROWS, dense, gradients

flex = pytest.importorskip("torch.nn.attention.flex_attention", reason="PyTorch before 2.5 has no flex_attention")


@contextlib.contextmanager
def uncompiled():
    """PyTorch's flex_attention as plain operations; compiling it takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True, raising=False)
        yield


def heads_first(kv_heads=HEADS, keys=KEYS):
    return [torch.randn(BATCH, h, n, D) for h, n in ((HEADS, ROWS), (kv_heads, keys), (kv_heads, keys))]


def rope_like(score, b, h, q_idx, kv_idx):
    return score + torch.exp2(-((h + 1) * 8.0 / HEADS)) * (kv_idx - q_idx)


SCORE_MODS = {"none": None, "alibi": rope_like, "softcap": CASES["softcap"][0], "table": CASES["table"][0]}
MASK_MODS = {
    "none": None, "causal": lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, "documents": CASES["documents"][1],
    "and": flex.and_masks(CASES["dilated"][1], CASES["prefix"][1]),
    "or": flex.or_masks(CASES["window"][1], CASES["some rows empty"][1]), "everything": flex.noop_mask,
}


@pytest.mark.filterwarnings("ignore:return_lse is deprecated", "ignore:flex_attention called without")
@pytest.mark.parametrize("score_mod, mask_mod", [
    ("none", "none"), ("alibi", "causal"), ("softcap", "documents"), ("table", "and"), ("none", "or"),
    ("alibi", "everything")])
@pytest.mark.parametrize("kv_heads", [HEADS, KV_HEADS])
def test_flex_attention(score_mod, mask_mod, kv_heads):
    tensors = heads_first(kv_heads)
    mask_mod = MASK_MODS[mask_mod]
    block_mask = mask_mod and flex.create_block_mask(mask_mod, BATCH, HEADS, ROWS, KEYS, device=DEVICE, BLOCK_SIZE=16)
    given = (SCORE_MODS[score_mod], block_mask, 0.3, kv_heads != HEADS, True)
    with uncompiled():
        expected, expected_lse = flex.flex_attention(*tensors, *given)
    out, lse = flashtile.flex_attention(*tensors, *given)
    torch.testing.assert_close(out, expected, atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(lse, expected_lse, atol=3e-6, rtol=1e-5)
    if DEVICE == "cpu" or block_mask is not None:  # alone it is laid out as scaled_dot_product_attention's
        assert out.stride() == expected.stride()


def test_flex_attention_has_a_gradient():
    tensors = [t.requires_grad_() for t in heads_first()]
    block_mask = flex.create_block_mask(MASK_MODS["causal"], None, None, ROWS, KEYS, device=DEVICE)
    out = flashtile.flex_attention(*tensors, rope_like, block_mask)
    wide = [t.detach().double().transpose(1, 2).requires_grad_() for t in tensors]
    expected, _ = dense(*wide, rope_like, MASK_MODS["causal"])
    grads = torch.autograd.grad(out.square().sum(), tensors)
    for got, wanted in zip(grads, torch.autograd.grad(expected.square().sum(), wide)):
        torch.testing.assert_close(got.double(), wanted.transpose(1, 2), atol=2e-5, rtol=1e-4)


def test_flex_attention_with_blocks_alone():
    """A BlockMask without a mask_mod says by its blocks which keys are seen."""
    blocks = torch.tensor([[[0, 2, 0], [1, 0, 0], [1, 2, 3]]], dtype=torch.int32)[:, None]
    counts = torch.tensor([[[2, 1, 2]]], dtype=torch.int32)
    block_mask = flex.BlockMask.from_kv_blocks(counts, blocks, BLOCK_SIZE=16, seq_lengths=(37, 48))
    q, k, v = heads_first(keys=48)
    seen = torch.tensor([[1, 0, 1], [0, 1, 0], [0, 1, 1]], dtype=torch.bool).repeat_interleave(16, 0)[:37]
    expected = flashtile.attention(*(t.transpose(1, 2) for t in (q, k, v)), mask=seen.repeat_interleave(16, 1))
    out = flashtile.flex_attention(q, k, v, block_mask=block_mask)
    torch.testing.assert_close(out, expected.transpose(1, 2), atol=1e-6, rtol=1e-5)


def test_the_lists_of_a_mask_are_passed_on(monkeypatch):
    """Where the library takes blocks of their size, without a table of all blocks."""
    monkeypatch.setattr("flashtile._flex_attention._mask_by_blocks", None)
    q, k, v = (torch.randn(2, 2, n, 32) for n in (200, 300, 300))
    block_mask = flex.create_block_mask(MASK_MODS["causal"], None, None, 200, 300, device=DEVICE, BLOCK_SIZE=(64, 128))
    assert block_mask.full_kv_num_blocks.sum() > 0
    out = flashtile.flex_attention(q, k, v, rope_like, block_mask)
    expected, _ = dense(*(t.transpose(1, 2) for t in (q, k, v)), rope_like, MASK_MODS["causal"])
    torch.testing.assert_close(out, expected.transpose(1, 2), atol=2e-6, rtol=1e-5)


def lists(counts, indices):
    """Lists of one batch and head, on the device."""
    return (torch.tensor([[counts]], dtype=torch.int32, device=DEVICE),
            torch.tensor([[indices]], dtype=torch.int32, device=DEVICE))


def test_flex_attention_honours_the_lists_of_a_mask():
    """Blocks that are not listed are hidden, full ones are shown whatever mask_mod says, and what lies past a count is
    not read."""
    partial = lists([1, 2, 0], [[0, -7, 99], [1, 2, 2], [0, 0, 0]])
    full = lists([1, 0, 1], [[2, 0, 0], [0] * 3, [1, 1, 1]])
    block_mask = flex.BlockMask.from_kv_blocks(*partial, *full, BLOCK_SIZE=16, seq_lengths=(37, 48),
                                               mask_mod=lambda b, h, q_idx, kv_idx: (q_idx + kv_idx) % 3 != 0)
    q, k, v = (torch.randn(2, 2, n, 32, device=DEVICE) for n in (37, 48, 48))
    i, j = torch.arange(37, device=DEVICE)[:, None], torch.arange(48, device=DEVICE)[None]
    kinds = torch.tensor([[1, 0, 2], [0, 1, 1], [0, 2, 0]], device=DEVICE)[i // 16, j // 16]
    seen = (kinds == 2) | ((kinds == 1) & ((i + j) % 3 != 0))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    torch.testing.assert_close(flashtile.flex_attention(q, k, v, block_mask=block_mask), expected)


@pytest.mark.skipif(DEVICE != "cpu", reason="the host does not read a GPU's lists")
@pytest.mark.parametrize("size", [16, 64])
@pytest.mark.parametrize("partial, full, what", [
    (([2, 0, 0], [[1, 1, 0], [0] * 3, [0] * 3]), None, "indices"),
    (([1, 0, 0], [[3, 0, 0], [0] * 3, [0] * 3]), None, "indices"),
    (([1, 0, 0], [[1, 0, 0], [0] * 3, [0] * 3]), ([1, 0, 0], [[1, 0, 0], [0] * 3, [0] * 3]), "full_(kv_)?indices"),
])
def test_flex_attention_refuses_lists_that_are_wrong(partial, full, what, size):
    n = 3 * size
    q, k, v = (torch.randn(1, 1, n, 32) for _ in range(3))
    block_mask = flex.BlockMask.from_kv_blocks(*lists([3, 3, 3], [[0, 1, 2]] * 3), BLOCK_SIZE=size, seq_lengths=(n, n))
    block_mask.kv_num_blocks, block_mask.kv_indices = lists(*partial)
    if full:
        block_mask.full_kv_num_blocks, block_mask.full_kv_indices = lists(*full)
    with pytest.raises(ValueError, match=what):
        flashtile.flex_attention(q, k, v, block_mask=block_mask)


def test_flex_attention_of_one_batch_of_keys():
    q, k, v = heads_first()
    block_mask = flex.create_block_mask(MASK_MODS["documents"], BATCH, None, ROWS, KEYS, device=DEVICE)
    out = flashtile.flex_attention(q, k[:1], v[:1], block_mask=block_mask)
    expected = flashtile.flex_attention(q, k[:1].repeat(2, 1, 1, 1), v[:1].repeat(2, 1, 1, 1), block_mask=block_mask)
    assert torch.equal(out, expected)


@pytest.mark.skipif(not hasattr(flex, "AuxRequest"), reason="this PyTorch has no AuxRequest")
def test_flex_attention_with_return_aux():
    q, k, v = heads_first()
    out, aux = flashtile.flex_attention(q, k, v, return_aux=flex.AuxRequest(lse=True))
    expected, lse = flashtile.flex_attention(q, k, v, return_lse=True)
    assert torch.equal(out, expected) and torch.equal(aux.lse, lse) and aux.max_scores is None
    with pytest.raises(NotImplementedError, match="^return_aux asks for max_scores"):
        flashtile.flex_attention(q, k, v, return_aux=flex.AuxRequest(max_scores=True))
    with pytest.raises(ValueError, match="^return_lse and return_aux are both given"):
        flashtile.flex_attention(q, k, v, return_lse=True, return_aux=flex.AuxRequest(lse=True))


def test_flex_attention_refuses():
    q, k, v = heads_first()
    mask = flex.create_block_mask(MASK_MODS["causal"], None, None, ROWS, KEYS, device=DEVICE)
    few = heads_first(KV_HEADS)
    for arguments, kind, message in [
            (dict(query=q[0]), ValueError, "^query has 3 dimensions, allowed are 4"),
            (dict(key=few[1], value=few[2]), ValueError, "^key has 2 heads, allowed without enable_gqa is query's 4"),
            (dict(block_mask=mask, query=q[:, :, :20]), ValueError, r"^block_mask was made for \(37, 53\) queries and"),
            (dict(block_mask=mask, key=k[:1], value=v[:1]), ValueError, "^key's batch is 1"),
            (dict(block_mask=mask[:, :, 0]), RuntimeError, "sliced BlockMask"),
            (dict(score_mod=lambda s, b, h, i, j: s.erf()), NotImplementedError, "^score calls aten.erf")]:
        with pytest.raises(kind, match=message):
            flashtile.flex_attention(**{**dict(query=q, key=k, value=v), **arguments})


def test_flex_attention_compiled():
    torch._dynamo.reset()
    block_mask = flex.create_block_mask(MASK_MODS["causal"], None, None, ROWS, KEYS, device=DEVICE)

    def block(q, k, v):
        return flashtile.flex_attention(q * 2, k, v, rope_like, block_mask).relu()

    inputs = [t.requires_grad_() for t in heads_first()]
    for got, expected in zip(gradients(torch.compile(block, backend="aot_eager"), inputs), gradients(block, inputs)):
        torch.testing.assert_close(got, expected)
