"""The PyTorch side of `flashtile bench --against=torch`; bench_peer.py has the protocol."""

import math
import os
import sys

try:
    import numpy
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    sys.exit(f"bench_torch.py: {missing}")

import bench_peer

DTYPES = {
    "fp32": (torch.float32, numpy.float32),
    "fp16": (torch.float16, numpy.int16),
    "bf16": (torch.bfloat16, numpy.int16),
}


def read_tensor(folder, name, dtype, batch, seqlen, heads, head_dim):
    """Contiguous (batch, heads, seqlen, head_dim), the layout that PyTorch documents."""
    torch_dtype, numpy_dtype = DTYPES[dtype]
    numbers = numpy.fromfile(os.path.join(folder, name), dtype=numpy_dtype)
    tensor = torch.from_numpy(numbers).view(torch_dtype).view(batch, seqlen, heads, head_dim)
    return tensor.transpose(1, 2).contiguous()


def write_tensor(folder, name, tensor):
    tensor.detach().transpose(1, 2).contiguous().float().numpy().tofile(os.path.join(folder, name))


class Attention:
    """One method at one point of the grid, ready to be timed."""

    def __init__(self, request):
        r = request
        self.passes = r["pass"]
        self.causal = r["causal"]
        self.group = r["heads"] // r["kv_heads"]
        self.attend = {"torch_sdpa": self.sdpa, "torch_standard": self.standard}[r["method"]]
        torch.set_num_threads(r["threads"])

        gradients = self.passes in ("backward", "both")
        def read(name, rows, heads):
            return read_tensor(r["folder"], name, r["dtype"], r["batch"], rows, heads, r["head_dim"])

        self.q = read("q", r["seqlen_q"], r["heads"]).requires_grad_(gradients)
        self.k = read("k", r["seqlen"], r["kv_heads"]).requires_grad_(gradients)
        self.v = read("v", r["seqlen"], r["kv_heads"]).requires_grad_(gradients)
        self.dout = read("dout", r["seqlen_q"], r["heads"]) if gradients else None
        self.scale = 1.0 / math.sqrt(r["head_dim"])
        self.hidden = None
        if self.causal:
            self.hidden = torch.ones(r["seqlen"], r["seqlen"], dtype=torch.bool).triu(1)
        self.out = None
        self.gradients = ()
        if self.passes == "backward":
            self.out = self.attend()

    def sdpa(self):
        return F.scaled_dot_product_attention(
            self.q, self.k, self.v, is_causal=self.causal, enable_gqa=self.group > 1)

    def standard(self):
        if self.passes == "decode":
            # The query heads of a group as rows of one product, so that keys are neither copied nor read again.
            q = (self.q * self.scale).flatten(1, 2).unflatten(1, (self.k.shape[1], -1))
            scores = torch.matmul(q, self.k.transpose(-2, -1))
            return torch.matmul(torch.softmax(scores, -1), self.v).view(self.q.shape[0], -1, self.q.shape[2], self.v.shape[3])
        k = self.k.repeat_interleave(self.group, 1) if self.group > 1 else self.k
        v = self.v.repeat_interleave(self.group, 1) if self.group > 1 else self.v
        scores = torch.matmul(self.q * self.scale, k.transpose(-2, -1))
        if self.causal:
            scores = scores.masked_fill(self.hidden, -math.inf)
        return torch.matmul(torch.softmax(scores, -1), v)

    def step(self):
        if self.passes in ("forward", "decode"):
            with torch.no_grad():
                self.out = self.attend()
        elif self.passes == "backward":
            self.gradients = torch.autograd.grad(self.out, (self.q, self.k, self.v), self.dout, retain_graph=True)
        else:
            self.out = self.attend()
            self.gradients = torch.autograd.grad(self.out, (self.q, self.k, self.v), self.dout)

    def save(self, folder):
        write_tensor(folder, "out", self.out)
        for name, gradient in zip(("dq", "dk", "dv"), self.gradients):
            write_tensor(folder, name, gradient)


if __name__ == "__main__":
    bench_peer.serve(Attention, torch.__version__, torch.backends.cpu.get_cpu_capability())
