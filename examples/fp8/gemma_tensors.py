"""Leaves q, k and v of all layers of Gemma 3 270M, the model of examples/generate, on a text, for accuracy.py --tensors:

    python examples/fp8/gemma_tensors.py gemma.safetensors qkv.pt                 # of docs/tour.md
    python examples/fp8/gemma_tensors.py gemma.safetensors qkv.pt --text=FILE

gemma.safetensors is what examples/generate/convert.py writes. q and k are rotated; attention is causal.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples" / "generate"))

from gemma3 import forward, load  # noqa: E402
from sentencepiece_model import processor  # noqa: E402

MAX_TOKENS = 512  # as many as a local layer's window


def tensors_of(model: str, text: str) -> list[tuple[torch.Tensor, ...]]:
    """(q, k, v) of each layer, (1, seqlen, heads, d), of a text's first tokens."""
    config, weights, pieces, _ = load(model)
    tokens = [config["bos_token_id"], *processor(pieces).encode(text)][:MAX_TOKENS]
    layers: list[tuple[torch.Tensor, ...]] = []
    with torch.no_grad():
        forward(config, weights, tokens, layers)
    return [tuple(x[None].contiguous() for x in layer) for layer in layers]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="the file of convert.py")
    parser.add_argument("file", help="what torch.save writes")
    parser.add_argument("--text", type=Path, default=ROOT / "docs" / "tour.md")
    options = parser.parse_args()
    layers = tensors_of(options.model, options.text.read_text())
    torch.save(layers, options.file)
    q, k, _ = layers[0]
    print(f"{options.file}: {len(layers)} layers of q {tuple(q.shape)}, k and v {tuple(k.shape)}")


if __name__ == "__main__":
    main()
