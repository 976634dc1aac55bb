"""Calls that share their filled structs: whatever differs from one call to the next must reach the library."""

import pytest
import torch

import flashtile
from flashtile import _call, _one_call, _run
from oracle import dense


def three(*shape, dtype=torch.float32):
    return tuple(torch.randn(shape).to(dtype) for _ in range(3))


def check(q, k, v, out, **options):
    torch.testing.assert_close(out.double(), dense(q.double(), k.double(), v.double(), **options)[0], atol=1e-5,
                               rtol=1e-4)


def test_each_call_reads_its_own_tensors_and_makes_its_own_results():
    problems = [three(2, 9, 2, 16) for _ in range(3)]
    results = [flashtile.attention(*tensors, return_lse=True) for tensors in problems]
    assert len({tensor.data_ptr() for result in results for tensor in result}) == 6
    for tensors, (out, lse) in zip(problems, results):
        check(*tensors, out)
        torch.testing.assert_close(lse.double(), dense(*(t.double() for t in tensors))[1], atol=1e-5, rtol=1e-4)


def test_what_looks_alike_and_is_not():
    """Calls with the same sizes and other strides, with options that compare as equal, and with another dtype."""
    q, k, v = three(2, 4, 4, 16)
    for _ in range(2):
        check(q, k, v, flashtile.attention(q, k, v))
        turned = [t.transpose(1, 2) for t in (q, k, v)]
        check(*turned, flashtile.attention(*turned))
        check(q, turned[1], v, flashtile.attention(q, turned[1], v))
        check(q, k, v, flashtile.attention(q, k, v, causal=True), causal=True)
        check(q, k, v, flashtile.attention(q, k, v, window=(1, 0)), window=(1, 0))
        check(q, k, v, flashtile.attention(q, k, v, scale=1), scale=1.0)
        check(q, k, v, flashtile.attention(q, k, v, scale=True), scale=1.0)
        assert flashtile.attention(q.half(), k.half(), v.half()).dtype is torch.float16


def test_an_option_that_changes_its_value():
    """A tensor as scale is equal to itself, whatever it holds."""
    q, k, v = three(1, 9, 2, 16)
    scale = torch.tensor(0.25)
    check(q, k, v, flashtile.attention(q, k, v, scale=scale), scale=0.25)
    scale.fill_(2.0)
    check(q, k, v, flashtile.attention(q, k, v, scale=scale), scale=2.0)


def test_layouts_are_forgotten(monkeypatch):
    monkeypatch.setattr(_run, "_MOST", 4)
    _run._calls.clear()
    for n in (*range(1, 12), *range(1, 12)):
        tensors = three(1, n, 2, 16)
        check(*tensors, flashtile.attention(*tensors))
        assert len(_run._calls) <= 4


def test_results_hold_no_memory_between_calls():
    q, k, v = three(1, 64, 2, 16)
    _run._calls.clear()
    flashtile.attention(q, k, v)
    (calls,) = _run._calls.values()
    assert [example.untyped_storage().size() for example in calls.idle[0].examples if example is not None] == [0]


def test_inference_mode_leaves_no_trace():
    """Results that a call made there are PyTorch's inference tensors; later ones may not be."""
    _run._calls.clear()
    q, k, v = three(1, 9, 2, 16)
    with torch.inference_mode():
        assert flashtile.attention(q, k, v, return_lse=True)[0].is_inference()
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    for tensors in (leaves, (q, k, v)):
        out, lse = flashtile.attention(*tensors, return_lse=True)
        assert not out.is_inference() and not lse.is_inference()
    out = flashtile.attention(*leaves)
    out.sum().backward()
    assert not leaves[0].grad.is_inference()


