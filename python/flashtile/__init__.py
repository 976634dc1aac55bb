"""flashtile: exact attention in linear memory, on CPUs and GPUs.

    out = flashtile.attention(q, k, v, causal=True)     # PyTorch tensors in (batch, seqlen, heads, head_dim)
    with flashtile.sdpa(): ...                          # F.scaled_dot_product_attention runs on flashtile
    flashtile.flex_attention(q, k, v, score_mod)        # torch.nn.attention.flex_attention's, and its BlockMask
    flashtile.install_as_flash_attn()                   # `import flash_attn` finds flashtile
    flashtile.transformers.register()                   # attn_implementation="flashtile"
    flashtile.distributed.context_parallel_attention(q, k, v)      # over several devices
    flashtile.append_kv(k_cache, v_cache, k, v, ..)     # new keys, rotated, to a dense or paged cache
    flashtile.quantize(x, block=64, hadamard=7)         # e4m3 numbers and their scales, for attention's q_scale, ..
    flashtile.merge(outs, lses)                         # parts that attended to different keys
    flashtile.numpy.attention(q, k, v)                  # NumPy arrays, without PyTorch
    flashtile.jax.attention(q, k, v)                    # JAX's arrays, in jit, grad, vmap and over devices
    flashtile.warm_up([(8, 4096, 16, 128)])             # kernels compiled before the first call
    flashtile.info()                                    # what was found on this machine
    flashtile.last_run()                                # what this thread's last call ran on

PyTorch is imported when the first name that needs it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._info import describe, info
from ._last_run import last_run
from ._library import text as _text

if TYPE_CHECKING:
    from . import distributed, flash_attn, flash_attn_3, jax, numpy, transformers
    from ._append import Append
    from ._append_kv import append_kv
    from ._attention import attention
    from ._block_lists import BlockLists
    from .flash_attn import install_as_flash_attn
    from ._flex_attention import flex_attention
    from ._flash_implementation import register_flash_attention_impl
    from ._merge import merge
    from ._quantize import dequantize, quantize
    from ._sdpa import scaled_dot_product_attention
    from ._sdpa_context import sdpa
    from ._warm_up import warm_up

__version__ = _text("version")
__all__ = ["Append", "append_kv", "attention", "BlockLists", "dequantize", "describe", "distributed", "flash_attn", "flash_attn_3", "flex_attention", "info",
           "jax", "install_as_flash_attn", "last_run", "merge", "numpy", "quantize", "register_flash_attention_impl", "scaled_dot_product_attention", "sdpa",
           "transformers", "warm_up"]

_MODULES = ("distributed", "flash_attn", "flash_attn_3", "jax", "numpy", "transformers")
_HOMES = {"Append": "_append", "append_kv": "_append_kv", "attention": "_attention", "BlockLists": "_block_lists",
          "flex_attention": "_flex_attention",
          "dequantize": "_quantize", "install_as_flash_attn": "flash_attn", "merge": "_merge", "quantize": "_quantize", "sdpa": "_sdpa_context",
          "scaled_dot_product_attention": "_sdpa",
          "register_flash_attention_impl": "_flash_implementation", "warm_up": "_warm_up"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES and name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module("." + _HOMES.get(name, name), __name__)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"flashtile.{name} needs PyTorch: pip install flashtile[torch]", name="torch") from None
    if name in _MODULES:
        return module
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
