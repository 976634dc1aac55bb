"""The operators under torch.compile, torch.export, opcheck, gradcheck, checkpointing and vmap."""

import pytest
import torch
import torch._dynamo.testing
from torch.utils.checkpoint import checkpoint

import flashtile
from flashtile._ops import backward_op, forward_op
from flashtile._options import CallOptions
from flashtile._structs import ONE_FOR_ALL


def tensors(seqlen=24, heads=2, d=8, **how):
    return [torch.randn(2, seqlen, heads, d, requires_grad=True, **how) for _ in range(3)]


def gradients(function, inputs):
    out = function(*inputs)
    return out, *torch.autograd.grad(out.square().sum(), inputs)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


def block(q, k, v):
    return flashtile.attention(q * 2, k + 1, v.sin(), causal=True, window=(9, 0)).relu()


def test_compile_fullgraph():
    inputs = tensors()
    for got, expected in zip(gradients(torch.compile(block, fullgraph=True), inputs), gradients(block, inputs)):
        torch.testing.assert_close(got, expected)


def test_compile_dynamic_shapes_without_compiling_again():
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(block, fullgraph=True, dynamic=True, backend=counter)
    frames = []
    for seqlen in (16, 24, 40):
        inputs = tensors(seqlen)
        for got, expected in zip(gradients(compiled, inputs), gradients(block, inputs)):
            torch.testing.assert_close(got, expected)
        frames.append(counter.frame_count)
    assert frames[0] > 0 and frames == frames[:1] * 3


def test_compile_packed_and_lse():
    cu = torch.tensor([0, 10, 24], dtype=torch.int32)

    def packed(q, k, v):
        out, lse = flashtile.attention(q, k, v, cu_seqlens_q=cu, cu_seqlens_k=cu, max_seqlen_q=14, max_seqlen_k=14,
                                       return_lse=True)
        return out * lse.mT.unsqueeze(-1)

    inputs = [torch.randn(24, 2, 8, requires_grad=True) for _ in range(3)]
    for got, expected in zip(gradients(torch.compile(packed, fullgraph=True), inputs), gradients(packed, inputs)):
        torch.testing.assert_close(got, expected)


def test_compile_a_shard_for_each_sequence():
    def shards(q, k, v, diagonal):
        return flashtile.attention(q, k, v, causal=True, diagonal=diagonal, origin=(0, 0, diagonal + 9, 4))

    def function(q, k, v):
        return shards(q, k, v, torch.tensor([3, -5]))

    inputs = tensors()
    compiled = torch.compile(function, fullgraph=True)
    for got, expected in zip(gradients(compiled, inputs), gradients(function, inputs)):
        torch.testing.assert_close(got, expected)


def test_compile_autocast(device):
    def mixed(q, k, v):
        with torch.autocast(device.type, torch.bfloat16):
            return flashtile.attention(q, k, v)

    inputs = tensors()
    out = torch.compile(mixed, fullgraph=True)(*inputs)
    assert out.dtype is torch.bfloat16 and torch.equal(out, mixed(*inputs))


def test_compile_dropout_draws_afresh():
    compiled = torch.compile(lambda q, k, v: flashtile.attention(q, k, v, dropout_p=0.5), fullgraph=True)
    q, k, _ = tensors()
    identity = torch.eye(24)[None, :, None].expand(2, -1, 2, -1)
    first, second = (compiled(q, k, identity) != 0 for _ in range(2))
    assert not torch.equal(first, second)
    assert abs(first.double().mean() - 0.5) < 0.06
    # v is linear in out: its gradient shows which mask backward used.
    v = identity.contiguous().requires_grad_()
    out = compiled(q, k, v)
    (dv,) = torch.autograd.grad(out[0, 3, 0].sum(), v)
    assert torch.equal((dv[0, :, 0] != 0).any(-1), out[0, 3, 0] != 0)


def test_export():
    class Block(torch.nn.Module):
        def forward(self, q, k, v):
            return block(q, k, v)

    inputs = tuple(t.detach() for t in tensors())
    seqlen = torch.export.Dim("seqlen", min=2, max=512)
    program = torch.export.export(Block(), inputs, dynamic_shapes=({1: seqlen},) * 3)
    assert any(node.target is torch.ops.flashtile.forward.default for node in program.graph.nodes)
    other = tuple(t.detach() for t in tensors(40))
    torch.testing.assert_close(program.module()(*other), block(*other))


def operands(bias=None, rng=None, cu=None, longest=-1, dropout=0.0, sinks=None, each=ONE_FOR_ALL):
    """The arguments of the operators after q, k and v."""
    options = CallOptions(max_seqlen_q=longest, max_seqlen_k=longest, dropout=dropout)
    return (None, bias, None, cu, cu, None, sinks, *each, *options, rng)


@pytest.mark.parametrize("case", ["plain", "bias", "dropout", "packed", "sinks", "shards"])
def test_opcheck(case):
    q, k, v = tensors()
    rest = operands()
    if case == "bias":
        rest = operands(bias=torch.randn(2, 24, 24, requires_grad=True))
    elif case == "dropout":
        rest = operands(rng=torch.tensor([5, 7]), dropout=0.25)
    elif case == "packed":
        q, k, v = (t.detach().flatten(0, 1).requires_grad_() for t in (q, k, v))
        rest = operands(cu=torch.tensor([0, 20, 48]), longest=28)
    elif case == "sinks":
        rest = operands(sinks=torch.randn(2, requires_grad=True))
    elif case == "shards":
        rest = operands(rng=torch.tensor([5, 7]), dropout=0.25, each=(torch.tensor([3, -4]), torch.tensor([0, 9]), None))
    torch.library.opcheck(forward_op, (q, k, v, *rest))
    plain = [t.detach() if isinstance(t, torch.Tensor) else t for t in (q, k, v, *rest)]
    out, lse = forward_op(*plain)
    torch.library.opcheck(backward_op, (*plain, out, lse, torch.randn_like(out), torch.randn_like(lse), case == "bias",
                                        case == "sinks"))


