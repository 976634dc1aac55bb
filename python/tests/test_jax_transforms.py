"""flashtile.jax under JAX's transformations: vmap, jit, remat, scan, donation, export, derivatives of derivatives."""

import numpy as np
import pytest
from jax_cases import array, jax, jnp, problem
from jax.test_util import check_grads

import flashtile
import flashtile.jax as fj

N = 3


def stacked(x):
    return jnp.stack([x * (1 + n / 4) for n in range(N)])


def with_everything(q, k, v, bias, mask, slopes, used):
    return fj.attention(q, k, v, bias=bias, mask=mask, alibi_slopes=slopes, seqused_k=used, causal=True,
                        return_lse=True)


def operands(bias_shape=(4, 37, 53)):
    return [*problem(), array(*bias_shape), jnp.arange(2 * 37 * 53).reshape(2, 1, 37, 53) % 5 > 0,
            jnp.array([0.5, 0.25, 0.1, 0.0]), jnp.array([31, 53], jnp.int32)]


def batched(x):
    if x.dtype == bool:
        return jnp.stack([jnp.roll(x, n, -1) for n in range(N)])
    return jnp.stack([x - n for n in range(N)]) if x.dtype == jnp.int32 else stacked(x)


def loop(function, arguments, axes):
    made = [function(*(x if axis is None else jnp.take(x, n, axis) for x, axis in zip(arguments, axes)))
            for n in range(N)]
    return jax.tree.map(lambda *each: jnp.stack(each), *made)


def same(got, wanted, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **({"atol": 1e-5, "rtol": 1e-5} | tolerance)), got,
                 wanted)


def loops(function, *arguments, axes):
    """How often the program of a vmap loops."""
    return str(jax.make_jaxpr(jax.vmap(function, axes))(*arguments)).count("scan[")


@pytest.mark.parametrize("which", [(0,), (1,), (2,), (3,), (4,), (5,), (6,), (0, 3), (0, 1, 2, 3, 4, 5, 6)])
def test_vmap_over_any_argument(which):
    arguments = operands()
    axes = [0 if at in which else None for at in range(len(arguments))]
    arguments = [x if axis is None else batched(x) for x, axis in zip(arguments, axes)]
    same(jax.vmap(with_everything, axes)(*arguments), loop(with_everything, arguments, axes))
    assert loops(with_everything, *arguments, axes=axes) == 0


@pytest.mark.parametrize("bias_shape", [(4, 37, 53), (1, 1, 1, 53), (2, 1, 37, 1), (37, 53)])
@pytest.mark.parametrize("which", [(0,), (3,), (0, 1, 2, 3)])
def test_vmap_of_gradients(which, bias_shape):
    def gradients(*arguments):
        return jax.grad(lambda *of: sum((x**2).sum() for x in with_everything(*of, *arguments[4:])),
                        (0, 1, 2, 3))(*arguments[:4])

    arguments = operands(bias_shape)
    axes = [0 if at in which else None for at in range(len(arguments))]
    arguments = [x if axis is None else batched(x) for x, axis in zip(arguments, axes)]
    same(jax.jit(jax.vmap(gradients, axes))(*arguments), loop(jax.jit(gradients), arguments, axes), atol=2e-4,
         rtol=1e-4)
    assert loops(gradients, *arguments, axes=axes) == 0


def test_vmap_over_lists_of_blocks():
    q, k, v = problem(rows=150, keys=210)
    indices = jnp.array([[[[0, 1], [1, 3], [2, 0]]]], jnp.int32)
    counts = jnp.arange(N * 3, dtype=jnp.int32).reshape(N, 1, 1, 3) % 3

    def attend(q, counts):
        return fj.attention(q, k, v, block_lists=flashtile.BlockLists(counts, indices, block_size=(64, 64)))

    arguments = stacked(q), counts
    same(jax.vmap(attend)(*arguments), loop(attend, arguments, (0, 0)))
    assert loops(attend, *arguments, axes=(0, 0)) == 0


def test_vmap_over_axes_other_than_the_first():
    q, k, v = problem()
    moved = [jnp.moveaxis(stacked(x), 0, at) for x, at in zip((q, k, v), (1, 4, 2))]
    same(jax.vmap(fj.attention, (1, 4, 2), 3)(*moved),
         jnp.moveaxis(loop(fj.attention, moved, (1, 4, 2)), 0, 3))


def test_vmap_of_vmap():
    q, k, v = problem()
    twice = jnp.stack([stacked(q), stacked(2 * q)])
    got = jax.vmap(jax.vmap(lambda q: fj.attention(q, k, v)))(twice)
    same(got, jnp.stack([loop(lambda q: fj.attention(q, k, v), [each], [0]) for each in twice]))


def test_vmap_folds_heads_where_sequences_cannot_be():
    """Sinks are one a head; packed sequences have no dimension of sequences."""
    q, k, v = problem()
    sinks = stacked(array(4))

    def of_sinks(q, sinks):
        return jax.grad(lambda *of: (fj.attention(of[0], k, v, sinks=of[1]) ** 2).sum(), (0, 1))(q, sinks)

    for axes in ((None, 0), (0, 0), (0, None)):
        arguments = stacked(q) if axes[0] == 0 else q, sinks if axes[1] == 0 else sinks[0]
        same(jax.vmap(of_sinks, axes)(*arguments), loop(of_sinks, arguments, axes), atol=1e-4)
        assert loops(of_sinks, *arguments, axes=axes) == 0
    cu = jnp.array([0, 11, 34], jnp.int32)

    def packed(q, slopes):
        return fj.attention(q, k[0, :34], v[0, :34], cu_seqlens_q=cu, cu_seqlens_k=cu, max_seqlen_q=23,
                            max_seqlen_k=23, causal=True, alibi_slopes=slopes, return_lse=True)

    arguments = stacked(q[0, :34]), jnp.array([0.5, 0.25, 0.1, 0.0])
    same(jax.vmap(packed, (0, None))(*arguments), loop(packed, arguments, (0, None)))
    assert loops(packed, *arguments, axes=(0, None)) == 0


