"""How near attention of quantised q, k and v is to attention of the tensors themselves, in fp64: the test of
FlashAttention-3 (arXiv 2407.08608, section 4.3), whose entries are N(0, 1) and one in a thousand N(0, 100) more.

    python examples/fp8/accuracy.py                       # a table
    python examples/fp8/accuracy.py --device=cuda
    python examples/fp8/accuracy.py --tensors=qkv.pt      # of a list of (q, k, v), as a model's layers have them
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

import flashtile

SEED = 7


def with_outliers(*shape: int) -> Tensor:
    outliers = torch.bernoulli(torch.full(shape, 0.001)) * 10 * torch.randn(shape)
    return torch.randn(shape) + outliers


def exact(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """One head at a time, in fp64."""
    group = q.shape[2] // k.shape[2]
    out = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    hidden = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).triu(1) if causal else None
    for b in range(q.shape[0]):
        for h in range(q.shape[2]):
            s = q[b, :, h].double() @ k[b, :, h // group].double().mT * q.shape[-1] ** -0.5
            if hidden is not None:
                s = s.masked_fill(hidden, -torch.inf)
            out[b, :, h] = s.softmax(-1) @ v[b, :, h // group].double()
    return out


def standard(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Attention with the whole of S and P in the inputs' type."""
    group = q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)))
    s = (q @ k.mT) * q.shape[-1] ** -0.5
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1), -torch.inf)
    return (s.float().softmax(-1).to(q.dtype) @ v).transpose(1, 2)


def standard_e4m3(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """The baseline: standard attention whose products take e4m3, with one scale a tensor, P's too."""
    q, k, v = (flashtile.dequantize(*flashtile.quantize(x)) for x in (q, k, v))
    group = q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)))
    s = (q @ k.mT) * q.shape[-1] ** -0.5
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1), -torch.inf)
    p = s.softmax(-1)
    scale = p.max() / 448
    return ((p / scale).to(torch.float8_e4m3fn).to(p.dtype) * scale @ v).transpose(1, 2)


def quantized(q: Tensor, k: Tensor, v: Tensor, causal: bool, block: int, hadamard: bool) -> Tensor:
    seed = SEED if hadamard else None
    (q8, q_scale), (k8, k_scale) = (flashtile.quantize(x, block=block, hadamard=seed) for x in (q, k))
    v8, v_scale = flashtile.quantize(v, block=block)
    return flashtile.attention(q8, k8, v8, causal=causal, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale,
                               scale_block=block, out_dtype=torch.float32)


def errors(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, block: int = 128) -> dict[str, float]:
    """The root of the mean squared error of each way."""
    expected = exact(q, k, v, causal)
    half = [x.to(torch.float16) for x in (q, k, v)]
    ways = {"standard, fp16": standard(*half, causal), "flashtile, fp16": flashtile.attention(*half, causal=causal),
            "standard, e4m3": standard_e4m3(q, k, v, causal), "a tensor": quantized(q, k, v, causal, 0, False), "blocks": quantized(q, k, v, causal, block, False),
            "M": quantized(q, k, v, causal, 0, True), "blocks and M": quantized(q, k, v, causal, block, True)}
    return {name: (out.double() - expected).square().mean().sqrt().item() for name, out in ways.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seqlen", type=int, default=2048)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--block", type=int, default=128)
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--tensors", help="a file of torch.save, a list of (q, k, v): (batch, seqlen, heads, d)")
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.tensors:
        layers = torch.load(options.tensors)
    else:
        layers = [[with_outliers(1, options.seqlen, options.heads, options.head_dim) for _ in range(3)]]
    for layer, tensors in enumerate(layers):
        q, k, v = (x.to(options.device) for x in tensors)
        measured = errors(q, k, v, options.causal, options.block)
        if len(layers) > 1:
            print(f"layer {layer}")
        baseline = measured["standard, e4m3"]
        for name, error in measured.items():
            print(f"{name:20} {error:.2e}   {baseline / error:6.2f} times nearer than standard attention in e4m3")


if __name__ == "__main__":
    main()