def watch_workspaces(monkeypatch):
    """As on CUDA, PyTorch allocates them here. Returns the sizes that the library will be asked for."""
    asked = []
    workspace = _call.FilledCall.workspace
    monkeypatch.setattr(_call, "ALLOCATING", {_call.CPU, _call.CUDA})
    monkeypatch.setattr(_call.FilledCall, "workspace", lambda call: (asked.append(workspace(call)), asked[-1])[1])
    return asked


def test_backward_takes_its_workspace_from_pytorch(monkeypatch):
    """On CUDA it always does. The library is asked again for addresses that are not aligned."""
    asked = watch_workspaces(monkeypatch)
    _run._calls.clear()
    wide = [t.double().requires_grad_() for t in three(1, 9, 2, 16)]
    expected = torch.autograd.grad(dense(*wide)[0].square().sum(), wide)
    for offset, times in ((0, 1), (0, 1), (1, 2), (1, 3), (0, 3)):
        places = [torch.empty(t.numel() + 1)[offset:][:t.numel()].view(t.shape) for t in wide]
        leaves = [place.copy_(t.detach()).requires_grad_() for place, t in zip(places, wide)]
        for got, wanted in zip(torch.autograd.grad(flashtile.attention(*leaves).square().sum(), leaves), expected):
            torch.testing.assert_close(got.double(), wanted, atol=2e-5, rtol=1e-4)
        assert len(asked) == (times * 2 if asked[0] > 0 else times + 1)  # forward that needs none is asked once
    (forward,) = _run._calls.values()
    (backward,) = forward.of_gradients.values()
    filled = backward.idle[0]
    example = filled.example_workspace
    assert example.numel() == asked[1] and example.untyped_storage().size() == 0
    # An allocator may have given an earlier call's workspace to what this call writes.
    filled.example_workspace, filled.words[_call._WORKSPACE_SIZE] = None, 1 << 20
    filled.words[_call._WORKSPACE] = filled.words[filled.rows[-1]]
    assert filled.bring_workspace().numel() == asked[1]
    _run._calls.clear()


def test_forward_on_a_cache_takes_its_workspace_from_pytorch(monkeypatch):
    """Where it needs one, as for splits of keys; a call that needs none has none of an older one's."""
    asked = watch_workspaces(monkeypatch)
    _one_call._calls.clear()
    q, table = torch.randn(1, 1, 2, 16), torch.arange(40, dtype=torch.int32)[None]
    for _ in range(2):
        pages = torch.randn(40, 64, 2, 16)
        out = flashtile.attention(q, pages, pages, block_table=table, num_splits=8)
        expected, _ = dense(*(t.double() for t in (q, pages.view(1, -1, 2, 16), pages.view(1, -1, 2, 16))))
        torch.testing.assert_close(out.double(), expected, atol=2e-5, rtol=1e-4)
    assert len(asked) == 1
    (calls,) = _one_call._calls.values()
    (filled,) = calls.idle
    assert filled.needs_workspace == (asked[0] > 0)
    monkeypatch.setattr(_call.FilledCall, "workspace", lambda call: 24)
    filled.example_workspace = None
    workspace = filled.bring_workspace()
    assert workspace.numel() == 24 and filled.words[_call._WORKSPACE] == workspace.data_ptr()
    monkeypatch.setattr(_call.FilledCall, "workspace", lambda call: 0)
    filled.example_workspace = None
    assert filled.bring_workspace() is None and filled.words[_call._WORKSPACE] == 0 and not filled.needs_workspace
    _one_call._calls.clear()


