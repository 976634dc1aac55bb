"""The implementations that are compared: flashtile, PyTorch's backends through autograd, FlashAttention-3. Each has its
results (`out`, `gradients`) and its calls (`forward`, `backward`, `both`). With backward=False there are no gradients,
and nothing of the backward pass is compiled or run."""

import math
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

METHODS = ("flashtile", "torch_flash", "torch_cudnn", "fa3", "torch_standard")
SEED = 1


class Flashtile:
    def __init__(self, library, problem, name="flashtile", backward=True, **options):
        p = problem
        self.name = name
        self.out = torch.full_like(p.dout, math.nan)
        self.lse = torch.full(p.lse_shape(), math.nan, device=p.q.device)
        options = {"causal": p.causal, "window": p.window, "softcap": p.softcap, "dropout": p.dropout, "seed": SEED,
                   "alibi_slopes": p.slopes, "bias": p.bias, "mask": p.mask, "seqused_k": p.seqused,
                   "cu_seqlens": p.starts, "max_seqlen": p.seqlen if p.lengths is not None else -1} | options
        self.forward = library.forward(p.q, p.k, p.v, self.out, self.lse, **options)
        self.forward()
        self.gradients = ()
        if backward:
            self.gradients = tuple(torch.full_like(x, math.nan) for x in (p.q, p.k, p.v))
            self.backward = library.backward(p.q, p.k, p.v, self.out, self.lse, p.dout, *self.gradients, **options)
            self.backward()

    def both(self):
        self.forward()
        self.backward()


class Torch:
    """PyTorch's own, through autograd."""

    def __init__(self, problem, name, backward=True):
        p = self.problem = problem
        self.name = name
        self.backend = {"torch_flash": SDPBackend.FLASH_ATTENTION, "torch_cudnn": SDPBackend.CUDNN_ATTENTION}.get(name)
        self.q, self.k, self.v = (x.detach().transpose(1, 2).requires_grad_(backward) for x in (p.q, p.k, p.v))
        self.dout = p.dout.transpose(1, 2)
        self.hidden = None
        if self.backend is None and p.causal:
            self.hidden = torch.ones(p.seqlen, p.seqlen, dtype=torch.bool, device=p.q.device).triu(1)
        self.kept = self.attend()  # the graph that the backward pass alone needs
        self.out = self.kept.detach().transpose(1, 2)
        self.gradients = ()
        if backward:
            self.backward()
            self.gradients = tuple(g.transpose(1, 2) for g in self.made)

    def attend(self):
        p = self.problem
        if self.backend is not None:
            with sdpa_kernel(self.backend):
                return F.scaled_dot_product_attention(self.q, self.k, self.v, dropout_p=p.dropout, is_causal=p.causal,
                                                      enable_gqa=p.heads != p.kv_heads)
        scores = torch.matmul(self.q * p.scale(), self.k.transpose(-2, -1))
        if p.causal:
            scores = scores.masked_fill(self.hidden, -math.inf)
        return torch.matmul(torch.softmax(scores, -1), self.v)

    def forward(self):
        with torch.no_grad():
            self.attend()

    def backward(self):
        self.made = torch.autograd.grad(self.kept, (self.q, self.k, self.v), self.dout, retain_graph=True)

    def both(self):
        torch.autograd.grad(self.attend(), (self.q, self.k, self.v), self.dout)


class FlashAttention3:
    """fa3.py's load(folder) returns its two functions for dense batches. Packed batches call the operator that these
    functions call."""

    loaded = {}

    @classmethod
    def load(cls, folder):
        if folder not in cls.loaded:
            sys.path.insert(0, folder)
            import fa3
            cls.loaded[folder] = fa3.load(os.path.join(folder, "unpacked"))
        return cls.loaded[folder]

    def __init__(self, problem, folder, name="fa3", backward=True):
        self.functions = self.load(folder)
        p = self.problem = problem
        self.name = name
        self.options = {}
        if p.lengths is not None:
            self.options = {"cu_seqlens_q": p.starts, "cu_seqlens_k": p.starts, "max_seqlen_q": p.seqlen,
                            "max_seqlen_k": p.seqlen}
        self.out, self.lse = self.attend()
        self.gradients = self.backward() if backward else ()

    def attend(self):
        p = self.problem
        if not self.options:
            return self.functions[0](p.q, p.k, p.v, causal=p.causal)
        return torch.ops.flash_attn_x.fwd(p.q, p.k, p.v, softmax_scale=p.scale(), is_causal=p.causal, num_splits=1,
                                          **self.options)[:2]

    def forward(self):
        self.attend()

    def backward(self):
        return self.differentiate(self.out, self.lse)

    def differentiate(self, out, lse):
        p = self.problem
        if not self.options:
            return self.functions[1](p.dout, p.q, p.k, p.v, out, lse, causal=p.causal)
        gradients = [torch.empty_like(x) for x in (p.q, p.k, p.v)]
        torch.ops.flash_attn_x.bwd(p.dout, p.q, p.k, p.v, out, lse, *gradients, softmax_scale=p.scale(),
                                   is_causal=p.causal, **self.options)
        return gradients

    def both(self):
        self.differentiate(*self.attend())


def make_methods(library, problem, names, left_out, fa3=None, backward=True):
    """The methods of these names that can solve the problem. The others are noted in left_out, but flashtile must be
    able to."""
    makers = {"flashtile": lambda: Flashtile(library, problem, backward=backward),
              "fa3": lambda: FlashAttention3(problem, fa3, backward=backward)}
    methods = []
    for name in names:
        try:
            methods.append(makers.get(name, lambda: Torch(problem, name, backward))())
        except Exception as error:  # out of memory, or the backend cannot solve the problem
            if name == "flashtile":
                raise
            left_out.append({"method": name, **problem.row(), "reason": str(error).split("\n")[0][:200]})
    return methods


def make_flashtile(library, problems, backward=False):
    """Flashtile's forward of each named problem, or both passes, by name. They are made in parallel, since each may
    have to be compiled."""
    with ThreadPoolExecutor(max(1, os.cpu_count() // 2)) as pool:
        methods = pool.map(lambda item: Flashtile(library, item[1], item[0], backward), problems.items())
        return {method.name: method for method in methods}
