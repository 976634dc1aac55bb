"""flashtile.jax.dot_product_attention beside jax.nn.dot_product_attention in fp64, and Flax's layers on
flashtile.jax.flax_attention."""

import inspect

import numpy as np
import pytest
from jax_cases import array, jax, jnp

import flashtile.jax as fj
from flashtile._library import InvalidArgument

OPTIONS = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.3},
    "bias": {"bias": array(1, 4, 12, 20)},
    "bias of a row": {"bias": array(2, 1, 1, 20)},
    "mask": {"mask": jnp.arange(20)[None, None, None] % 3 > 0},
    "bias and mask": {"bias": array(1, 1, 12, 20), "mask": jnp.arange(2 * 12 * 20).reshape(2, 1, 12, 20) % 5 > 0},
    "window": {"local_window_size": (3, 2)},
    "a window's one number": {"local_window_size": 4, "is_causal": True},
    "lengths of keys": {"key_value_seq_lengths": jnp.array([7, 20], jnp.int32)},
    "lengths": {"query_seq_lengths": jnp.array([12, 5], jnp.int32),
                "key_value_seq_lengths": jnp.array([16, 20], jnp.int32), "is_causal": True},
}


def qkv(lead=(2,), kv_heads=2):
    return array(*lead, 12, 4, 16), array(*lead, 20, kv_heads, 16), array(*lead, 20, kv_heads, 16)


def wide(function, *arguments, **options):
    """In fp64."""
    with jax.enable_x64(True):
        def widened(x):
            return x.astype(jnp.float64) if getattr(x, "dtype", None) == jnp.float32 else x
        options = jax.tree.map(widened, options)
        made = jax.jit(lambda *of: function(*of, **options))(*map(widened, arguments))
        return jax.tree.map(np.asarray, made)


def same(got, wanted, atol=5e-6):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol, rtol=1e-5), got, wanted)


def squares(function):
    return lambda q, k, v, **options: (function(q, k, v, **options) ** 2).sum()


@pytest.mark.parametrize("name, kv_heads", [*((name, 2) for name in OPTIONS), ("causal", 4), ("causal", 1)])
def test_beside_jax(name, kv_heads):
    options = OPTIONS[name]
    given = qkv(kv_heads=kv_heads)
    same(fj.dot_product_attention(*given, **options), wide(jax.nn.dot_product_attention, *given, **options))
    ours, theirs = (jax.grad(squares(f), (0, 1, 2)) for f in (fj.dot_product_attention, jax.nn.dot_product_attention))
    same(jax.jit(lambda *of: ours(*of, **options))(*given), wide(theirs, *given, **options), atol=5e-5)


def test_the_gradient_of_a_bias():
    given, bias = qkv(), array(1, 4, 12, 20)
    ours, theirs = (jax.grad(lambda *of, f=f: (f(*of) ** 2).sum(), 3) for f in (fj.dot_product_attention,
                                                                              jax.nn.dot_product_attention))
    same(ours(*given, bias), wide(theirs, *given, bias), atol=5e-5)


def test_without_a_batch_and_with_a_residual():
    given = qkv(lead=())
    got = fj.dot_product_attention(*given, return_residual=True)
    assert got[0].shape == (12, 4, 16) and got[1].shape == (12, 4)
    same(got, wide(jax.nn.dot_product_attention, *given, return_residual=True))
    batched = fj.dot_product_attention(*qkv(), return_residual=True, is_causal=True)
    same(batched, wide(jax.nn.dot_product_attention, *qkv(), return_residual=True, is_causal=True))


def test_a_query_that_sees_nothing_is_zero():
    """Where XLA gives the mean of the values."""
    mask = jnp.ones((1, 1, 12, 20), bool).at[0, 0, 3].set(False)
    got, residual = fj.dot_product_attention(*qkv(), mask=mask, return_residual=True)
    theirs = wide(jax.nn.dot_product_attention, *qkv(), mask=mask)
    assert not got[:, 3].any() and np.isneginf(residual[:, 3]).all() and theirs[:, 3].any()
    same(np.delete(got, 3, 1), np.delete(theirs, 3, 1))