@pytest.mark.parametrize("appends", [False, True])
def test_repeated_calls_on_a_cache_have_results_of_their_own(appends):
    """And zeros in the rows that the library does not write, whatever lay in their memory before."""
    q, used = torch.randn(2, 3, 2, 16), torch.tensor([3, 1], dtype=torch.int32)
    k, v, lengths = *torch.randn(2, 2, 40, 2, 16), torch.tensor([20, 30], dtype=torch.int32)
    append = flashtile.Append(q[:, :2], q[:, :2]) if appends else None
    options = {"first_k": torch.zeros(2, dtype=torch.int32), "seqused_k": lengths, "seqused_q": used, "append": append}
    of_all = flashtile.attention(q, k, v, **{**options, "seqused_q": None})
    for _ in range(3):
        out, lse = flashtile.attention(q, k, v, return_lse=True, **options)
        again = flashtile.attention(q, k, v, **options)
        assert out.data_ptr() != again.data_ptr() and torch.equal(out, again)
        assert not out[1, 1:].any() and not lse[1, :, 1:].any() and lse.shape == (2, 2, 3)
        torch.testing.assert_close(out[0], of_all[0])
        for tensor in (out, lse, again):
            tensor.fill_(torch.nan)
        del out, lse, again


def test_threads_with_the_same_layout():
    from concurrent.futures import ThreadPoolExecutor
    problems = [three(1, 33, 2, 16) for _ in range(40)]
    expected = [flashtile.attention(*tensors) for tensors in problems]
    with ThreadPoolExecutor(8) as pool:
        for got, wanted in zip(pool.map(lambda t: flashtile.attention(*t), problems * 5), expected * 5):
            assert torch.equal(got, wanted)


def test_a_call_that_failed_leaves_the_next_alone():
    q, k, v = three(1, 9, 2, 16)
    for _ in range(2):
        with pytest.raises(ValueError, match="softcap"):
            flashtile.attention(q, k, v, softcap=-1.0)
        check(q, k, v, flashtile.attention(q, k, v))


def test_saved_tensors_may_come_back_in_other_strides():
    """Hooks on saved tensors return the same values, but maybe with other strides."""
    leaves = [t.transpose(1, 2).requires_grad_() for t in three(2, 4, 9, 16)]
    wide = [t.detach().double().requires_grad_() for t in leaves]
    expected = torch.autograd.grad(dense(*wide)[0].square().sum(), wide)
    for pack in (lambda t: t, lambda t: t.clone(memory_format=torch.contiguous_format)):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            out = flashtile.attention(*leaves)
        for got, wanted in zip(torch.autograd.grad(out.square().sum(), leaves), expected):
            torch.testing.assert_close(got.double(), wanted, atol=2e-5, rtol=1e-4)


def test_lse_alone_is_differentiable():
    q, k, v = (t.requires_grad_() for t in three(2, 9, 2, 16))
    out, lse = flashtile.attention(q, k, v, return_lse=True)
    got = torch.autograd.grad(lse.square().sum(), (q, k, v), allow_unused=True)
    wide = [t.detach().double().requires_grad_() for t in (q, k, v)]
    expected = torch.autograd.grad(dense(*wide)[1].square().sum(), wide[:2])
    for a, b in zip(got, expected):
        torch.testing.assert_close(a.double(), b, atol=2e-5, rtol=1e-4)
    assert got[2] is None or not got[2].any()


@pytest.mark.parametrize("way", [flashtile.attention, flashtile.scaled_dot_product_attention],
                         ids=lambda way: way.__name__)
def test_gradients_of_gradients_are_refused(way):
    leaves = [t.requires_grad_() for t in three(1, 4, 4, 16)]
    (dq,) = torch.autograd.grad(way(*leaves).square().sum(), leaves[0], create_graph=True)
    with pytest.raises((RuntimeError, NotImplementedError), match="flashtile"):
        dq.sum().backward()


@pytest.mark.parametrize("q, name", [(5, "int"), ([[1.0]], "list"), (None, "NoneType")], ids=str)
def test_what_is_no_tensor_is_refused(q, name):
    k = torch.randn(1, 4, 2, 16)
    with pytest.raises(TypeError, match=f"^q is a {name}, allowed is a torch.Tensor"):
        flashtile.attention(q, k, k)
    if q is not None:
        with pytest.raises(TypeError, match=f"^k is a {name}, allowed is a torch.Tensor"):
            flashtile.attention(k, q, k)
