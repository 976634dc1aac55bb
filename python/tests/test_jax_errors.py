"""What flashtile.jax refuses, and how: while JAX traces, by the argument's name; platforms by theirs; without JAX, and
beside a jaxlib of another ABI."""

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest
from jax_cases import array, jax, jnp, problem

import flashtile
import flashtile.jax as fj
from flashtile import _library
from flashtile._library import InvalidArgument
from flashtile.jax import _handlers


@pytest.mark.parametrize("change, message", [
    ({"q": None}, "q is a NoneType, allowed is a jax.Array"),
    ({"k": [1.0]}, "k is a list"),
    ({"q": array(2, 37, 4)}, r"q.rank is 3, allowed is 4"),
    ({"k": array(2, 53, 3, 16)}, "heads"),
    ({"v": array(2, 52, 2, 24)}, "v.shape"),
    ({"q": jnp.zeros((2, 37, 4, 16), jnp.int8)}, "q.dtype is int8, allowed is float32, float16 or bfloat16"),
    ({"k": array(2, 53, 2, 16, dtype=jnp.float16)}, "k.dtype is fp16, allowed is fp32"),
    ({"bias": array(3, 37, 53)}, "bias.shape"),
    ({"mask": jnp.zeros((37, 53), jnp.int32)}, "mask.dtype is int32"),
    ({"mask": lambda b, h, i, j: True}, "mask is a function, allowed is None, a jax.Array or a text"),
    ({"score": "s +"}, "score"),
    ({"score": "s + x[i]", "tensors": [1]}, "tensors is"),
    ({"scale": float("nan")}, "scale is nan"),
    ({"scale": "x"}, "scale is 'x'"),
    ({"softcap": -1.0}, "softcap is -1"),
    ({"window": (1,)}, "window is"),
    ({"align": "middle"}, "align is 'middle'"),
    ({"causal": 2}, "causal is 2"),
    ({"origin": (0, 0)}, "origin is"),
    ({"attention_chunk": -1}, "attention_chunk is -1"),
    ({"seqused_k": jnp.zeros(3, jnp.int32)}, "seqused_k.shape"),
    ({"diagonal": jnp.zeros(2)}, "diagonals.dtype is float32, allowed is int32 or int64"),
    ({"sinks": array(5)}, "sinks.shape"),
    ({"cu_seqlens_k": jnp.zeros(3, jnp.int32)}, r"q.rank is 4, allowed is 3"),
    ({"dropout_p": 0.1}, "dropout_p is 0.1 with neither key nor seed"),
    ({"dropout_p": 0.1, "seed": jnp.zeros(3, jnp.uint32)}, r"seed is uint32 \(3,\)"),
    ({"dropout_p": 0.1, "seed": jnp.zeros(2, jnp.uint32), "key": jax.random.key(0)}, "key and seed"),
    ({"dropout_p": 0.1, "seed": 7}, "seed is a int"),
    ({"dropout_p": 1.0, "key": jax.random.key(0)}, "dropout_p is 1.0"),
    ({"append": 3}, "append is a int"),
    ({"append": flashtile.Append(array(2, 1, 2, 16), q_out=array(2, 37, 4, 16))}, "append.q_out is given"),
    ({"tree_mask": jnp.ones((2, 1, 37, 36), bool), "seqused_k": jnp.array([40, 40], jnp.int32)}, "tree_mask.shape"),
    ({"return_lse": 3}, "return_lse is 3"),
    ({"colour": 1}, "unexpected keyword argument 'colour'"),
])
def test_errors_while_tracing(change, message):
    given = dict(zip("qkv", problem())) | change
    traced = {name: given.pop(name) for name in "qkv" if isinstance(given[name], jax.Array)}
    with pytest.raises((InvalidArgument, TypeError), match=message):
        jax.jit(lambda arrays: fj.attention(**arrays, **given)).lower(traced)  # traced, and not run


@pytest.mark.parametrize("name", ["causal", "scale", "softcap", "dropout_p", "max_seqlen_q", "return_lse"])
def test_options_are_known_while_tracing(name):
    q, k, v = problem()
    with pytest.raises(TypeError, match=f"{name} is .*static_argnames"):
        jax.jit(lambda value: fj.attention(q, k, v, **{name: value}))(jnp.int32(1))


def test_float64_is_refused():
    with jax.enable_x64(True):
        q = jnp.zeros((1, 2, 1, 8), jnp.float64)
        with pytest.raises(TypeError, match="q.dtype is float64"):
            fj.attention(q, q, q)


