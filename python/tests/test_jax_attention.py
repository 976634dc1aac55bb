"""flashtile.jax.attention against dense attention in fp64: options, derivatives, packed batches, dropout, functions,
caches."""

import inspect

import numpy as np
import pytest
import torch
from jax_cases import array, compare, jax, jnp, problem, to_torch, with_sinks
from oracle import assert_close, dense
from test_block_lists import CASES as LISTS, SIZE, meaning

import flashtile
import flashtile.jax as fj
import flashtile.numpy as fn
from flashtile._call import dropout_mask

SLOPES = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
OPTIONS = {  # ours, and the oracle's where it says the same otherwise
    "plain": ({}, {}),
    "causal": ({"causal": True}, {}),
    "top-left": ({"causal": True, "align": "top-left"}, {}),
    "window": ({"window": (9, 4)}, {}),
    "scale, softcap": ({"scale": 0.3, "softcap": 2.0}, {}),
    "alibi": ({"alibi_slopes": SLOPES}, {}),
    "mask": ({"mask": np.arange(53) % 3 > 0}, {}),
    "one mask": ({"mask": np.array(True)}, {}),
    "chunks": ({"causal": True, "align": "top-left", "attention_chunk": 11},
               {"mask": torch.arange(37)[:, None] // 11 == torch.arange(53) // 11}),
    "diagonal": ({"causal": True, "diagonal": -3}, {"causal": False, "mask": (
        torch.arange(53) <= torch.arange(37)[:, None] + 16 - 3)}),
    "diagonals": ({"causal": True, "diagonal": np.array([-21, 8], np.int32)}, {"causal": False, "mask": (
        torch.arange(53) <= torch.arange(37)[:, None] + 16 + torch.tensor([-21, 8])[:, None, None])[:, None]}),
    "flags": ({"deterministic": True, "batch_invariant": True, "exact_max": True}, {}),
    "used keys": ({"seqused_k": np.array([20, 53], np.int32)},
                  {"mask": (torch.arange(53) < torch.tensor([20, 53])[:, None])[:, None, None]}),
    "score function": ({"score": "s - slopes[h] * abs(i - j)", "tensors": {"slopes": SLOPES}},
                       {"bias": -torch.from_numpy(SLOPES)[:, None, None] *
                        (torch.arange(37)[:, None] - torch.arange(53)).abs()}),
    "mask function": ({"mask": "i >= j"}, {"causal": True, "align": "top-left"}),
}


def oracles(ours, theirs):
    known = inspect.signature(dense).parameters
    return {key: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for key, value in ours.items()
            if key in known and (key, type(value)) != ("mask", str)} | theirs


@pytest.mark.parametrize("name", OPTIONS)
def test_options(name):
    ours, theirs = OPTIONS[name]
    compare(jax.jit(lambda q, k, v: fj.attention(q, k, v, return_lse=True, **ours)), problem(),
            lambda q, k, v: dense(q, k, v, **oracles(ours, theirs)), name)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_16_bits(dtype):
    compare(lambda q, k, v: fj.attention(q, k, v, causal=True, return_lse=True), problem(d=32, dv=32, dtype=dtype),
            lambda q, k, v: dense(q, k, v, causal=True), str(dtype))


@pytest.mark.parametrize("shape", [(4, 37, 53), (2, 1, 37, 53), (37, 1), ()])
def test_a_bias_gets_its_gradient(shape):
    compare(lambda q, k, v, bias: fj.attention(q, k, v, bias=bias, causal=True, return_lse=True),
            (*problem(), array(*shape)), lambda q, k, v, bias: dense(q, k, v, bias=bias, causal=True), f"bias {shape}")


def test_sinks_get_their_gradient():
    compare(lambda q, k, v, sinks: fj.attention(q, k, v, sinks=sinks, return_lse=True), (*problem(), array(4)),
            with_sinks, "sinks")


def test_tensors_of_functions_get_their_gradient():
    if jax.default_backend() != "cpu":
        pytest.skip("the library has this gradient on the CPU only")
    distance = (torch.arange(37)[:, None] - torch.arange(53)).abs()
    compare(lambda q, k, v, slopes: fj.attention(q, k, v, score="s - slopes[h] * abs(i - j)",
                                                 tensors={"slopes": slopes}, return_lse=True),
            (*problem(), jnp.asarray(SLOPES)),
            lambda q, k, v, slopes: dense(q, k, v, bias=-slopes[:, None, None] * distance), "slopes")


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_blocks(name):
    partial, full, mask = LISTS[name]
    lists = flashtile.BlockLists(*(None if t is None else t.cpu().numpy() for t in (*partial, *full)), SIZE)
    at = torch.meshgrid(*(torch.arange(n, device="cpu") for n in (2, 4, 150, 210)), indexing="ij")
    seen = meaning(partial, full, mask)(*at)
    compare(jax.jit(lambda q, k, v: fj.attention(q, k, v, mask=None if mask is None else "(i + j) % 3 != 0",
                                                 block_lists=lists, return_lse=True)),
            problem(rows=150, keys=210), lambda q, k, v: dense(q, k, v, mask=seen), name)


def test_only_the_result_or_only_lse():
    q, k, v = problem()
    for at in (0, 1):
        got = jax.grad(lambda q: (fj.attention(q, k, v, return_lse=True)[at] ** 2).sum())(q)
        wide = to_torch(q).double().requires_grad_()
        wanted, = torch.autograd.grad((dense(wide, *(to_torch(x).double() for x in (k, v)))[at] ** 2).sum(), wide)
        np.testing.assert_allclose(got, wanted, atol=1e-4, rtol=1e-4)


def test_packed():
    q, k, v = array(34, 4, 16), array(38, 2, 16), array(38, 2, 16)
    cu_q, cu_k = (np.cumsum((0, *lengths)).astype(np.int32) for lengths in ((7, 0, 20, 5), (9, 4, 20, 3)))
    used = np.array([9, 4, 11, 3], np.int32)

    def ours(q, k, v):
        out, lse = fj.attention(q, k, v, causal=True, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, max_seqlen_q=20,
                                max_seqlen_k=20, seqused_k=used, return_lse=True)
        return out, lse

    def theirs(q, k, v):
        made = [dense(q[None, cu_q[b]:cu_q[b + 1]], k[None, cu_k[b]:cu_k[b] + n], v[None, cu_k[b]:cu_k[b] + n],
                      causal=True) for b, n in enumerate(used)]
        out, lse = torch.cat([out[0] for out, _ in made]), torch.cat([lse[0] for _, lse in made], -1)
        return torch.nn.functional.pad(out, (0, 0, 0, 0, 0, 2)), torch.nn.functional.pad(lse, (0, 2))

    compare(jax.jit(ours), (q, k, v), theirs, "packed")
    with jax.debug_nans(False):
        _, pull = jax.vjp(ours, q, k, v)
        dq, dk, _ = pull((jnp.ones((34, 4, 16)), jnp.ones((4, 34))))
    assert not dq[32:].any() and not dk[36:].any()


WORDS = (jnp.array([7, 1], jnp.uint32), jnp.array([11, 0], jnp.uint32))  # 2^32 + 7, and 11


def test_dropout_has_the_bits_of_the_other_faces():
    q, k, v = problem()
    out = jax.jit(lambda seed, offset: fj.attention(q, k, v, dropout_p=0.3, seed=seed, offset=offset))(*WORDS)
    wanted = fn.attention(*map(np.asarray, (q, k, v)), dropout_p=0.3, seed=(2**32 + 7, 11))
    if jax.default_backend() == "cpu":
        np.testing.assert_array_equal(out, wanted)
    else:  # NumPy's arrays lie on the CPU, which rounds otherwise
        np.testing.assert_allclose(out, wanted, atol=1e-6)


def test_dropout_and_its_gradient():
    keep = torch.empty(2, 4, 37, 53, dtype=torch.bool)
    dropout_mask(0.3, torch.tensor([2**32 + 7, 11]), keep)
    compare(lambda q, k, v: fj.attention(q, k, v, dropout_p=0.3, seed=WORDS[0], offset=WORDS[1], return_lse=True),
            problem(), lambda q, k, v: dense(q, k, v, keep=keep, dropout_p=0.3), "dropout")


@pytest.mark.parametrize("kind, words", [("threefry2x32", 2), ("rbg", 4)])
def test_a_key_is_seed_and_offset(kind, words):
    q, k, v = problem()
    key = jax.random.key(2**40 + 3, impl=kind)
    data = jax.random.key_data(key)
    assert data.shape == (words,)
    offset = jnp.pad(data[2:3], (0, 1)) if words == 4 else None
    by_words = fj.attention(q, k, v, dropout_p=0.5, seed=data[:2], offset=offset)
    for given in (key, data):  # old and new style
        np.testing.assert_array_equal(fj.attention(q, k, v, dropout_p=0.5, key=given), by_words)
    assert not np.array_equal(fj.attention(q, k, v, dropout_p=0.5, key=jax.random.key(1, impl=kind)), by_words)


def test_a_cache_of_pages():
    q, k, v = array(2, 3, 4, 16), array(6, 16, 2, 16), array(6, 16, 2, 16)
    table, used = np.array([[4, 1, 0], [2, 5, 3]], np.int32), np.array([35, 17], np.int32)
    out, lse = jax.jit(lambda q: fj.attention(q, k, v, causal=True, block_table=table, seqused_k=used,
                                              return_lse=True))(q)
    for b, n in enumerate(used):
        keys, values = (to_torch(x)[table[b]].flatten(0, 1)[None, :n] for x in (k, v))
        wide, standard = ([dense(t.to(kind)[None, b], keys.to(kind), values.to(kind), causal=True)
                           for t in [to_torch(q)]][0] for kind in (torch.float64, torch.float32))
        assert_close(to_torch(out)[b:b + 1], wide[0], standard[0], "out", 1e-6)
        assert_close(to_torch(lse)[b:b + 1], wide[1], standard[1], "lse", 1e-6)


def test_unused_queries_are_zero():
    q, k, v = problem()
    used = np.array([5, 37], np.int32)
    out = fj.attention(q, k, v, seqused_q=used)
    assert not out[0, 5:].any() and out[0, :5].all() and out[1].all()


def test_appending_returns_the_caches():
    q, new = array(2, 1, 4, 16), array(2, 1, 2, 16)
    caches = np.array(array(2, 40, 2, 16)), np.array(array(2, 40, 2, 16)) + 1
    lengths = np.array([30, 7], np.int32)
    step = jax.jit(lambda q, k, v, new: fj.attention(q, k, v, causal=True, seqused_k=lengths,
                                                     append=flashtile.Append(new, 2 * new)), donate_argnums=(1, 2))
    out, k, v = step(q, *map(jnp.asarray, caches), new)
    for b, n in enumerate(lengths):
        caches[0][b, n], caches[1][b, n] = new[b, 0], 2 * new[b, 0]
    np.testing.assert_array_equal(k, caches[0])
    np.testing.assert_array_equal(v, caches[1])
    for b, n in enumerate(lengths):
        wanted, _ = dense(*(torch.from_numpy(np.array(x)).double()[None, b] for x in (q, k[:, :n + 1], v[:, :n + 1])))
        np.testing.assert_allclose(out[b], wanted[0], atol=2e-6, rtol=1e-5)


def test_slots_of_64_bits():
    """A slot of a page, given as int32, is what the library has as int64."""
    q, k, v = array(1, 2, 4, 16), array(3, 4, 2, 16), array(3, 4, 2, 16)
    new, table = array(1, 2, 2, 16), np.array([[2, 0]], np.int32)
    _, after, _ = fj.attention(q, k, v, block_table=table, seqused_k=np.array([1], np.int32),
                               append=flashtile.Append(new, new, slots=np.array([[9, -1]], np.int32)))
    np.testing.assert_array_equal(after[2, 1], new[0, 0])
    np.testing.assert_array_equal(after.at[2, 1].set(k[2, 1]), k)


def test_every_option_of_attention_is_there():
    ours = inspect.signature(fj.attention).parameters
    theirs = inspect.signature(flashtile.attention).parameters
    assert set(ours) - set(theirs) == {"key", "seed", "offset"} and set(theirs) <= set(ours)
    for name, parameter in theirs.items():
        assert ours[name].default == parameter.default, name


def test_the_handlers_know_every_option():
    """Each field of CallOptions as another value than its default: the handler refuses names that it does not know."""
    from flashtile._options import CallOptions
    q, k, v = problem()
    others = {"max_seqlen_q": 0, "max_seqlen_k": 0, "causal": 2, "alignment": 1, "scale": 0.1, "softcap": 1.0,
              "window_left": 30, "window_right": 30, "dropout": 0.1, "attention_chunk": 7}
    for name, default in CallOptions._field_defaults.items():
        options = CallOptions(**{name: others.get(name, 1 if default == 0 else not default)})
        call = fj._operands.Call(("q", "k", "v"), ("out", "lse"), options)
        try:
            fj._primitives.forward(q, k, v, call=call)
        except jax.errors.JaxRuntimeError as error:
            assert name.startswith("max_seqlen") and "allowed" in str(error), name  # read, and wrong here


@pytest.mark.skipif(jax.default_backend() == "gpu", reason="on a GPU places are read by kernels alone")
def test_int64_arrays_keep_their_high_words():
    """Without x64 JAX itself makes them int32."""
    q, k, v = problem(batch=1)
    with pytest.raises(jax.errors.JaxRuntimeError, match=rf"diagonals\[0\] is {2**40}"):
        fj.attention(q, k, v, causal=True, diagonal=np.array([2**40]))
    got = fj.attention(q, k, v, causal=True, diagonal=np.array([-3]))
    np.testing.assert_array_equal(got, fj.attention(q, k, v, causal=True, diagonal=-3))
