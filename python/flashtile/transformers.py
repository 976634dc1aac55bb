"""Hugging Face transformers: attn_implementation="flashtile".

    flashtile.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="flashtile")
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from ._attention import attention
from ._transformers_batching import pages
from ._transformers_names import GIVEN, NAME, accept


def register() -> None:
    """Registers flashtile's attention and its masks as "flashtile". For transformers 5; tested with 5.23."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    # Without a mask registered under the same name, models would silently get none.
    for name in (NAME, GIVEN):
        AttentionInterface.register(name, attention_forward)
        AttentionMaskInterface.register(name, attention_mask)
    accept()


def attention_mask(*args: Any, **kwargs: Any) -> Optional[Tensor]:
    """The masks that transformers makes for PyTorch's attention: boolean, or None where attention is causal or full."""
    from transformers.masking_utils import sdpa_mask

    if _drops_queries(kwargs.get("config")) and kwargs["q_length"] != kwargs["kv_length"]:
        kwargs["allow_is_causal_skip"] = False
    return sdpa_mask(*args, **kwargs)


def _drops_queries(config: Any) -> bool:
    """Whether a model shares keys and values between layers. Such a model drops all but the last queries before those
    layers, and where it gives no mask, causal attention is aligned bottom-right. In other models more keys than queries
    mean that the rest of a static cache is empty."""
    return bool(getattr(config, "num_kv_shared_layers", None))


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
    sinks: Optional[Tensor] = None,
    cache: Any = None,
    cu_seq_lens_q: Optional[Tensor] = None,
    max_length_q: Optional[int] = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function: q, k, v (batch, heads, seqlen, head_dim), out (batch, seqlen, heads, head_dim).

    attention_mask is boolean (True keeps) or a float that is added to the scores; it includes the causal mask and the
    window. Packed sequences are a batch of one with cu_seq_lens. cache is the paged cache of continuous batching. s_aux
    and sinks are attention sinks.
    """
    _refuse(module, kwargs)
    options: dict[str, Any] = {"scale": scaling, "softcap": softcap or 0.0, "dropout_p": dropout, "bias": position_bias}
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    window = (-1, -1) if sliding_window is None else (sliding_window - 1, sliding_window - 1)
    if cache is not None:
        assert cu_seq_lens_q is not None
        paged = pages(cache, module.layer_idx, key, value, cu_seq_lens_q, kwargs)
        if paged is not None:
            k, v, more = paged
            options.update(causal=is_causal, window=window, cu_seqlens_q=cu_seq_lens_q, max_seqlen_q=max_length_q,
                           **more)
            return _with_sinks(query[0].transpose(0, 1), k, v, s_aux, sinks, options).unsqueeze(0), None
        # Writes the new keys and values, and gives all of the batch's sequences, one after the other. In kwargs the
        # lengths of keys, which come by kind of layer, become those of this layer.
        key, value = cache.update(key_states=key, value_states=value, layer_idx=module.layer_idx, kwargs=kwargs)
    q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
    if cu_seq_lens_q is not None and q.shape[0] == 1:
        options.update(causal=is_causal, window=window, cu_seqlens_q=cu_seq_lens_q,
                       cu_seqlens_k=kwargs.get("cu_seq_lens_k"), max_seqlen_q=max_length_q,
                       max_seqlen_k=kwargs.get("max_length_k"))
        return _with_sinks(q[0], k[0], v[0], s_aux, sinks, options).unsqueeze(0), None
    if attention_mask is None:
        # Without a mask attention is causal or full, and a single query sees every key. Where there are more keys than
        # queries, the last ones are the empty rest of a static cache. Top-left alignment hides them.
        align = "bottom-right" if _drops_queries(getattr(module, "config", None)) else "top-left"
        options.update(causal=is_causal and q.shape[1] > 1, align=align)
    elif attention_mask.dtype is torch.bool:
        options["mask"] = attention_mask
    else:
        options["bias"] = attention_mask if position_bias is None else attention_mask + position_bias
    return _with_sinks(q, k, v, s_aux, sinks, options), None


def _refuse(module: torch.nn.Module, kwargs: dict[str, Any]) -> None:
    """Raises for arguments that flashtile would ignore: those that only some attentions have."""
    for name in ("indices", "block_indices"):
        if kwargs.get(name) is not None:
            raise NotImplementedError(f"sparse attention by selected keys ({name}) is not in flashtile yet")
    if kwargs.get("output_attentions") or getattr(getattr(module, "config", None), "output_attentions", False):
        raise ValueError('output_attentions is True, allowed is False: flashtile never holds the attention weights; '
                         'attn_implementation="eager" gives them')


def _with_sinks(q: Tensor, k: Tensor, v: Tensor, s_aux: Optional[Tensor], sinks: Optional[Tensor],
                options: dict[str, Any]) -> Tensor:
    """Attention with a sink: one more score in each row's softmax, which has no value. s_aux has one for each head,
    sinks (batch, heads, seqlen, 1) one for each query. The library has the former; with the latter
    out * l / (l + exp(sink)) = out * sigmoid(lse - sink)."""
    if s_aux is not None:
        same = s_aux.dtype in (q.dtype, torch.float32)
        options["sinks"] = (s_aux if same else s_aux.float()).reshape(-1)
    if sinks is None:
        return attention(q, k, v, **options)
    out, lse = attention(q, k, v, return_lse=True, **options)
    share = torch.sigmoid(lse - sinks.squeeze(-1).float()).transpose(-1, -2).unsqueeze(-1)
    return (out * share).to(out.dtype)