def test_the_signature_is_jax_own():
    ours, theirs = (inspect.signature(f).parameters for f in (fj.dot_product_attention, jax.nn.dot_product_attention))
    assert [(p.name, p.kind, p.default) for p in ours.values()] == [(p.name, p.kind, p.default)
                                                                    for p in theirs.values()]


def test_other_implementations_are_jax_own():
    text = jax.jit(lambda *of: fj.dot_product_attention(*of, implementation="xla")).lower(*qkv()).as_text()
    assert "flashtile" not in text


@pytest.mark.parametrize("change, message", [
    ({"query": array(2, 12, 4, 8)}, r"k.shape is \(2, 20, 2, 16\)"),
    ({"query": array(12, 16)}, "query has 2 dimensions"),
    ({"key": array(20, 2, 16)}, "key has 3 dimensions"),
    ({"mask": array(1, 1, 12, 20)}, "mask.dtype is fp32"),
    ({"query_seq_lengths": jnp.array([3], jnp.int32)}, "query_seq_lengths is int32"),
    ({"local_window_size": (1, 2, 3)}, "window is"),
])
def test_errors_name_the_argument(change, message):
    given = dict(zip(("query", "key", "value"), qkv())) | change
    with pytest.raises((InvalidArgument, TypeError), match=message):
        fj.dot_product_attention(**given)


def layers_of_flax():
    linen = pytest.importorskip("flax.linen")
    kinds = {"linen": lambda attend, rate: linen.MultiHeadDotProductAttention(
        num_heads=4, attention_fn=attend, dropout_rate=rate)}
    return linen, kinds["linen"]


def test_a_layer_of_flax():
    linen, layer = layers_of_flax()
    x, mask = array(2, 3, 12, 32), linen.make_causal_mask(jnp.ones((2, 3, 12)))  # two dimensions of batches
    ours, theirs = layer(fj.flax_attention, 0.0), layer(linen.dot_product_attention, 0.0)
    weights = jax.jit(theirs.init)(jax.random.key(0), x)
    same(*(jax.jit(lambda w, m=m: m.apply(w, x, mask=mask))(weights) for m in (ours, theirs)))
    got, wanted = (jax.jit(jax.grad(lambda w, m=m: (m.apply(w, x, mask=mask) ** 2).sum()))(weights)
                   for m in (ours, theirs))
    same(got, wanted, atol=1e-4)


def test_dropout_in_a_layer_of_flax():
    linen, layer = layers_of_flax()
    x = array(2, 12, 32)
    ours = layer(fj.flax_attention, 0.5)
    weights = ours.init(jax.random.key(0), x, deterministic=True)
    runs = [ours.apply(weights, x, deterministic=False, rngs={"dropout": jax.random.key(n)}) for n in (1, 1, 2)]
    assert np.array_equal(runs[0], runs[1]) and not np.array_equal(runs[0], runs[2])
    same(ours.apply(weights, x, deterministic=True), layer(linen.dot_product_attention, 0.5).apply(
        weights, x, deterministic=True))


def test_a_layer_of_nnx():
    nnx = pytest.importorskip("flax.nnx")
    x = array(2, 12, 32)
    ours, theirs = (nnx.MultiHeadAttention(4, 32, attention_fn=attend, rngs=nnx.Rngs(0), decode=False)
                    for attend in (fj.flax_attention, nnx.dot_product_attention))
    same(ours(x, is_causal=True), theirs(x, is_causal=True))


def test_weights_are_refused():
    linen, layer = layers_of_flax()
    x = array(2, 12, 32)
    ours = layer(fj.flax_attention, 0.0)
    weights = ours.init(jax.random.key(0), x)
    with pytest.raises(InvalidArgument, match="module is"):
        ours.apply(weights, x, sow_weights=True, mutable=["intermediates"])
