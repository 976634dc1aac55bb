"""flashtile.numpy against dense attention in fp64, and in a process where neither PyTorch nor anything but NumPy can be
imported."""

import inspect
import subprocess
import sys

import numpy as np
import pytest
import torch

import flashtile
import flashtile.numpy as ours
from conftest import DEVICE
from flashtile._structs import SCALE_NAMES, SERVING_NAMES
from oracle import dense

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="NumPy's arrays lie on the CPU")


def array(*shape, dtype=np.float32):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def problem():
    return array(2, 37, 4, 16), array(2, 53, 2, 16), array(2, 53, 2, 24)


CASES = {
    "plain": {},
    "causal": {"causal": True},
    "top-left": {"causal": True, "align": "top-left"},
    "window": {"window": (9, 4)},
    "scale, softcap": {"scale": 0.3, "softcap": 2.0},
    "alibi": {"alibi_slopes": np.array([0.5, 0.25, 0.125, 0.0625], np.float32)},
    "mask": {"mask": np.arange(53) % 3 > 0},
    "bias": {"bias": array(4, 37, 53)},
    "bias of rows": {"bias": array(37, 1)},
    "sinks": {"sinks": array(4)},
    "chunks": {"causal": True, "align": "top-left", "attention_chunk": 11},
    "splits and a limit": {"num_splits": 2, "sm_limit": 3},
    "flags": {"deterministic": True, "batch_invariant": True, "exact_max": True},
}


def with_sinks(q, k, v, sinks=None, **options):
    """A sink is like one more key whose value is 0 and whose score is the sink."""
    if sinks is None:
        return dense(q, k, v, **options)
    k, v = (torch.nn.functional.pad(t, (0, 0, 0, 0, 0, 1)) for t in (k, v))
    bias = torch.nn.functional.pad(sinks[:, None, None].expand(-1, q.shape[1], 1), (k.shape[1] - 1, 0))
    return dense(q, k, v, bias=bias, **options)


@pytest.mark.parametrize("name", CASES)
def test_options(name):
    options = CASES[name]
    q, k, v = problem()
    out, lse = ours.attention(q, k, v, return_lse=True, **options)
    dout, dlse = array(2, 37, 4, 24), array(2, 4, 37)
    grads = ours.attention_backward(dout, q, k, v, out, lse, dlse=dlse, return_dbias="bias" in name,
                                    return_dsinks="sinks" in name, **options)

    wide = [torch.from_numpy(t).double().requires_grad_() for t in (q, k, v)]
    given = {key: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for key, value in options.items()
             if name not in ("flags", "splits and a limit")}
    leaves = wide
    if "bias" in name:
        given["bias"] = given["bias"].double().requires_grad_()
        leaves = [*wide, given["bias"]]
    if "sinks" in name:  # is a key whose value is 0, and whose score is a bias on nothing
        given["sinks"] = given["sinks"].double().requires_grad_()
        leaves = [*wide, given["sinks"]]
    if "attention_chunk" in given:
        length = given.pop("attention_chunk")
        given["mask"] = torch.arange(37)[:, None] // length == torch.arange(53) // length
    expected = with_sinks(*wide, **given)
    cotangents = torch.from_numpy(dout).double(), torch.from_numpy(dlse).double()
    expected = (*expected, *torch.autograd.grad(expected, leaves, cotangents))
    for got, wanted in zip((out, lse, *grads), expected, strict=True):
        np.testing.assert_allclose(got, wanted.detach(), atol=5e-5, rtol=1e-4)
    assert lse.dtype == np.float32 and np.array_equal(out, ours.attention(q, k, v, **options))