@pytest.mark.skipif(jax.default_backend() == "gpu", reason="on a GPU lengths are read by kernels alone, within bounds")
def test_wrong_values_are_errors_of_the_program():
    q, k, v = (x[0, :34] for x in problem())
    descending = jnp.array([0, 20, 10], jnp.int32)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"INVALID_ARGUMENT: flashtile: cu_seqlens_q\[2\]"):
        jax.block_until_ready(jax.jit(lambda cu: fj.attention(q, k, v, cu_seqlens_q=cu, cu_seqlens_k=cu,
                                                              max_seqlen_q=20, max_seqlen_k=20))(descending))


@pytest.mark.parametrize("platform", ["tpu", "rocm"])
def test_other_platforms_are_refused_by_name(platform):
    function = jax.jit(lambda *of: fj.attention(*of))
    with pytest.raises(NotImplementedError, match=f"JAX's platform {platform}, allowed are cpu and cuda"):
        function.trace(*problem()).lower(lowering_platforms=(platform,))


def test_cuda_is_lowered_without_a_gpu():
    text = jax.jit(lambda *of: fj.attention(*of)).trace(*problem()).lower(lowering_platforms=("cuda",)).as_text()
    assert "flashtile_forward" in text


def call_handler(operands, results):
    """What XLA says to a program that calls the handler with other names or options than ours."""
    q, k, v = problem()
    call = jax.ffi.ffi_call("flashtile_forward", jax.ShapeDtypeStruct((2, 37, 4, 24), np.float32))
    return lambda **options: jax.block_until_ready(call(q, k, v, operands=operands, results=results, **options))


@pytest.mark.parametrize("operands, results, options, message", [
    ("q k", "out", {}, "name fewer buffers"),
    ("q k w", "out", {}, "w is no tensor that this flashtile reads"),
    ("q k v", "dq", {}, "dq is no result of this flashtile's"),
    ("q k v", "k", {}, "k is a cache that lies elsewhere"),
    ("q k v", "out", {"colour": 1}, "colour is no option of this flashtile's"),
    ("q k v", "out", {"causal": np.int64(2**40)}, "causal is 1099511627776"),
    ("q k v", "out", {"causal": np.float64(1)}, "causal is a number of another kind"),
    ("q k v", "out", {"causal": "yes"}, "causal is a text"),
    ("q k seed", "out", {}, "seed is not of two words"),
])
def test_a_program_of_another_version_is_refused(operands, results, options, message):
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        call_handler(operands, results)(**options)


def test_the_ffi_of_jaxlib_is_one_that_works():
    major, minor = ctypes.c_int(), ctypes.c_int()
    library = ctypes.CDLL(str(_library.PATH.resolve().parent / "libflashtile_jax.so"))
    library.flashtile_jax_ffi_version(ctypes.byref(major), ctypes.byref(minor))
    assert (major.value, minor.value) <= _handlers.version_of_jaxlib()


@pytest.mark.parametrize("of_jaxlib, works", [((0, 3), True), ((0, 9), True), ((0, 2), False), ((1, 3), False)])
def test_another_ffi_is_refused(of_jaxlib, works):
    if works:
        return _handlers.check_versions((0, 3), of_jaxlib)
    major, minor = of_jaxlib
    with pytest.raises(ImportError, match=rf"version 0.3 .* has {major}.{minor}, allowed are 0.3 to below 1.0"):
        _handlers.check_versions((0, 3), of_jaxlib)


@pytest.mark.parametrize("way", ["import flashtile.jax", "import flashtile; flashtile.jax"])
def test_without_jax(way):
    code = f"import sys; sys.modules['jax'] = None\ntry:\n    {way}\nexcept ImportError as error:\n    print(error)"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said == "flashtile.jax needs JAX: pip install flashtile[jax]\n"


def test_without_handlers(tmp_path):
    """As a build without jaxlib leaves it."""
    copy = tmp_path / "alone" / "libflashtile.so.0"
    copy.parent.mkdir()
    copy.write_bytes(_library.PATH.read_bytes())
    said = subprocess.run([sys.executable, "-c", "import flashtile.jax"], capture_output=True, text=True,
                          env=os.environ | {"FLASHTILE_LIBRARY": str(copy)}).stderr
    assert "cannot load its handlers" in said and "a build without jaxlib leaves out" in said


def test_flashtile_needs_no_jaxlib():
    """Neither the library nor the package loads JAX, or the handlers, before somebody asks for them."""
    code = ("import sys, flashtile.numpy\n"
            "print('jax' in sys.modules, 'flashtile_jax' in open('/proc/self/maps').read())")
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False False\n"
