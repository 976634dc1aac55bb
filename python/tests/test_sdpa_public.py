"""What PyTorch's public tests of scaled_dot_product_attention ask of it (test/test_transformers.py: TestTransformers,
TestSDPA, TestSDPAFailureModes, TestAttnBias), asked of it within flashtile.sdpa(). Written anew: the cases are theirs,
and the expected values are dense attention's in fp64."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import flashtile
from oracle import assert_close, dense


@pytest.fixture(autouse=True)
def ours(monkeypatch):
    """Every test runs within the context. The fixture counts how often flashtile ran."""
    from flashtile import _sdpa
    count, attend = [], _sdpa.attend
    monkeypatch.setattr(_sdpa, "attend", lambda *a: (result := attend(*a), count.append(1))[0])
    with flashtile.sdpa():
        yield count


def by_definition(q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    """dense for any number of dimensions: the leading ones become one batch."""
    lead = torch.broadcast_shapes(q.shape[:-3], k.shape[:-3])

    def rows(tensor):
        tensor = tensor.unsqueeze(0) if tensor.dim() == 2 else tensor
        tensor = tensor.expand(*lead, *tensor.shape[-3:])
        return (tensor.flatten(0, -4) if lead else tensor.unsqueeze(0)).transpose(1, 2)

    options = {}
    if attn_mask is not None:
        if attn_mask.dim() > 3:
            attn_mask = attn_mask.expand(*lead, *attn_mask.shape[-3:]).flatten(0, -4)
        if attn_mask.dtype is torch.bool:
            options["mask"] = attn_mask
        else:  # dense wants to be told that -inf hides, where it hides all of a row
            options = {"mask": attn_mask > -torch.inf, "bias": attn_mask.masked_fill(attn_mask == -torch.inf, 0.0)}
    heads = rows(q).shape[2]
    wide = [rows(t).repeat_interleave(heads // rows(t).shape[2], 2) for t in (k, v)]
    out, _ = dense(rows(q), *wide, causal=is_causal, align="top-left", scale=scale, **options)
    sizes = (*lead, heads, *out.shape[1:2], out.shape[-1])
    return out.transpose(1, 2).reshape(sizes[len(sizes) - max(q.dim(), k.dim()):])


def check(ours, *tensors, gradients=True, **options):
    """Ours, with gradients, against the definition in fp64; in 16 bits at most twice as wrong as the definition in the
    tensors' dtype."""
    def run(function, convert):
        leaves = [convert(t).detach().requires_grad_() for t in tensors]
        used = {n: convert(o) if torch.is_tensor(o) and o.is_floating_point() else o for n, o in options.items()}
        out = function(*leaves, **used)
        if not gradients:
            return [out]
        weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view(out.shape).to(out.dtype)
        return [out, *torch.autograd.grad(out, leaves, weights)]

    before = len(ours)
    got = run(F.scaled_dot_product_attention, lambda t: t)
    assert len(ours) == before + 1, "PyTorch's ran"
    reference = run(by_definition, lambda t: t.double())
    standard = run(by_definition, lambda t: t)
    for what, a, b, c in zip(("out", "dq", "dk", "dv"), got, reference, standard):
        assert a.shape == b.shape and a.dtype is tensors[0].dtype
        if a.dtype is torch.float32:  # where problems this small leave a bound by another's error to luck
            torch.testing.assert_close(a.double(), b, atol=1e-5, rtol=1e-4)
        else:
            assert_close(a, b, c, what)
    return got


def three(q, k=None, v=None, dtype=torch.float32):
    return [torch.randn(shape).to(dtype) for shape in (q, k or q, v or k or q)]


# TestTransformers


@pytest.mark.parametrize("dims", [3, 4])
@pytest.mark.parametrize("mask", [None, 2, 3, 4, "bool", "causal"])
@pytest.mark.parametrize("square", [True, False])
def test_scaled_dot_product_attention(ours, dims, mask, square):
    batch, heads, rows, columns = 3, 2, 5, 5 if square else 7
    lead = (batch, heads)[4 - dims:]
    options = {}
    if mask == "causal":
        options["is_causal"] = True
    elif mask == "bool":
        options["attn_mask"] = torch.rand(rows, columns) > 0.3
    elif mask is not None:
        if mask > dims:
            pytest.skip("a mask of more dimensions than query is PyTorch's to refuse")
        options["attn_mask"] = torch.randn((*lead, rows, columns)[-mask:])
    check(ours, *three((*lead, rows, 16), (*lead, columns, 16)), **options)


