"""Causal attention by four methods, each a function of q, k, v (batch, seqlen, heads, head_dim) and dropout's
probability.

    standard    S = Q K^T, P = softmax(S), O = P V, through memory
    flash       FlashAttention in PyTorch (scaled_dot_product_attention)
    cudnn       cuDNN (scaled_dot_product_attention)
    flashtile   this repository
"""

import functools
import math
import warnings

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def keep_mask(p, q):
    """The mask that flashtile's dropout would draw next from PyTorch's generator, so that standard attention drops what
    flashtile drops and two loss curves can be compared; and p as honoured, to 1/65536. The package hands a mask out to
    flash-attn's interface only, so this takes it from where that does."""
    from flashtile._attention import draw
    from flashtile._call import dropout_mask
    keep = torch.empty(q.shape[0], q.shape[2], q.shape[1], q.shape[1], dtype=torch.bool, device=q.device)
    dropout_mask(p, draw(q), keep)
    return keep, round(65536 * p) / 65536


def standard(q, k, v, dropout=0.0):
    rows = q.shape[1]
    hidden = torch.ones(rows, rows, dtype=torch.bool, device=q.device).triu(1)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    s = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    p = torch.softmax(s.masked_fill(hidden, -math.inf), -1)
    if dropout:
        keep, honoured = keep_mask(dropout, q.transpose(1, 2))
        p = p * keep / (1 - honoured)
    return (p @ v).transpose(1, 2)


def of_pytorch(backend, q, k, v, dropout=0.0):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True).transpose(1, 2)


def of_flashtile(q, k, v, dropout=0.0):
    import flashtile
    return flashtile.attention(q, k, v, causal=True, dropout_p=dropout)


def of_ranks(q, k, v, dropout=0.0):
    """flashtile where each rank has a part of the sequence."""
    from flashtile.distributed import context_parallel_attention
    return context_parallel_attention(q, k, v, causal=True, dropout_p=dropout)


METHODS = {
    "standard": standard,
    "flash": functools.partial(of_pytorch, SDPBackend.FLASH_ATTENTION),
    "cudnn": functools.partial(of_pytorch, SDPBackend.CUDNN_ATTENTION),
    "flashtile": of_flashtile,
}


def why_not(name, device, dtype, head_dim, dropout=0.0):
    """Why this method cannot train here, or None. It is tried, forward and backward: PyTorch's own rules for its
    backends change with each version. Seeds are set after this: a trial with dropout draws."""
    q, k, v = (torch.zeros(1, 128, 1, head_dim, device=device, dtype=dtype, requires_grad=True) for _ in range(3))
    with warnings.catch_warnings(record=True) as reasons:
        warnings.simplefilter("always")
        try:
            METHODS[name](q, k, v, dropout).sum().backward()
        except (ImportError, RuntimeError) as error:
            told = [str(reason.message).split(" (Triggered")[0] for reason in reasons]
            return " ".join([f"{name} does not run on {device} in {dtype}: {error}".rstrip(), *told])
    return None


def chosen(names, device, dtype, head_dim, dropout=0.0):
    """The methods of a list with commas. Ends the program where one is unknown or cannot run here: a row that is
    silently missing, or another backend's in its place, would be a wrong table."""
    names = names.split(",")
    for name in dict.fromkeys(names):
        if name not in METHODS:
            raise SystemExit(f"--attention={name} is none of {', '.join(METHODS)}")
        if reason := why_not(name, device, dtype, head_dim, dropout):
            raise SystemExit(f"--attention={name}: {reason}")
    return names