def test_packed_and_used_keys():
    q, k, v, dout = array(34, 4, 16), array(38, 2, 16), array(38, 2, 16), array(34, 4, 16)
    cu_q, cu_k = (np.cumsum((0, *lengths)).astype(np.int32) for lengths in ((7, 0, 20, 5), (9, 4, 20, 3)))
    used = np.array([9, 4, 11, 3], np.int32)
    options = dict(causal=True, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, max_seqlen_q=20, max_seqlen_k=20, seqused_k=used)
    out, lse = ours.attention(q, k, v, return_lse=True, **options)
    grads = ours.attention_backward(dout, q, k, v, out, lse, **options)
    assert not out[32:].any() and not grads[0][32:].any()
    assert not grads[1][36:].any() and not grads[2][9 + 4 + 11:33].any()
    wide = [torch.from_numpy(t).double().requires_grad_() for t in (q, k, v)]
    total = 0
    for b, n in enumerate(used):
        rows, keys = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b] + n)
        expected, expected_lse = dense(wide[0][None, rows], wide[1][None, keys], wide[2][None, keys], causal=True)
        np.testing.assert_allclose(out[rows], expected[0].detach(), atol=2e-6, rtol=1e-5)
        np.testing.assert_allclose(lse[:, rows], expected_lse[0].detach(), atol=2e-6, rtol=1e-5)
        total = total + (expected[0] * torch.from_numpy(dout[rows])).sum()
    for got, wanted in zip(grads, torch.autograd.grad(total, wide)):
        np.testing.assert_allclose(got, wanted, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("make", [
    lambda t: t, np.asfortranarray, lambda t: t.repeat(2, -1)[..., ::2], lambda t: t[..., ::-1][..., ::-1],
    lambda t: t[:, ::-1].copy()[:, ::-1],
    lambda t: np.frombuffer(b"\0" + t.tobytes(), t.dtype, t.size, 1).reshape(t.shape),
    lambda t: np.stack((t, t), -2)[..., 0, :]], ids=["as it is", "Fortran", "innermost apart", "turned twice",
                                                     "turned rows", "no multiple of an element", "rows apart"])
def test_any_strides(make):
    q, k, v = problem()
    given = [make(t) for t in (q, k, v)]
    assert np.array_equal(ours.attention(*given, causal=True), ours.attention(q, k, v, causal=True))


def test_float16_and_bfloat16():
    q, k, v = problem()
    half = [t.astype(np.float16) for t in (q, k, v)]
    expected, _ = dense(*(torch.from_numpy(t).double() for t in half))
    out = ours.attention(*half)
    assert out.dtype == np.float16
    np.testing.assert_allclose(out, expected, atol=2e-3, rtol=2e-3)
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    assert ours.attention(*(t.astype(bfloat16) for t in (q, k, v))).dtype == bfloat16


def test_a_shard_for_each_sequence():
    q, k, v = problem()
    diagonals, options = np.array([-21, 8]), {"dropout_p": 0.4, "seed": (1, 2)}
    i, j = np.arange(37)[:, None], np.arange(53)
    mask = (j <= i + 16 + diagonals[:, None, None])[:, None]
    out = ours.attention(q, k, v, causal=True, diagonal=diagonals)
    expected, _ = dense(*(torch.from_numpy(x).double() for x in (q, k, v)), mask=torch.from_numpy(mask))
    np.testing.assert_allclose(out, expected.numpy(), atol=2e-6, rtol=2e-5)
    # sequence 1 is drawn as that of a call with its origin alone
    out = ours.attention(q, k, v, origin=(0, 0, np.array([5, 17]), np.array([0, 9])), **options)
    alone = ours.attention(q, k, v, origin=(0, 0, 17, 9), **options)
    np.testing.assert_array_equal(out[1], alone[1])
    assert not np.array_equal(out[0], alone[0])


def test_dropout_is_drawn_from_the_seed():
    """A call of flashtile.attention with the same seed and offset drops the same."""
    q, k, v = problem()
    out, lse = ours.attention(q, k, v, dropout_p=0.3, seed=(7, 11), return_lse=True)
    torch.manual_seed(0)
    drawn = torch.randint(torch.iinfo(torch.int64).max, (2,)).tolist()
    torch.manual_seed(0)
    tensors = [torch.from_numpy(t).requires_grad_() for t in (q, k, v)]
    of_torch = flashtile.attention(*tensors, dropout_p=0.3)
    assert not np.array_equal(out, ours.attention(q, k, v, dropout_p=0.3, seed=(7, 12)))
    same, lse = ours.attention(q, k, v, dropout_p=0.3, seed=tuple(drawn), return_lse=True)
    assert np.array_equal(same, of_torch.detach())
    dout = array(2, 37, 4, 24)
    of_torch.backward(torch.from_numpy(dout))
    grads = ours.attention_backward(dout, q, k, v, same, lse, dropout_p=0.3, seed=tuple(drawn), deterministic=True)
    for got, tensor in zip(grads, tensors):
        np.testing.assert_allclose(got, tensor.grad, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("options, kind, message", [
    ({"q": [1.0]}, TypeError, "^q is a list, allowed is a numpy.ndarray"),
    ({"q": None}, TypeError, "^q is a NoneType, allowed is a numpy.ndarray"),
    ({"q": np.ma.array(array(2, 3, 4, 8))}, TypeError, "^q is a MaskedArray, allowed is a numpy.ndarray"),
    ({"q": array(2, 3, 4, 8).astype(np.float64)}, TypeError, "^q.dtype is float64, allowed is float32, float16 or bf"),
    ({"q": array(2, 3, 4, 8).astype(">f4")}, TypeError, "^q.dtype is >f4, allowed is .* in native byte order"),
    ({"q": array(2, 3, 8)}, ValueError, "^q.rank is 3, allowed is 4"),
    ({"v": np.array(1.0, np.float32)}, ValueError, "^v.rank is 0, allowed is 4"),
    ({"k": np.zeros((1,) * 7, np.float32)}, ValueError, "^k has 7 dimensions, allowed are at most 6"),
    ({"mask": np.ones(3)}, TypeError, "^mask.dtype is float64, allowed is bool"),
    ({"window": 5}, TypeError, r"^window is 5, allowed is \(left, right\)"),
    ({"scale": "a"}, TypeError, "^scale is 'a', allowed is None or a finite number"),
    ({"causal": "no"}, TypeError, "^causal is 'no', allowed is True or False"),
    ({"dropout_p": 0.5}, TypeError, "^seed is None, allowed with dropout_p are two whole numbers"),
    ({"dropout_p": 0.5, "seed": (1, -1)}, TypeError, r"^seed is \(1, -1\), allowed with dropout_p are two whole"),
    ({"dropout_p": 1.5, "seed": (1, 1)}, ValueError, r"^dropout_p is 1.5, allowed is a probability in \[0, 1\)"),
    ({"max_seqlen_k": 2.5}, TypeError, "^max_seqlen_k is 2.5, allowed is None or a whole number"),
    ({"exact_max": "no"}, TypeError, "^exact_max is 'no', allowed is True or False"),
    ({"deterministic": "no"}, TypeError, "^deterministic is 'no', allowed is True or False"),
    ({"deterministic": 2}, TypeError, "^deterministic is 2, allowed is True or False"),
    ({"softcap": 1e-38}, ValueError, r"^softcap is 1e-38, allowed is 0 \(off\) or a number from"),
    ({"softcap": 1e-50}, ValueError, r"^softcap is 1e-50, allowed is 0 \(off\) or a positive number"),
    ({"qv": None}, TypeError, r"^attention\(\) got an unexpected keyword argument 'qv'"),
    ({"block_table": np.zeros((2, 1))}, TypeError, "^block_table.dtype is float64, allowed is int32"),
    ({"block_table": np.full((2, 1), 9, np.int32)}, ValueError, r"^block_table\[0, 0\] is 9, allowed is 0 to 1"),
    ({"append": 3}, TypeError, "^append is a int, allowed is None or a flashtile.Append"),
    ({"append": flashtile.Append(None)}, TypeError, "^append.k is a NoneType, allowed is a numpy.ndarray"),
    ({"attention_chunk": "a"}, TypeError, "^attention_chunk is 'a', allowed is 0"),
    ({"return_lse": "yes"}, TypeError, "^return_lse is 'yes', allowed is True or False"),
], ids=lambda value: "-".join(value) if isinstance(value, dict) else "")
def test_errors(options, kind, message):
    given = {**dict(zip("qkv", problem())), **options}
    with pytest.raises(kind, match=message):
        ours.attention(**given)


def test_the_options_are_those_of_attention():
    """They have the same names and defaults; seed replaces PyTorch's generator. Only forward takes a cache."""
    of_torch, forward, backward = (inspect.signature(function).parameters for function in (
        flashtile.attention, ours.attention, ours.attention_backward))
    own = {"return_lse", "return_dbias", "return_dsinks", "return_dtensors", "dlse", "seed", "dout", "out", "lse"}
    for parameters, left_out in ((forward, {"return_lse"}), (backward, {"return_lse", *SERVING_NAMES, "append", *SCALE_NAMES, "scale_block",
                                                     "out_dtype"})):
        expected = {name: parameter.default for name, parameter in of_torch.items() if name not in left_out}
        assert {name: parameter.default for name, parameter in parameters.items() if name not in own} == expected
        assert parameters["seed"].default is None
    left_out = {"check_values"}  # is about a GPU's memory
    assert {name: parameter.default for name, parameter in inspect.signature(flashtile.append_kv).parameters.items()
            if name not in left_out} == {name: parameter.default for name, parameter in inspect.signature(
                ours.append_kv).parameters.items()}
    assert [*inspect.signature(flashtile.merge).parameters] == [*inspect.signature(ours.merge).parameters]


@pytest.mark.parametrize("name", ["bias", "sinks"])
def test_gradient_of_what_is_not_there(name):
    q, k, v = problem()
    out, lse = ours.attention(q, k, v, return_lse=True)
    with pytest.raises(ValueError, match=f"^return_d{name} is True without {name}, allowed is False"):
        ours.attention_backward(out, q, k, v, out, lse, **{f"return_d{name}": True})


def serving(case):
    """q, a cache and the options of a call, as arrays."""
    q, k = array(2, 3, 4, 16), array(6, 8, 2, 16)
    table, used = np.array([[4, 1], [3, 5]], np.int32), np.array([13, 7], np.int32)
    options = {"seqused_k": used, "causal": True}
    if case == "rows":
        return q, k, {"cache_batch_idx": np.array([5, 0]), "seqused_k": np.array([8, 4], np.int32)}
    options["block_table"] = table
    if case == "packed":
        q = q.reshape(6, 4, 16)
        return q, k, {**options, "cu_seqlens_q": np.array([0, 1, 5]), "max_seqlen_q": 4, "sinks": array(4)}
    if case == "tree":
        options.update(tree_mask=np.tril(np.ones((1, 1, 3, 3), bool)), positions=np.array([[9, 9, 10]] * 2, np.int32),
                       first_k=np.array([2, 0], np.int32), window=(4, 0))
    elif case == "prefix":
        options.update(prefix_groups=np.array([0, 2], np.int32), prefix_lengths=np.array([6], np.int32),
                       seqused_q=np.array([3, 1], np.int32))
    elif case == "append":
        new = array(2, 3, 2, 16)
        angles = np.random.default_rng(3).random((32, 8), np.float32)
        options["append"] = flashtile.Append(new[..., ::-1][..., ::-1], new, rotary_cos=np.cos(angles),
                                             rotary_sin=np.sin(angles), positions=np.arange(10).reshape(2, 5)[:, :3])
    return q, k, options


def as_tensors(value):
    if isinstance(value, flashtile.Append):
        return flashtile.Append(*map(as_tensors, value))
    return torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("case", ["rows", "packed", "tree", "prefix", "append"])
def test_serving(case):
    """The same bits, and the same cache afterwards, as of flashtile.attention on the same values."""
    q, cache, options = serving(case)
    caches, tensors = [cache.copy(), cache.copy()], [as_tensors(cache.copy()) for _ in range(2)]
    got = ours.attention(q, *caches, return_lse=True, **options)
    expected = flashtile.attention(as_tensors(q), *tensors, return_lse=True,
                                   **{name: as_tensors(value) for name, value in options.items()})
    for a, b in zip((*got, *caches), (*expected, *tensors), strict=True):
        assert np.array_equal(a, b)
    assert got[0].any() and np.array_equal(caches[0], cache) == (case != "append")


def test_append_kv():
    k, v, q = array(2, 3, 2, 16), array(2, 3, 2, 24), array(2, 3, 4, 16)
    cos, sin = array(20, 8), array(20, 8)
    k_cache, v_cache = array(2, 12, 2, 16), array(2, 12, 2, 24)
    tensors = [torch.from_numpy(t.copy()) for t in (k_cache, v_cache)]
    expected = flashtile.append_kv(*tensors, torch.from_numpy(k), torch.from_numpy(v), cache_seqlens=5,
                                   rotary_cos=torch.from_numpy(cos), rotary_sin=torch.from_numpy(sin),
                                   q=torch.from_numpy(q), causal=True)
    before = v_cache.copy()
    rotated = ours.append_kv(k_cache, v_cache, k, v, cache_seqlens=5, rotary_cos=cos, rotary_sin=sin, q=q, causal=True)
    assert np.array_equal(rotated, expected)
    assert np.array_equal(k_cache, tensors[0]) and np.array_equal(v_cache, tensors[1])
    assert np.array_equal(v_cache[:, 5:8], v) and np.array_equal(v_cache[:, :5], before[:, :5])
    assert ours.append_kv(k_cache, None, k, None, cache_seqlens=np.array([0, 9])) is None
    assert np.array_equal(k_cache[1, 9:], k[1])
    for cache in (k_cache[..., ::2], np.broadcast_to(k_cache[:1], k_cache.shape), np.asfortranarray(k_cache)):
        with pytest.raises(ValueError, match="^k_cache is an array that the library cannot write where it lies"):
            ours.append_kv(cache, v_cache, k, v, cache_seqlens=0)
    with pytest.raises(ValueError, match=r"^cache_seqlens\[0\] is 10, allowed is at most 9"):
        ours.append_kv(k_cache, v_cache, k, v, cache_seqlens=10)
    with pytest.raises(TypeError, match="^k is a NoneType, allowed is a numpy.ndarray"):
        ours.append_kv(k_cache, None, None, None, cache_seqlens=10)


def test_merge():
    q, k, v = problem()
    parts = [ours.attention(q, k[:, a:b], v[:, a:b], return_lse=True) for a, b in ((0, 20), (20, 53))]
    out, lse = ours.merge(*zip(*parts))
    expected, expected_lse = dense(*(torch.from_numpy(t).double() for t in (q, k, v)))
    np.testing.assert_allclose(out, expected, atol=1e-6, rtol=1e-5)
    np.testing.assert_allclose(lse, expected_lse, atol=1e-6, rtol=1e-5)
    stacked = ours.merge(np.stack([part[0] for part in parts]), np.stack([part[1] for part in parts]), dtype=np.float16)
    assert stacked[0].dtype == np.float16 and np.array_equal(stacked[1], lse)
    with pytest.raises(TypeError, match="^lses is a NoneType, allowed is a numpy.ndarray"):
        ours.merge(out[None], None)


def test_nothing_but_numpy():
    program = """
import sys
for name in ("torch", "transformers", "ml_dtypes", "scipy", "einops"):
    sys.modules[name] = None  # `import` of it raises
import numpy as np
import flashtile
q = np.ones((1, 8, 2, 16), np.float32)
v = np.arange(8, dtype=np.float32)[None, :, None, None].repeat(2, 2).repeat(16, 3)
out, lse = flashtile.numpy.attention(q, q, v, causal=True, return_lse=True)
np.testing.assert_allclose(out[0, :, 0, 0], np.arange(8) / 2, atol=1e-6)  # the mean of those before
np.testing.assert_allclose(lse[0, 1], 4 + np.log(np.arange(1, 9)), atol=1e-5)
dq, dk, dv = flashtile.numpy.attention_backward(np.ones_like(out), q, q, v, out, lse, causal=True)
np.testing.assert_allclose(dv[0, :, 0, 0], np.cumsum(1 / np.arange(8, 0, -1))[::-1], atol=1e-5)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
