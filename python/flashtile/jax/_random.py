"""What dropout's mask is drawn from: seed and offset, 64 bits each, as two words of uint32, low word first."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array


def words_of(dropout: float, key: Any, seed: Any, offset: Any) -> dict[str, Array]:
    """The operands seed and offset. Without dropout there are none."""
    given = {name: value for name, value in (("key", key), ("seed", seed), ("offset", offset)) if value is not None}
    for name, value in given.items():
        if not isinstance(value, (jax.Array, np.ndarray)):
            raise TypeError(f"{name} is a {type(value).__name__}, allowed is a jax.Array")
    if dropout == 0.0:
        return {}
    if ("key" in given) == ("seed" in given) or "key" in given and "offset" in given:
        raise TypeError(f"dropout_p is {dropout} with {' and '.join(given) or 'neither key nor seed'}, allowed is key, "
                        "or seed, or seed and offset")
    if "key" in given:
        words = _words_of_key(key)
        # Of four words the last two may repeat the first ones (a new key of "rbg"), and a mask is drawn from the XOR of
        # seed's and offset's high words: so offset has none.
        seed, offset = words[:2], jnp.pad(words[2:3], (0, 1)) if words.size > 2 else None
    if offset is None:
        offset = jnp.zeros(2, jnp.uint32)
    for name, value in (("seed", seed), ("offset", offset)):
        if value.shape != (2,) or value.dtype != jnp.uint32:
            raise TypeError(f"{name} is {value.dtype} {value.shape}, allowed is uint32 (2,)")
    return {"seed": jnp.asarray(seed), "offset": jnp.asarray(offset)}


def _words_of_key(key: Any) -> Array:
    words = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jnp.asarray(key)
    if words.dtype != jnp.uint32 or words.ndim != 1 or words.size < 2:
        raise TypeError(f"key is {key.dtype} {key.shape}, allowed is one key of jax.random's")
    return words