def test_vmap_with_dropout_is_the_loop():
    q, k, v = problem()
    seeds = jnp.array([[1, 0], [2, 0], [1, 0]], jnp.uint32)
    for axes in ((0, None), (0, 0), (None, 0)):
        arguments = stacked(q) if axes[0] == 0 else q, seeds if axes[1] == 0 else seeds[0]

        def drops(q, seed):
            return fj.attention(q, k, v, dropout_p=0.4, seed=seed)

        same(jax.vmap(drops, axes)(*arguments), loop(drops, arguments, axes))


def test_vmap_over_lengths_of_packed_sequences():
    q, k, v = (x[0, :34] for x in problem())
    cu = jnp.array([[0, 11, 34], [0, 20, 30], [0, 0, 34]], jnp.int32)

    def packed(cu):
        return fj.attention(q, k, v, cu_seqlens_q=cu, cu_seqlens_k=cu, max_seqlen_q=34, max_seqlen_k=34)

    same(jax.vmap(packed)(cu), loop(packed, [cu], [0]))


def test_gradients_by_differences():
    q, k, v = (x[:1, :6] for x in problem(d=8, dv=8))
    bias, sinks = array(4, 6, 6), array(4)
    check_grads(lambda *of: fj.attention(*of[:3], bias=of[3], sinks=of[4], causal=True, softcap=3.0, return_lse=True),
                (q, k, v, bias, sinks), order=1, modes=["rev"], atol=2e-2, rtol=2e-2, eps=1e-2)


def test_remat_scan_and_jit():
    q, k, v = problem(rows=53, heads=2, dv=16)

    def layers(wrap):
        def layer(x, w):
            return x + fj.attention(x * w, k, v, causal=True), None
        return lambda x, ws: (jax.lax.scan(wrap(layer), x, ws)[0] ** 2).sum()

    ws = jnp.array([0.5, 1.0, 1.5])
    wanted = jax.grad(layers(lambda f: f), (0, 1))(q, ws)
    same(jax.jit(jax.grad(layers(jax.checkpoint), (0, 1)))(q, ws), wanted, rtol=1e-4, atol=1e-4)


def test_donated_arguments():
    q, k, v = problem(keys=37, dv=16)
    wanted = fj.attention(q, k, v)
    given = q.copy()
    same(jax.jit(fj.attention, donate_argnums=0)(given, k, v), wanted, atol=0, rtol=0)
    assert given.is_deleted()


def test_export():
    q, k, v = problem()
    allowed = [jax.export.DisabledSafetyCheck.custom_call(name) for name in ("flashtile_forward", "flashtile_backward")]
    function = jax.jit(jax.grad(lambda *of: fj.attention(*of, causal=True, softcap=3.0).sum()))
    exported = jax.export.export(function, disabled_checks=allowed)(q, k, v)
    again = jax.export.deserialize(exported.serialize())
    same(again.call(q, k, v), function(q, k, v), atol=0, rtol=0)


def test_a_program_says_what_it_calls():
    text = jax.jit(lambda *of: fj.attention(*of, causal=True, scale=0.5)).lower(*problem()).as_text()
    assert 'custom_call @flashtile_forward' in text and 'operands = "q k v"' in text and "scale = 5.0" in text


@pytest.mark.parametrize("derivative", [
    lambda f: jax.grad(lambda x: jax.grad(f)(x).sum()), jax.hessian, lambda f: jax.jacrev(jax.jacrev(f))])
def test_derivatives_of_derivatives_are_refused(derivative):
    q, k, v = problem(batch=1, rows=3)
    with pytest.raises(NotImplementedError, match="no gradients of gradients"):
        derivative(lambda q: fj.attention(q, k, v).sum())(q)


def test_forward_mode_is_refused():
    q, k, v = problem()
    with pytest.raises((NotImplementedError, TypeError), match="forward-mode"):
        jax.jvp(lambda q: fj.attention(q, k, v), (q,), (q,))


def test_a_cache_has_no_gradient():
    q, k, v = array(2, 3, 4, 16), array(6, 16, 2, 16), array(6, 16, 2, 16)
    table, used = jnp.zeros((2, 3), jnp.int32), jnp.array([35, 17], jnp.int32)
    with pytest.raises(NotImplementedError, match="no gradient with block_table"):
        jax.grad(lambda q: fj.attention(q, k, v, block_table=table, seqused_k=used).sum())(q)


def test_shapes_without_values():
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in problem()]
    out, lse = jax.eval_shape(lambda *of: fj.attention(*of, return_lse=True), *shapes)
    assert (out.shape, lse.shape, lse.dtype) == ((2, 37, 4, 24), (2, 4, 37), np.float32)


def test_vmap_of_no_queries():
    _, k, v = problem()
    q = jnp.zeros((3, 2, 0, 4, 16))
    assert jax.vmap(fj.attention, (0, None, None))(q, k, v).shape == (3, 2, 0, 4, 24)
