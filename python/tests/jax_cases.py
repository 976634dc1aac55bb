"""What the tests of flashtile.jax share: arrays, and dense attention of oracle.py on them."""

import numpy as np
import pytest
import torch
from oracle import assert_close, dense

jax = pytest.importorskip("jax", reason="flashtile.jax needs JAX")
import jax.numpy as jnp  # noqa: E402

jax.config.update("jax_default_matmul_precision", "float32")  # of what tests multiply themselves: GPUs would take TF32


def array(*shape, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape), dtype)


def problem(batch=2, rows=37, keys=53, heads=4, kv_heads=2, d=16, dv=24, dtype=jnp.float32):
    return (array(batch, rows, heads, d, dtype=dtype), array(batch, keys, kv_heads, d, dtype=dtype),
            array(batch, keys, kv_heads, dv, dtype=dtype))


def to_torch(x):
    tensor = torch.from_numpy(np.array(x, np.float32 if x.dtype == jnp.bfloat16 else None))
    return tensor.bfloat16() if x.dtype == jnp.bfloat16 else tensor


def expected(arrays, cotangents, attend, wide):
    """out, lse and the gradients of `arrays`, of attend(*tensors); wide: in fp64, else in the arrays' dtypes."""
    leaves = [to_torch(x) for x in arrays]
    leaves = [(t.double() if wide and t.is_floating_point() else t).requires_grad_() for t in leaves]
    made = attend(*leaves)
    grads = torch.autograd.grad(made, leaves, [to_torch(c).to(m.dtype) for c, m in zip(cotangents, made)])
    return [*made, *grads]


def compare(ours, arrays, attend, what):
    """out, lse and all gradients of `ours`, a function of JAX's arrays that returns out and lse, beside `attend`, dense
    attention on tensors: at most twice the error of that in the arrays' precision."""
    made, pull = jax.vjp(ours, *arrays)
    cotangents = [array(*m.shape, dtype=m.dtype) for m in made]
    got = [*made, *pull(tuple(cotangents))]
    reference, standard = (expected(arrays, cotangents, attend, wide) for wide in (True, False))
    assert [g.dtype for g in got[2:]] == [x.dtype for x in arrays]
    for n, each in enumerate(zip(got, reference, standard, strict=True)):
        assert_close(*(to_torch(each[0]), *each[1:]), f"{what}, result {n}", roundoff=1e-6)


def with_sinks(q, k, v, sinks, **options):
    """A sink is like one more key whose value is 0 and whose score is the sink."""
    k, v = (torch.nn.functional.pad(t, (0, 0, 0, 0, 0, 1)) for t in (k, v))
    bias = torch.nn.functional.pad(sinks[:, None, None].expand(-1, q.shape[1], 1), (k.shape[1] - 1, 0))
    return dense(q, k, v, bias=bias, **options)
