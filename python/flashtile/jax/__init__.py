"""flashtile for JAX: attention in jit, grad, vmap and shard_map, on the CPU and on NVIDIA GPUs.

    import flashtile.jax as fj
    out = fj.attention(q, k, v, causal=True)                    # every option of flashtile.attention
    out = fj.dot_product_attention(q, k, v, is_causal=True)     # jax.nn.dot_product_attention's signature
    nn.MultiHeadDotProductAttention(.., attention_fn=fj.flax_attention)     # flax.linen's layers
"""

try:
    import jax as _jax
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    raise ImportError("flashtile.jax needs JAX: pip install flashtile[jax]", name="jax") from None

from . import _handlers
from ._attention import attention
from ._dot_product_attention import dot_product_attention
from ._flax import flax_attention

_handlers.register()

__all__ = ["attention", "dot_product_attention", "flax_attention"]
