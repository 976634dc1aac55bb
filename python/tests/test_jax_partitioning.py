"""flashtile.jax over several devices: automatic partitioning, meshes with explicit axes, and shard_map. The devices are
parts of the CPU."""

import re

import numpy as np
import pytest
from jax_cases import array, jax, jnp, problem
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import flashtile
import flashtile.jax as fj

MESHES = {"sequences": (4, 1), "heads": (1, 4), "both": (2, 2)}
GATHERS = r"all-gather|all-to-all|collective-permute|dynamic-slice"


def mesh_of(shape, kind=AxisType.Auto):
    return jax.make_mesh(shape, ("b", "h"), axis_types=(kind,) * 2, devices=jax.devices("cpu")[:4])


def squares(q, k, v, bias, sinks, **options):
    return sum((x**2).sum() for x in fj.attention(q, k, v, bias=bias, sinks=sinks, causal=True, return_lse=True,
                                                  **options))


def gradients(**options):
    return jax.value_and_grad(lambda *of: squares(*of, **options), tuple(range(5)))


def operands(kv_heads):
    return [*problem(batch=4, heads=8, kv_heads=kv_heads), array(8, 37, 53), array(8)]


def placed(mesh, arguments):
    keys = P("b", None, "h") if arguments[1].shape[2] % mesh.shape["h"] == 0 else P("b")
    return [jax.device_put(x, NamedSharding(mesh, spec))
            for x, spec in zip(arguments, (P("b", None, "h"), keys, keys, P("h"), P("h")))]


def same(got, wanted):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5, rtol=2e-5), got, wanted)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("kv_heads", [8, 4, 2, 1])
@pytest.mark.parametrize("shape", MESHES.values(), ids=MESHES)
def test_nothing_is_gathered(shape, kv_heads, kind):
    """Each device computes its sequences and heads, and sums are all that devices tell each other."""
    arguments = operands(kv_heads)
    with jax.set_mesh(mesh := mesh_of(shape, kind)):
        given = placed(mesh, arguments)
        program = jax.jit(gradients()).lower(*given).compile()
        got = program(*given)
        text = program.as_text()
    calls = re.findall(r"\[.*custom-call\(.*flashtile_(?:forward|backward)", text)
    assert len(calls) == 2
    assert f"f32[{4 // shape[0]},37,{8 // shape[1]},16]" in text
    gathers = set(re.findall(GATHERS, text))
    assert gathers <= ({"dynamic-slice"} if kv_heads == 2 and shape[1] == 4 else set()), gathers  # takes its one of two
    same(got, gradients()(*arguments))


@pytest.mark.parametrize("kv_heads", [8, 2])
@pytest.mark.parametrize("shape", MESHES.values(), ids=MESHES)
def test_dropout_is_that_of_one_device(shape, kv_heads):
    arguments = operands(kv_heads)
    options = {"dropout_p": 0.3, "key": jax.random.key(5), "origin": (3, 1, 0, 0)}
    with jax.set_mesh(mesh := mesh_of(shape)):
        got = jax.jit(gradients(**options))(*placed(mesh, arguments))
    same(got, gradients(**options)(*arguments))


def test_functions_see_the_whole():
    q, k, v, *_ = operands(8)
    text = "s + 0.1 * b - 0.05 * h * abs(i - j)"
    with jax.set_mesh(mesh := mesh_of((2, 2))):
        got = jax.jit(lambda *of: fj.attention(*of, score=text))(*placed(mesh, operands(8))[:3])
    same(got, fj.attention(q, k, v, score=text))