@pytest.mark.parametrize("probability", [0.25, 0.5])
def test_dropout(probability):
    """What is kept is scaled exactly, what is dropped is 0, as many as there should be; drawn again each time."""
    n = 64
    q, k, _ = three((4, 2, n, 16))
    identity = torch.eye(n).expand(4, 2, n, n)
    p = F.scaled_dot_product_attention(q, k, identity)
    first, second = (F.scaled_dot_product_attention(q, k, identity, dropout_p=probability) for _ in range(2))
    kept = first != 0
    torch.testing.assert_close(first[kept], p[kept] / (1 - probability), atol=1e-6, rtol=1e-5)
    spread = (probability * (1 - probability) / kept.numel()) ** 0.5
    assert abs(kept.double().mean() - (1 - probability)) < 5 * spread
    assert not torch.equal(kept, second != 0)
    torch.manual_seed(3)
    again = F.scaled_dot_product_attention(q, k, identity, dropout_p=probability)
    torch.manual_seed(3)
    assert torch.equal(again, F.scaled_dot_product_attention(q, k, identity, dropout_p=probability))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("mask", ["none", "causal", "padding", "padding float", "both"])
@pytest.mark.filterwarnings("ignore")
def test_transformer_encoder(training, norm_first, mask, monkeypatch):
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, norm_first=norm_first)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).train(training)
    x = torch.randn(3, 9, 16)
    options = {}
    if mask in ("causal", "both"):
        options["mask"] = torch.nn.Transformer.generate_square_subsequent_mask(9)
    if mask != "none" and mask != "causal":
        padding = torch.arange(9) >= torch.tensor([9, 6, 4])[:, None]
        options["src_key_padding_mask"] = padding if mask == "padding" else torch.zeros(3, 9).masked_fill(
            padding, -torch.inf)

    def run():
        model.zero_grad()
        out = model(x, **options)
        out.square().sum().backward()
        return out, [p.grad.clone() for p in model.parameters()]

    got = run()
    monkeypatch.setattr(F, "scaled_dot_product_attention", torch._C._nn.scaled_dot_product_attention)
    expected = run()
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_multihead_attention(ours, need_weights, batch_first):
    """Keys and values have other widths. Where weights are asked for, PyTorch computes attention itself; both agree."""
    layer = torch.nn.MultiheadAttention(16, 4, kdim=12, vdim=10, batch_first=batch_first)
    sizes = ((2, 5), (2, 7)) if batch_first else ((5, 2), (7, 2))
    q, k, v = torch.randn(*sizes[0], 16), torch.randn(*sizes[1], 12), torch.randn(*sizes[1], 10)
    mask = torch.rand(5, 7) > 0.8
    out, weights = layer(q, k, v, attn_mask=mask, need_weights=need_weights)
    assert (weights is None) is not need_weights and bool(ours) is not need_weights
    torch.testing.assert_close(out, layer(q, k, v, attn_mask=mask, need_weights=not need_weights)[0], atol=1e-5,
                               rtol=1e-4)


# TestSDPA


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows, columns", [(11, 17), (267, 18), (514, 1030)])
@pytest.mark.parametrize("causal", [False, True])
def test_fused_against_math(ours, dtype, rows, columns, causal):
    check(ours, *three((2, 3, rows, 16), (2, 3, columns, 16), dtype=dtype), is_causal=causal)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 17), (11, 17), (1, 1, 1, 17), (2, 1, 1, 17), (2, 1, 11, 1), (2, 3, 11, 17)],
                         ids=str)
