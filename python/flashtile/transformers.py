"""Hugging Face transformers: attn_implementation="flashtile".

    flashtile.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="flashtile")
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor

from ._attention import attention

NAME = "flashtile"


def register() -> None:
    """Registers the attention and its masks under "flashtile". Made for transformers 5; tested with 5.23."""
    from transformers import AttentionInterface
    from transformers import modeling_flash_attention_utils as flash_utils
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(NAME, attention_forward)
    # Masks as for PyTorch's attention: boolean, or none where causal or full attention says it all. Without a mask
    # registered under the same name, models would silently get none.
    AttentionMaskInterface.register(NAME, sdpa_mask)
    flash_utils._lazy_imports = _importing(flash_utils._lazy_imports)


def _importing(others: Callable) -> Callable:
    """transformers takes every name with "flash" in it for a build of flash-attn, and imports its functions at model
    construction. Under our name it gets ours; the attention itself is called by the interface above."""
    if getattr(others, "knows_flashtile", False):
        return others

    @functools.wraps(others)
    def lazy_imports(implementation: Optional[str], *args: Any, **kwargs: Any) -> tuple:
        if implementation != NAME:
            return others(implementation, *args, **kwargs)
        from .flash_attn import bert_padding, flash_attn_func, flash_attn_varlen_func
        return flash_attn_func, flash_attn_varlen_func, None, bert_padding.pad_input, bert_padding.unpad_input

    lazy_imports.knows_flashtile = True  # type: ignore[attr-defined]
    return lazy_imports


def attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Optional[Tensor],
    dropout: float = 0.0,
    scaling: Optional[float] = None,
    sliding_window: Optional[int] = None,
    softcap: Optional[float] = None,
    is_causal: Optional[bool] = None,
    position_bias: Optional[Tensor] = None,
    s_aux: Optional[Tensor] = None,
    cache: Any = None,
    cu_seq_lens_q: Optional[Tensor] = None,
    cu_seq_lens_k: Optional[Tensor] = None,
    max_length_q: Optional[int] = None,
    max_length_k: Optional[int] = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function: q, k, v (batch, heads, seqlen, head_dim), out (batch, seqlen, heads, head_dim).

    attention_mask is boolean (True keeps) or a float to add, and then holds the causal mask and the window too. Packed
    sequences come by cu_seq_lens, in a batch of one.
    """
    if s_aux is not None:
        raise NotImplementedError("attention sinks (s_aux) are not in flashtile yet")
    if cache is not None:
        raise NotImplementedError("paged caches (continuous batching) are not in flashtile yet")
    q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
    options: dict[str, Any] = {"scale": scaling, "softcap": softcap or 0.0, "dropout_p": dropout, "bias": position_bias}
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if cu_seq_lens_q is not None and q.shape[0] == 1:
        window = (-1, -1) if sliding_window is None else (sliding_window - 1, sliding_window - 1)
        out = attention(q[0], k[0], v[0], causal=is_causal, window=window, cu_seqlens_q=cu_seq_lens_q,
                        cu_seqlens_k=cu_seq_lens_k, max_seqlen_q=max_length_q, max_seqlen_k=max_length_k, **options)
        return out.unsqueeze(0), None
    if attention_mask is None:
        # No mask means that causal says it all; a single query sees every key. Keys beyond the queries belong to an
        # empty static cache: aligned top-left, no query sees them.
        options.update(causal=is_causal and q.shape[1] > 1, align="top-left")
    elif attention_mask.dtype is torch.bool:
        options["mask"] = attention_mask
    else:
        options["bias"] = attention_mask if position_bias is None else attention_mask + position_bias
    return attention(q, k, v, **options), None