def test_lists_of_blocks_are_split_by_heads():
    q, k, v = problem(batch=4, rows=150, keys=210, heads=8, kv_heads=8)
    indices = jnp.array([[[[0, 1], [1, 3], [2, 0]]]], jnp.int32)
    counts = jnp.arange(24, dtype=jnp.int32).reshape(1, 8, 3) % 3

    def gradient(q, k, v, counts):
        lists = flashtile.BlockLists(counts, indices, block_size=(64, 64))
        return jax.grad(lambda *of: (fj.attention(*of, block_lists=lists)**2).sum(), (0, 1, 2))(q, k, v)

    with jax.set_mesh(mesh := mesh_of((2, 2))):
        given = [jax.device_put(x, NamedSharding(mesh, P("b", None, "h"))) for x in (q, k, v)]
        got = jax.jit(gradient)(*given, jax.device_put(counts, NamedSharding(mesh, P(None, "h"))))
    same(got, gradient(q, k, v, counts))


def test_a_bias_that_repeats_is_summed_over_devices():
    q, k, v, *_ = operands(4)
    bias = array(1, 1, 37, 53)

    def gradient(q, k, v, bias):
        return jax.grad(lambda bias: (fj.attention(q, k, v, bias=bias) ** 2).sum())(bias)

    with jax.set_mesh(mesh := mesh_of((2, 2))):
        got = jax.jit(gradient)(*placed(mesh, operands(4))[:3], bias)
    same(got, gradient(q, k, v, bias))


def test_packed_sequences_by_heads():
    q, k, v = (x[0, :34] for x in operands(4)[:3])
    cu = jnp.array([0, 11, 30], jnp.int32)

    def packed(q, k, v):
        return fj.attention(q, k, v, cu_seqlens_q=cu, cu_seqlens_k=cu, max_seqlen_q=19, max_seqlen_k=19, causal=True)

    with jax.set_mesh(mesh := mesh_of((1, 4))):
        given = [jax.device_put(x, NamedSharding(mesh, P(None, "h"))) for x in (q, k, v)]
        program = jax.jit(packed).lower(*given).compile()
        same(program(*given), packed(q, k, v))
    assert not re.findall(GATHERS, program.as_text())


def test_lengths_that_are_split_are_gathered():
    """Sequences cannot be cut by this; the result is right nevertheless."""
    arguments = operands(4)
    with jax.set_mesh(mesh := mesh_of((2, 2))):
        given = [jax.device_put(x[:, :36] if x is arguments[0] else x[:, :52], NamedSharding(mesh, P(None, "b")))
                 for x in arguments[:3]]
        got = jax.jit(fj.attention)(*given)
    same(got, fj.attention(arguments[0][:, :36], *(x[:, :52] for x in arguments[1:3])))


@pytest.mark.parametrize("checked", [True, False])
def test_shard_map(checked):
    arguments = operands(4)
    specs = (P("b", None, "h"),) * 3 + (P("h"), P("h"))
    mesh = mesh_of((2, 2))

    def of_all(*given):
        split = jax.shard_map(lambda *of: fj.attention(*of[:3], bias=of[3], sinks=of[4], causal=True, return_lse=True),
                              mesh=mesh, in_specs=specs, out_specs=(P("b", None, "h"), P("b", "h")), check_vma=checked)
        return sum((x**2).sum() for x in split(*given))

    program = jax.jit(jax.value_and_grad(of_all, tuple(range(5)))).lower(*placed(mesh, arguments)).compile()
    same(program(*placed(mesh, arguments)), gradients()(*arguments))
    assert not re.findall("all-gather|all-to-all", program.as_text())


def test_export_for_several_devices_by_shard_map():
    q, k, v, *_ = operands(4)
    mesh = mesh_of((4, 1))
    split = jax.jit(jax.shard_map(fj.attention, mesh=mesh, in_specs=P("b"), out_specs=P("b")))
    allowed = [jax.export.DisabledSafetyCheck.custom_call("flashtile_forward")]
    exported = jax.export.export(split, platforms=["cpu"], disabled_checks=allowed)(q, k, v)
    again = jax.export.deserialize(exported.serialize())
    given = [jax.device_put(x, NamedSharding(mesh, P("b"))) for x in (q, k, v)]
    same(again.call(*given), fj.attention(q, k, v))
