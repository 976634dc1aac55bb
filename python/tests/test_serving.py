"""attention on a cache and with what else serving asks for, against attention of each sequence by itself in fp64."""

import pytest
import torch

import flashtile
from flashtile._serving import _NAMES, append_op, serve_op
from flashtile._options import CallOptions
from flashtile.flash_attn import _functional, flash_attn_varlen_func, flash_attn_with_kvcache


def on_device(given, device):
    """Arguments that were made before there was a default device. CUDA reads no values of lists."""
    return {name: value.to(device) if isinstance(value, torch.Tensor) else
            flashtile.Append(**on_device(value._asdict(), device)) if isinstance(value, flashtile.Append) else value
            for name, value in given.items()}


def reference(q, k, v, allowed, sink=None, scale=None):
    """One sequence: q (n, heads, d), k and v (m, kv_heads, ..), allowed (n, m) or (heads, n, m)."""
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.double().transpose(0, 1) for x in (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores.masked_fill(~allowed, -torch.inf)
    every = scores
    if sink is not None:
        every = torch.cat([scores, sink.double()[:, None, None].expand(*scores.shape[:2], 1)], -1)
    lse = torch.logsumexp(every, -1)
    weights = (scores - lse[..., None]).exp().masked_fill(~allowed, 0.0)
    return (weights @ v).transpose(0, 1), lse


def causal(n, m):
    return torch.arange(m)[None] <= torch.arange(n)[:, None] + (m - n)


def pages_of(lengths, page_size, *tensors):
    """Each of the tensors (batch, seqlen, ..) as pages in random order, and their table; pages of nobody are NaN."""
    batch, seqlen, *_ = tensors[0].shape
    table = torch.full((batch, seqlen // page_size + 2), -5, dtype=torch.int32)
    count = [-(-n // page_size) for n in lengths]
    order = torch.randperm(sum(count) + 2).tolist()
    pages = [torch.full((len(order), page_size, *t.shape[2:]), torch.nan, dtype=t.dtype) for t in tensors]
    for b, n in enumerate(lengths):
        for page in range(count[b]):
            table[b, page] = place = order.pop()
            for to, t in zip(pages, tensors):
                rows = t[b, page * page_size:min((page + 1) * page_size, n)]
                to[place, :len(rows)] = rows
    return *pages, table


@pytest.mark.parametrize("page_size", [1, 16, 50])
@pytest.mark.parametrize("dtype,tolerance", [(torch.float32, 5e-6), (torch.bfloat16, 1e-2)])
def test_packed_queries_on_pages(page_size, dtype, tolerance):
    lengths_q, lengths = [1, 70, 3], [300, 90, 33]
    q = torch.randn(sum(lengths_q), 4, 32).to(dtype)
    k, v = (torch.randn(3, 300, 2, 32).to(dtype) for _ in range(2))
    pages_k, pages_v, table = pages_of(lengths, page_size, k, v)
    sinks = torch.randn(4)
    cu = torch.tensor([0, 1, 71, 74], dtype=torch.int32)
    out, lse = flashtile.attention(q, pages_k, pages_v, causal=True, cu_seqlens_q=cu, max_seqlen_q=70,
                                   block_table=table, seqused_k=torch.tensor(lengths, dtype=torch.int32), sinks=sinks,
                                   return_lse=True)
    for b, (n, m) in enumerate(zip(lengths_q, lengths)):
        rows = slice(int(cu[b]), int(cu[b + 1]))
        expected, expected_lse = reference(q[rows], k[b, :m], v[b, :m], causal(n, m), sinks)
        torch.testing.assert_close(out[rows].double(), expected, atol=tolerance, rtol=tolerance)
        torch.testing.assert_close(lse[:, rows].double(), expected_lse, atol=1e-5, rtol=1e-5)


def test_first_keys_used_queries_trees_and_chunks():
    q, k, v = (torch.randn(2, n, 2, 16) for n in (6, 40, 40))
    tree = torch.rand(2, 1, 6, 6) < 0.5
    first, used = torch.tensor([0, 11], dtype=torch.int32), torch.tensor([6, 4], dtype=torch.int32)
    out = flashtile.attention(q, k, v, causal=True, first_k=first, seqused_q=used, attention_chunk=24)
    grown = flashtile.attention(q, k, v, tree_mask=tree)
    for b, n in enumerate(used.tolist()):
        position = torch.arange(n)[:, None] + 40 - n
        keys = torch.arange(40)[None]
        allowed = (keys <= position) & (keys >= int(first[b])) & (keys // 24 == position // 24)
        expected, _ = reference(q[b, :n], k[b], v[b], allowed)
        torch.testing.assert_close(out[b, :n].double(), expected, atol=5e-6, rtol=5e-6)
        assert not out[b, n:].any()
        allowed = torch.cat([torch.ones(6, 34, dtype=torch.bool), tree[b, 0]], 1)
        expected, _ = reference(q[b], k[b], v[b], allowed)
        torch.testing.assert_close(grown[b].double(), expected, atol=5e-6, rtol=5e-6)


@pytest.mark.parametrize("given, message", [
    ({"block_table": torch.zeros(1, 1, dtype=torch.int32)}, "no gradient with block_table"),
    ({"first_k": torch.zeros(1, dtype=torch.int32)}, "no gradient with first_k"),
    ({"tree_mask": torch.ones(1, 1, 4, 4, dtype=torch.bool), "positions": torch.zeros(1, 4, dtype=torch.int32)},
     "no gradient with tree_mask, positions"),
    ({"seqused_k": torch.zeros(1, dtype=torch.int32), "append": flashtile.Append(torch.zeros(1, 1, 2, 16))},
     "no gradient with append"),
], ids=lambda value: "-".join(value) if isinstance(value, dict) else "")
def test_gradients_are_refused_by_name(given, message, device):
    q, k, v = (torch.randn(1, 4, 2, 16) for _ in range(3))
    given = on_device(given, device)
    with pytest.raises(NotImplementedError, match=message):
        flashtile.attention(q.requires_grad_(), k, v, **given)
    if "append" in given:
        with pytest.raises(NotImplementedError, match=message):
            flashtile.attention(q.detach(), k, v, **given | {"append": flashtile.Append(k[:, :1].requires_grad_())})


@pytest.mark.parametrize("given, kind, message", [
    ({"first_k": torch.zeros(1, dtype=torch.int32), "dropout_p": 0.5}, NotImplementedError, "dropout_p is given"),
    ({"block_table": 7}, TypeError, "block_table is a int, allowed is a torch.Tensor"),
    ({"first_k": torch.zeros(1, dtype=torch.float64)}, TypeError, "first_k.dtype is torch.float64, allowed is torch.i"),
    ({"positions": torch.zeros(1, 4, dtype=torch.int32)}, ValueError, "positions is given without tree_mask"),
    ({"prefix_groups": torch.zeros(2, dtype=torch.int32), "prefix_lengths": torch.zeros(1, dtype=torch.int32)},
     ValueError, "prefix_groups is given without block_table"),
    ({"prefix_lengths": torch.zeros(1, dtype=torch.int32)}, ValueError,
     "prefix_lengths is given without prefix_groups"),
    ({"append": 3}, TypeError, "append is a int, allowed is None or a flashtile.Append"),
    ({"append": flashtile.Append(None)}, TypeError, "append.k is a NoneType, allowed is a torch.Tensor"),
    ({"append": flashtile.Append(torch.zeros(1, 1, 2, 16), 5)}, TypeError, "append.v is a int"),
    ({"attention_chunk": 2.5}, TypeError, r"attention_chunk is 2.5, allowed is 0 \(off\) or the length of a chunk"),
    ({"attention_chunk": -1}, ValueError, "attention_chunk is -1"),
    ({"num_splits": 1 << 40}, TypeError, "num_splits is 1099511627776, allowed"),
    ({"sm_limit": -1}, ValueError, "sm_limit is -1"),
], ids=lambda value: "-".join(value) if isinstance(value, dict) else "")
def test_errors(given, kind, message, device):
    q, k, v = (torch.randn(1, 4, 2, 16) for _ in range(3))
    with pytest.raises(kind, match=message):
        flashtile.attention(q, k, v, **on_device(given, device))


def test_a_page_that_is_none_is_an_error_on_the_cpu(device):
    if device.type != "cpu":
        pytest.skip("tables on a GPU are not read")
    q, pages = torch.randn(1, 4, 2, 16), torch.randn(1, 4, 2, 16)
    with pytest.raises(ValueError, match=r"block_table\[0, 0\] is 7, allowed is 0 to 0"):
        flashtile.attention(q, pages, pages, block_table=torch.tensor([[7]], dtype=torch.int32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("packed", [False, True])
def test_gradient_of_sinks(packed, dtype):
    """Against autograd through the definition in fp64. Some queries see no key: their lse is the sink."""
    lengths = [(5, 3), (4, 9)] if packed else [(5, 9), (5, 9)]
    q, k, v = (torch.randn(2, 9, heads, 16).requires_grad_() for heads in (4, 2, 2))
    sinks = torch.randn(4).to(dtype).requires_grad_()
    dout, dlse = torch.randn(2, 9, 4, 16), torch.randn(2, 4, 9)
    wide = [t.detach().double().requires_grad_() for t in (q, k, v, sinks)]
    loss, expected_loss = 0.0, 0.0
    cu = [torch.tensor([0, lengths[0][side], lengths[0][side] + lengths[1][side]]) for side in (0, 1)]
    rows = [torch.cat([t[b, :lengths[b][side]] for b in range(2)]) for t, side in ((q, 0), (k, 1), (v, 1))]
    used = [t[:, :lengths[0][side]] for t, side in ((q, 0), (k, 1), (v, 1))]
    if packed:
        out, lse = flashtile.attention(*(t.to(dtype) for t in rows), causal=True, sinks=sinks, return_lse=True,
                                       cu_seqlens_q=cu[0], cu_seqlens_k=cu[1], max_seqlen_q=5, max_seqlen_k=9)
    else:
        out, lse = flashtile.attention(*(t.to(dtype) for t in used), causal=True, sinks=sinks, return_lse=True)
    for b, (n, m) in enumerate(lengths):
        expected, expected_lse = reference(wide[0][b, :n], wide[1][b, :m], wide[2][b, :m], causal(n, m), wide[3])
        got = (out[cu[0][b]:cu[0][b + 1]], lse[:, cu[0][b]:cu[0][b + 1]]) if packed else (out[b], lse[b])
        loss = loss + (got[0] * dout[b, :n]).sum() + (got[1] * dlse[b, :, :n]).sum()
        expected_loss = expected_loss + (expected * dout[b, :n]).sum() + (expected_lse * dlse[b, :, :n]).sum()
    tolerance = 2e-5 if dtype is torch.float32 else 0.05
    for got, wanted in zip(torch.autograd.grad(loss, (q, k, v, sinks)), torch.autograd.grad(expected_loss, wide)):
        torch.testing.assert_close(got.double(), wanted, atol=tolerance, rtol=tolerance)


def test_gradient_of_sinks_alone_compiled_and_transformed():
    q, k, v = (torch.randn(1, 6, 2, 16) for _ in range(3))
    sinks = torch.randn(2, requires_grad=True)

    def loss(sinks):
        return flashtile.attention(q, k, v, causal=True, sinks=sinks).square().sum()

    (expected,) = torch.autograd.grad(loss(sinks), sinks)
    assert expected.abs().min() > 1e-3
    (compiled,) = torch.autograd.grad(torch.compile(loss, fullgraph=True, backend="aot_eager")(sinks), sinks)
    torch.testing.assert_close(compiled, expected)
    torch.testing.assert_close(torch.func.grad(loss)(sinks.detach()), expected)


def test_gradients_with_chunks():
    q, k, v = (torch.randn(1, 11, 2, 16, requires_grad=True) for _ in range(3))
    wide = [t.detach().double().requires_grad_() for t in (q, k, v)]
    at = torch.arange(11)
    expected, _ = reference(*(t[0] for t in wide), causal(11, 11) & (at[:, None] // 4 == at // 4))
    got = flashtile.attention(q, k, v, causal=True, attention_chunk=4)
    for a, b in zip(torch.autograd.grad(got.square().sum(), (q, k, v)),
                    torch.autograd.grad(expected.square().sum(), wide)):
        torch.testing.assert_close(a.double(), b, atol=2e-5, rtol=2e-5)


def test_positions_of_a_tree_and_a_limit_of_multiprocessors():
    """Two branches whose queries have the same positions, under a window that counts positions."""
    q, k, v = (torch.randn(1, n, 2, 16) for n in (4, 20, 20))
    tree = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]], dtype=torch.bool)[None, None]
    depth = torch.tensor([[16, 17, 17, 18]], dtype=torch.int32)
    out = flashtile.attention(q, k, v, causal=True, window=(5, 0), tree_mask=tree, positions=depth, sm_limit=7)
    at = torch.cat([torch.arange(16), depth[0]])  # a key's position
    distance = depth[0][:, None] - at
    allowed = (distance >= 0) & (distance <= 5)
    allowed[:, 16:] &= tree[0, 0]
    expected, _ = reference(q[0], k[0], v[0], allowed)
    torch.testing.assert_close(out[0].double(), expected, atol=5e-6, rtol=5e-6)


def test_a_shared_prefix():
    """Sequences 0 and 1 share 32 keys, which the table of sequence 0 names; the other's entries there are no pages."""
    q, keys = torch.randn(3, 1, 4, 16), torch.randn(3, 60, 2, 16)
    keys[1, :32] = keys[0, :32]
    lengths = [40, 60, 17]
    pages, table = pages_of(lengths, 16, keys)
    table[1, :2] = -7
    out = flashtile.attention(q, pages, pages, block_table=table, seqused_k=torch.tensor(lengths, dtype=torch.int32),
                              prefix_groups=torch.tensor([0, 2], dtype=torch.int32),
                              prefix_lengths=torch.tensor([32], dtype=torch.int32))
    for b, n in enumerate(lengths):
        expected, _ = reference(q[b], keys[b, :n], keys[b, :n], causal(1, n))
        torch.testing.assert_close(out[b].double(), expected, atol=5e-6, rtol=5e-6)


def rotary():
    angles = torch.rand(64, 8)
    return {"rotary_cos": angles.cos(), "rotary_sin": angles.sin()}


@pytest.mark.parametrize("cache", ["dense", "rows", "pages", "slots"])
@pytest.mark.parametrize("case", ["plain", "rotated", "causal", "packed"])
def test_appending_first_has_the_bits_of_two_calls(cache, case, device):
    q, k, v = torch.randn(2, 3, 4, 16), torch.randn(2, 3, 2, 16), torch.randn(2, 3, 2, 24)
    lengths = torch.tensor([5, 11], dtype=torch.int32)
    shape = {"dense": (2, 32), "rows": (5, 32)}.get(cache, (6, 8))
    caches = [torch.randn(*shape, 2, 16), torch.randn(*shape, 2, 24)]
    where = {"rows": {"cache_batch_idx": torch.tensor([4, 1])},
             "dense": {}}.get(cache, {"block_table": torch.tensor([[5, 0], [2, 3]], dtype=torch.int32)})
    fields = {} if case == "plain" else rotary()
    options = {"causal": case in ("causal", "packed")}
    packed_q, more = {}, {}
    if case == "packed":
        cu, cu_q = torch.tensor([0, 4, 6], dtype=torch.int32), torch.tensor([0, 1, 6], dtype=torch.int32)
        q, k, v = (t.flatten(0, 1) for t in (q, k, v))
        fields["cu_seqlens_k_new"], packed_q, more = cu, {"cu_seqlens_q": cu_q}, {"max_seqlen_q": 5}
        fields["positions_q"] = torch.tensor([9, 1, 2, 3, 4, 60])
    placed = dict(where)
    if cache == "slots":
        new = torch.tensor([5 * 8 + 5, 5 * 8 + 6, 5 * 8 + 7, 0, 3 * 8 + 3, 3 * 8 + 4])
        if case != "packed":
            new = torch.tensor([45, 46, 47, 27, 28, 29]).view(2, 3)
        fields["slots"] = new
        placed = {}
    two, one = [c.clone() for c in caches], [c.clone() for c in caches]
    queries = {"q": q, **packed_q} if "rotary_cos" in fields else {}
    split = {key: value for key, value in fields.items() if key != "positions_q" or queries}
    rotated = flashtile.append_kv(*two, k, v, cache_seqlens=lengths, **placed, **split, **queries, **options)
    added = torch.tensor([4, 2]) if case == "packed" else 3
    expected = flashtile.attention(q if rotated is None else rotated, *two, seqused_k=(lengths + added).int(), **where,
                                   **packed_q, **more, **options, return_lse=True)
    before, q_out = q.clone(), torch.empty_like(q)
    for append in (flashtile.Append(k, v, **fields),
                   *([flashtile.Append(k, v, **fields, q_out=q_out)] if queries else [])):
        got = flashtile.attention(q, *one, append=append, seqused_k=lengths, **where, **packed_q, **more, **options,
                                  return_lse=True)
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
        if device.type == "cuda" and cache == "dense" and case != "packed":  # the second call's names no cache
            torch.testing.assert_close(got, expected, atol=5e-6, rtol=5e-6)
        else:
            assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
        assert torch.equal(q, before) and not torch.equal(one[0], caches[0])
    assert not queries or torch.equal(q_out, rotated)


def test_strides_that_the_library_cannot_read():
    """Queries and new keys whose innermost dimension is not contiguous, slots whose rows lie apart, and afterwards the
    same layouts with other values: filled structs are used again."""
    def step(make, cache):
        rows = slots if make is apart else slots.clone()
        append = flashtile.Append(make(new), make(new), slots=rows, **turns)
        return flashtile.attention(make(q), cache, cache.clone(), append=append, seqused_k=lengths,
                                   block_table=torch.tensor([[0], [1]], dtype=torch.int32))

    def apart(t):
        return t.repeat_interleave(2, -1)[..., ::2]

    slots, lengths = torch.tensor([[3, 4, 5, 9], [16, 17, 18, 9]])[:, :3], torch.tensor([3, 0], dtype=torch.int32)
    turns = rotary()
    for _ in range(3):
        q, new, cache = torch.randn(2, 3, 4, 16), torch.randn(2, 3, 2, 16), torch.randn(2, 16, 2, 16)
        two = [cache.clone(), cache.clone()]
        assert torch.equal(step(apart, two[0]), step(torch.clone, two[1]))
        assert torch.equal(*two) and torch.equal(two[0][0, :3], cache[0, :3]) and not torch.equal(two[0], cache)


def test_threads_with_the_same_layout():
    from concurrent.futures import ThreadPoolExecutor
    caches = [(torch.randn(1, 1, 2, 16), torch.randn(1, 33, 2, 16)) for _ in range(40)]
    first = torch.tensor([3], dtype=torch.int32)

    def step(problem):
        return flashtile.attention(problem[0], problem[1], problem[1], first_k=first)

    expected = [step(problem) for problem in caches]
    with ThreadPoolExecutor(8) as pool:
        for got, wanted in zip(pool.map(step, caches * 5), expected * 5):
            assert torch.equal(got, wanted)


def test_appending_to_one_latent_cache():
    """v is a view of k, as in MLA; there is nothing to append for it."""
    latent, k, q = torch.zeros(4, 16, 1, 48), torch.randn(2, 1, 1, 48), torch.randn(2, 1, 4, 48)
    table, lengths = torch.tensor([[3], [1]], dtype=torch.int32), torch.tensor([0, 2], dtype=torch.int32)
    latent[1, :2] = torch.randn(2, 1, 48)
    out = flashtile.attention(q, latent, latent[..., :32], append=flashtile.Append(k), block_table=table,
                              seqused_k=lengths)
    assert torch.equal(latent[3, 0], k[0, 0]) and torch.equal(latent[1, 2], k[1, 0])
    for b, n in enumerate((1, 3)):
        rows = latent[table[b, 0], :n]
        expected, _ = reference(q[b], rows, rows[..., :32], causal(1, n))
        torch.testing.assert_close(out[b].double(), expected, atol=5e-6, rtol=5e-6)


def test_appending_compiles_and_passes_opcheck():
    q, k, cache = torch.randn(2, 1, 4, 16), torch.randn(2, 1, 2, 16), torch.randn(2, 32, 2, 16)
    lengths = torch.tensor([5, 11], dtype=torch.int32)

    turns = rotary()

    def step(q, k, k_cache, v_cache, lengths):
        append = flashtile.Append(k * 2, k, **turns)
        return flashtile.attention(q, k_cache, v_cache, append=append, seqused_k=lengths, causal=True) + 1

    caches = [cache.clone() for _ in range(4)]
    expected = step(q, k, *caches[:2], lengths)
    got = torch.compile(step, fullgraph=True, backend="aot_eager")(q, k, *caches[2:], lengths)
    assert torch.equal(got, expected)
    assert torch.equal(caches[0], caches[2]) and torch.equal(caches[1], caches[3])
    assert not torch.equal(caches[0], cache)
    none, out, lse = None, torch.empty_like(q), torch.empty(2, 4, 1)
    given = (q, *caches[:2], *[none] * 5, lengths, *[none] * (len(_NAMES) - 9))
    torch.library.opcheck(serve_op, (*given, *CallOptions(), out, lse))
    torch.library.opcheck(append_op, (*given, k, k, *[none] * 7, none, 0, False, *CallOptions(), out, lse))


def test_a_cache_that_autograd_saved_is_known_to_have_changed():
    cache, k = torch.randn(1, 8, 2, 16), torch.randn(1, 1, 2, 16)
    product = (cache * torch.randn(16, requires_grad=True)).sum()
    with torch.no_grad():
        flashtile.attention(k, cache, cache.clone(), append=flashtile.Append(k, k),
                            seqused_k=torch.tensor([3], dtype=torch.int32))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_nothing_is_written_where_a_row_has_no_place(device):
    if device.type != "cpu":
        pytest.skip("lengths on a GPU are not read")
    q, cache = torch.randn(1, 1, 2, 16), torch.zeros(1, 8, 2, 16)
    with pytest.raises(ValueError, match="is 8, allowed is at most 7"):
        flashtile.attention(q, cache, cache.clone(), append=flashtile.Append(q, q),
                            seqused_k=torch.tensor([8], dtype=torch.int32))
    assert not cache.any()


def test_tensors_without_memory():
    q, pages = torch.empty(2, 1, 4, 16, device="meta"), torch.empty(5, 8, 2, 16, device="meta")
    table, lengths = (torch.empty(*shape, dtype=torch.int32, device="meta") for shape in ((2, 3), (2,)))
    for append in (None, flashtile.Append(q[:, :, :2], q[:, :, :2])):
        out, lse = flashtile.attention(q, pages, pages, append=append, block_table=table, seqused_k=lengths,
                                       return_lse=True)
        assert out.is_meta and out.shape == q.shape and lse.is_meta and lse.shape == (2, 4, 1)
    out = flash_attn_with_kvcache(q, pages, pages, cache_seqlens=lengths, block_table=table)
    assert out.is_meta and out.shape == q.shape


def test_compiled_and_traced():
    q, k, v = (torch.randn(1, 4, 2, 16) for _ in range(3))
    sinks = torch.randn(2)

    def function(q, k, v):
        return flashtile.attention(q, k, v, causal=True, sinks=sinks) * 2

    torch.testing.assert_close(torch.compile(function, fullgraph=True, backend="aot_eager")(q, k, v), function(q, k, v))


@pytest.mark.parametrize("num_splits", [0, 3])
def test_flash_attn_reads_pages_where_they_lie(num_splits, monkeypatch):
    """There are far more pages than memory, and nothing copies those that the table names."""
    monkeypatch.setattr(_functional, "rows_of_pages", None)
    page = torch.randn(1, 16, 2, 16)
    pages = page.expand(1 << 30, 16, 2, 16)
    q = torch.randn(1, 1, 2, 16)
    table = torch.tensor([[(1 << 30) - 1, 5]], dtype=torch.int32)
    out = flash_attn_with_kvcache(q, pages, pages, cache_seqlens=20, block_table=table, causal=True,
                                  num_splits=num_splits)
    keys = torch.cat([page[0], page[0]])[:20]
    expected, _ = reference(q[0], keys, keys, causal(1, 20))
    torch.testing.assert_close(out[0].double(), expected, atol=5e-6, rtol=5e-6)
    cu_q, cu_k = torch.tensor([0, 1], dtype=torch.int32), torch.tensor([0, 20], dtype=torch.int32)
    packed = flash_attn_varlen_func(q[0], pages, pages, cu_q, cu_k, 1, 20, causal=True, block_table=table)
    torch.testing.assert_close(packed.double(), expected, atol=5e-6, rtol=5e-6)