@pytest.mark.parametrize("rng", [(2,), (1,), (3, 1)], ids=str)
def test_a_seed_of_a_wrong_kind_is_refused(rng):
    """The library would read past the end of a short tensor, and read floats as whole numbers."""
    dtype = torch.float64 if rng == (2,) else torch.int64
    with pytest.raises(TypeError, match="^rng is torch.* allowed is torch.int64 .2,., contiguous, on q's device"):
        forward_op(*tensors(), *operands(rng=torch.zeros(rng, dtype=dtype), dropout=0.25))


@pytest.mark.parametrize("traced", [False, True])
def test_gradcheck(traced):
    """In fp32, where numerical differences need a wide step and loose bounds. A wrong factor is far outside them."""
    q, k, v = tensors(seqlen=5, heads=2, d=4)
    bias = torch.randn(2, 5, 5, requires_grad=True)
    alone = operands()

    def function(q, k, v, bias):
        if traced:
            return forward_op(q, k, v, None, bias, *alone[2:])
        return flashtile.attention(q, k, v, bias=bias, return_lse=True)

    with pytest.warns(UserWarning, match="double precision"):
        assert torch.autograd.gradcheck(function, (q, k, v, bias), eps=1e-2, atol=2e-3, rtol=1e-2)


@pytest.mark.parametrize("traced", [False, True])
def test_gradcheck_of_sinks(traced):
    q, k, v = tensors(seqlen=5, heads=2, d=4)
    sinks = torch.randn(2, requires_grad=True)

    def function(q, k, v, sinks):
        if traced:
            return forward_op(q, k, v, *operands(sinks=sinks))
        return flashtile.attention(q, k, v, sinks=sinks, return_lse=True)

    with pytest.warns(UserWarning, match="double precision"):
        assert torch.autograd.gradcheck(function, (q, k, v, sinks), eps=1e-2, atol=2e-3, rtol=1e-2)


def test_checkpoint_replays_dropout():
    inputs = tensors()

    def dropped(q, k, v):
        return flashtile.attention(q, k, v, dropout_p=0.4)

    torch.manual_seed(5)
    expected = gradients(dropped, inputs)
    for reentrant in (False, True):
        torch.manual_seed(5)
        out = checkpoint(dropped, *inputs, use_reentrant=reentrant)
        if reentrant:
            out.square().sum().backward()
            got = [t.grad for t in inputs]
        else:
            got = torch.autograd.grad(out.square().sum(), inputs)
        for a, b in zip((out, *got), expected):
            torch.testing.assert_close(a, b)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_graph():
    """Forward and backward are captured once and replayed on other values; dropout draws a new mask at each replay."""
    q, k, v = (torch.randn(2, 24, 2, 64, dtype=torch.bfloat16, device="cuda", requires_grad=True) for _ in range(3))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # compiles, which a capture may not
        for dropout in (0.0, 0.5):
            gradients(lambda *t: flashtile.attention(*t, causal=True, dropout_p=dropout), (q, k, v))  # noqa: B023
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = gradients(lambda *t: flashtile.attention(*t, causal=True), (q, k, v))
        dropped = flashtile.attention(q, k, v, causal=True, dropout_p=0.5)
    draws = []
    for _ in range(2):
        with torch.no_grad():
            for tensor in (q, k, v):
                tensor.copy_(torch.randn_like(tensor))
        graph.replay()
        for got, expected in zip(results, gradients(lambda *t: flashtile.attention(*t, causal=True), (q, k, v))):
            torch.testing.assert_close(got, expected)
        graph.replay()
        draws += [dropped.clone() == 0]
        graph.replay()
        assert not torch.equal(dropped == 0, draws[-1])


def test_modes_see_the_operator():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(func)
            return func(*args, **(kwargs or {}))

    q, k, v = tensors()
    with Watch() as watch:
        flashtile.attention(q, k, v)
    assert torch.ops.flashtile.forward.default in watch.seen


def test_vmap_works():
    q, k, v = (torch.randn(3, 2, 24, 2, 8) for _ in range(3))
    got = torch.vmap(flashtile.attention)(q, k, v)
    expected = torch.stack([flashtile.attention(*t) for t in zip(q, k, v)])
    torch.testing.assert_close(got, expected)
    got = torch.vmap(flashtile.attention, in_dims=(0, None, None))(q, k[0], v[0])
    expected = torch.stack([flashtile.attention(t, k[0], v[0]) for t in q])
    torch.testing.assert_close(got, expected)


def test_functional_gradients():
    q, k, v = (t.detach() for t in tensors())
    got = torch.func.grad(lambda q: flashtile.attention(q, k, v).square().sum())(q)
    leaf = q.clone().requires_grad_()
    flashtile.attention(leaf, k, v).square().sum().backward()
    torch.testing.assert_close(got, leaf.grad)
    alone = torch.func.grad(lambda q, k, v: flashtile.attention(q[None], k[None], v[None]).square().sum())
    each = torch.func.vmap(alone)
    torch.testing.assert_close(each(q, k, v), leaf.grad)
