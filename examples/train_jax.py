"""Trains a small GPT in JAX with flashtile and with XLA's attention, from the same weights on the same batches: the two
loss curves lie on each other.

    python examples/train_jax.py                         # on this repository's documentation, a minute on two cores
    python examples/train_jax.py --text book.txt --steps=500 --dtype=bf16

Needs jax and flashtile (pip install flashtile[jax]). The whole step (forward, backward, AdamW) is one program of
jax.jit, whose state is donated; the layers are a jax.lax.scan, each of which jax.checkpoint computes again in backward.
"""

import argparse
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import flashtile.jax as fj

ATTENTIONS = {"flashtile": fj.dot_product_attention,
              "xla": partial(jax.nn.dot_product_attention, implementation="xla")}
BYTES = 256


def initial(key, layers, width, context):
    """The weights. Those of the layers are stacked."""
    def normal(name, *shape):
        return 0.02 * jax.random.normal(jax.random.fold_in(key, sum(map(ord, name))), shape)
    return {"token": normal("token", BYTES, width), "place": normal("place", context, width),
            "layers": {"qkv": normal("qkv", layers, width, 3 * width), "out": normal("out", layers, width, width),
                       "up": normal("up", layers, width, 4 * width), "down": normal("down", layers, 4 * width, width)}}


def normed(x):
    x = x.astype(jnp.float32)
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def loss_of(weights, tokens, *, attend, heads, dtype):
    """The mean cross entropy of each next byte. tokens: (batch, context + 1)."""
    x = weights["token"][tokens[:, :-1]] + weights["place"]

    @jax.checkpoint
    def layer(x, w):
        w = jax.tree.map(lambda of: of.astype(dtype), w)
        qkv = normed(x).astype(dtype) @ w["qkv"]
        q, k, v = (part.reshape(*x.shape[:2], heads, -1) for part in jnp.split(qkv, 3, -1))
        x = x + attend(q, k, v, is_causal=True).reshape(x.shape) @ w["out"]
        return x + jax.nn.gelu(normed(x).astype(dtype) @ w["up"]) @ w["down"], None

    x, _ = jax.lax.scan(layer, x, weights["layers"])
    log_p = jax.nn.log_softmax(normed(x) @ weights["token"].T)
    return -jnp.take_along_axis(log_p, tokens[:, 1:, None], -1).mean()


@partial(jax.jit, static_argnames=("attend", "heads", "dtype", "rate"), donate_argnums=0)
def step(state, tokens, *, attend, heads, dtype, rate):
    """One step of AdamW. state: weights, both moments, and the number of steps."""
    weights, mean, square, count = state
    loss, gradient = jax.value_and_grad(partial(loss_of, attend=attend, heads=heads, dtype=dtype))(weights, tokens)
    count = count + 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
    square = jax.tree.map(lambda s, g: 0.95 * s + 0.05 * g**2, square, gradient)
    moved = rate * jnp.minimum(1.0, count / 20)

    def update(w, m, s):
        return w - moved * (m / (1 - 0.9**count) / (jnp.sqrt(s / (1 - 0.95**count)) + 1e-8) + 0.1 * w)

    return (jax.tree.map(update, weights, mean, square), mean, square, count), loss


def curve(attention, text, a):
    """The loss of each step."""
    weights = initial(jax.random.key(a.seed), a.layers, a.width, a.context)
    state = (weights, jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights), jnp.float32(0))
    random, losses = np.random.default_rng(a.seed), []
    for _ in range(a.steps):
        starts = random.integers(0, len(text) - a.context - 1, a.batch)
        tokens = np.stack([text[at:at + a.context + 1] for at in starts]).astype(np.int32)
        state, loss = step(state, tokens, attend=ATTENTIONS[attention], heads=a.heads, dtype=a.dtype, rate=a.rate)
        losses.append(float(loss))
    return losses


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    docs = Path(__file__).resolve().parent.parent / "docs"
    parser.add_argument("--text", type=Path, nargs="+", default=sorted(docs.glob("*.md")))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args(arguments)
    a.dtype = {"fp32": jnp.float32, "bf16": jnp.bfloat16}[a.dtype]
    text = np.frombuffer(b"".join(path.read_bytes() for path in a.text), np.uint8)
    curves = {}
    for name in ATTENTIONS:
        start = time.perf_counter()
        curves[name] = curve(name, text, a)
        print(f"{name}: {a.steps} steps in {time.perf_counter() - start:.1f} s, compiling included")
    print(f"{'step':>5}" + "".join(f"{name:>12}" for name in curves))
    for n in sorted({*range(0, a.steps, max(1, a.steps // 10)), a.steps - 1}):
        print(f"{n:5}" + "".join(f"{losses[n]:12.5f}" for losses in curves.values()))
    apart = max(abs(x - y) for x, y in zip(*curves.values()))
    print(f"at most {apart:.2g} apart")
    return curves


if __name__ == "__main__":
    main()