@pytest.mark.parametrize("kind", ["bool", "float", "fp32"])
def test_fused_masks_against_math(ours, dtype, shape, kind):
    mask = torch.randn(shape)
    mask = mask > -1 if kind == "bool" else mask if kind == "fp32" else mask.to(dtype)
    check(ours, *three((2, 3, 11, 16), (2, 3, 17, 16), dtype=dtype), attn_mask=mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_mask_with_infinities(ours, dtype):
    """A band of -inf, as long contexts have it; every row sees something."""
    n = 300
    far = (torch.arange(n)[:, None] - torch.arange(n)).abs() >= 10
    check(ours, *three((1, 2, n, 16), dtype=dtype), attn_mask=torch.zeros(n, n, dtype=dtype).masked_fill(
        far, -torch.inf))


@pytest.mark.parametrize("scale", [-0.1, -1.0, 0.0, 0.01, 3.0])
def test_scales(ours, scale):
    """Causal with a negative scale: hidden is hidden."""
    check(ours, *three((2, 2, 9, 16)), scale=scale, is_causal=True)


@pytest.mark.parametrize("head_dim", [1, 3, 8, 65, 127, 192, 256])
def test_head_dims(ours, head_dim):
    check(ours, *three((1, 2, 9, head_dim)), is_causal=True)


@pytest.mark.parametrize("head_dim_v", [1, 24, 40])
def test_head_dims_of_v(ours, head_dim_v):
    check(ours, *three((2, 2, 9, 16), v=(2, 2, 9, head_dim_v)))


@pytest.mark.parametrize("heads, kv_heads", [(8, 1), (8, 2), (9, 3), (4, 4)])
def test_grouped_queries(ours, heads, kv_heads):
    check(ours, *three((2, heads, 9, 16), (2, kv_heads, 7, 16)), enable_gqa=True)


def test_grouped_queries_that_do_not_divide():
    q, k, v = three((2, 9, 8, 16), (2, 2, 8, 16))
    with pytest.raises((RuntimeError, TypeError)):  # PyTorch 2.4 does not have the argument
        F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    with pytest.raises(RuntimeError):
        F.scaled_dot_product_attention(q[:, :4], k, v)


@pytest.mark.parametrize("which", [c for n in (1, 2) for c in itertools.combinations(range(3), n)], ids=str)
def test_gradients_of_some(which):
    tensors = three((2, 2, 9, 16))

    def run(function, dtype):
        used = [t.to(dtype).detach() for t in tensors]
        leaves = [used[n].requires_grad_() for n in which]
        return torch.autograd.grad(function(*used).square().sum(), leaves)

    for a, b in zip(run(F.scaled_dot_product_attention, torch.float32), run(by_definition, torch.float64)):
        torch.testing.assert_close(a.double(), b, atol=1e-4, rtol=1e-4)


def test_a_mask_that_learns(ours):
    q, k, v = three((2, 2, 9, 16))
    for shape in ((9, 9), (2, 1, 9, 9), (2, 9, 1), ()):
        mask = torch.randn(shape)
        results = []
        for function, dtype in ((F.scaled_dot_product_attention, torch.float32), (by_definition, torch.float64)):
            leaf = mask.to(dtype).requires_grad_()
            out = function(*(t.to(dtype) for t in (q, k, v)), attn_mask=leaf)
            results.append(torch.autograd.grad(out.square().sum(), leaf)[0].double())
        torch.testing.assert_close(*results, atol=1e-4, rtol=1e-3)
    assert len(ours) == 4


def test_gradcheck():
    """In fp64, which PyTorch computes within the context, too."""
    leaves = [torch.randn(1, 2, 4, 3, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert torch.autograd.gradcheck(lambda *t: F.scaled_dot_product_attention(*t, is_causal=True), leaves)
        assert torch.autograd.gradgradcheck(lambda *t: F.scaled_dot_product_attention(*t), leaves)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_large_scores(ours, dtype):
    """exp of these scores would overflow if the maximum were not subtracted."""
    q, k, v = three((1, 2, 33, 64), dtype=dtype)
    check(ours, q * 60, k, v, gradients=False)


def test_autocast(ours, device):
    q, k, v = three((2, 2, 9, 16))
    mask = torch.randn(9, 9)
    with torch.autocast(device.type, torch.bfloat16):
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    narrow = [t.bfloat16() for t in (q, k, v)]
    assert_close(out, by_definition(*(t.double() for t in narrow), attn_mask=mask.double()),
                 by_definition(*narrow, attn_mask=mask), "out")
    assert out.dtype is torch.bfloat16 and ours


def test_deterministic_algorithms():
    leaves = [t.requires_grad_() for t in three((2, 2, 65, 16))]
    torch.use_deterministic_algorithms(True)
    try:
        first, second = (torch.autograd.grad(F.scaled_dot_product_attention(*leaves).square().sum(), leaves)
                         for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(map(torch.equal, first, second))


# TestSDPAFailureModes: what may not fail, or fail otherwise


def test_views_of_all_kinds(ours):
    """Tensors that are unaligned, expanded, sliced or permuted, or have single rows with meaningless strides."""
    base = torch.randn(2 * 2 * 9 * 16 + 1)
    unaligned = base[1:].view(2, 2, 9, 16)
    expanded = torch.randn(1, 1, 9, 16).expand(2, 2, 9, 16)
    sliced = torch.randn(2, 2, 18, 40)[:, :, ::2, 8:24]
    permuted = torch.randn(16, 9, 2, 2).permute(3, 2, 1, 0)
    for tensors in itertools.permutations((unaligned, expanded, sliced, permuted), 3):
        check(ours, *tensors)
    single = torch.randn(2, 2, 1, 16).as_strided((2, 2, 1, 16), (32, 16, 999, 1))
    check(ours, single, sliced, sliced)
    thin = torch.randn(1, 1, 2, 4).mT[..., :1]  # a head_dim of 1 whose stride is not 1
    check(ours, thin, thin, thin)


def test_gradients_that_are_expanded_or_strided():
    tensors = three((2, 2, 9, 16))
    for weights in (torch.ones(()).expand(2, 2, 9, 16), torch.randn(2, 2, 16, 9).mT,
                    torch.randn(2, 9, 2, 16).transpose(1, 2)):
        results = []
        for function, dtype in ((F.scaled_dot_product_attention, torch.float32), (by_definition, torch.float64)):
            leaves = [t.to(dtype).requires_grad_() for t in tensors]
            results.append(torch.autograd.grad(function(*leaves), leaves, weights.to(dtype)))
        for a, b in zip(*results):
            torch.testing.assert_close(a.double(), b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("how", ["bool", "float", "infinite column"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_that_see_nothing(ours, how, dtype):
    """Rows that see no key are 0, their gradients are 0, and other rows have no NaN."""
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[1] = mask[4] = False
    if how == "infinite column":
        mask[:, 3] = False
    used = mask if how == "bool" else torch.zeros(5, 7, dtype=dtype).masked_fill(~mask, -torch.inf)
    got = check(ours, *three((2, 2, 5, 16), (2, 2, 7, 16), dtype=dtype), attn_mask=used)
    assert not got[0][:, :, [1, 4]].any() and not got[1][:, :, [1, 4]].any()
    assert all(t.isfinite().all() for t in got)


@pytest.mark.parametrize("q, k", [((0, 2, 5, 8), (0, 2, 7, 8)), ((2, 2, 0, 8), (2, 2, 7, 8)),
                                  ((2, 2, 5, 8), (2, 2, 0, 8))], ids=["no batch", "no queries", "no keys"])
def test_empty(q, k):
    leaves = [t.requires_grad_() for t in three(q, k)]
    out = F.scaled_dot_product_attention(*leaves)
    assert out.shape == q and not out.any()
    assert not any(grad.any() for grad in torch.autograd.grad(out.sum(), leaves))


def test_dimensions_that_pytorch_refuses():
    with pytest.raises(RuntimeError, match="at least 2 dim"):
        F.scaled_dot_product_attention(*three((8,)))
    with pytest.raises(RuntimeError, match="same dtype"):
        F.scaled_dot_product_attention(torch.randn(2, 3, 8), *three((2, 3, 8), dtype=torch.bfloat16)[:2])


def test_not_a_number_spreads_as_it_should():
    """NaN goes from a key to every row that sees it and from a query to its own row, but not past a causal mask."""
    q, k, v = three((1, 1, 6, 8))
    k[0, 0, 3] = torch.nan
    q[0, 0, 1] = torch.nan
    seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).isnan().all(-1)[0, 0]
    assert seen.tolist() == [False, True, False, True, True, True]
