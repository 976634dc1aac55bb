#!/usr/bin/env python3
"""What head dimensions, and how many query heads to a key head, the models of the installed transformers have, as their
configurations are by default: a family, a count. From this follows which kernels the wheel carries
(python/common_kernels.txt). The configurations alone say it; nothing is downloaded.

    .venv/bin/python tools/count_heads.py > bench/results/transformers-heads.txt
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from typing import Any, Optional

import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_MAPPING_NAMES

HEADS = ("num_attention_heads", "n_head", "num_heads", "encoder_attention_heads", "attention_heads", "n_heads")
KEY_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
WIDTH = ("hidden_size", "d_model", "n_embd", "embed_dim")
DIMENSION = ("head_dim", "d_kv", "qk_head_dim", "kv_channels", "attention_head_size")


def first(config: Any, names: tuple[str, ...]) -> Optional[int]:
    """The first of these that the configuration has, as one number for all layers."""
    for name in names:
        try:
            value = getattr(config, name, None)
        except Exception:  # a number for each layer
            continue
        if isinstance(value, int) and value > 0:
            return value
    return None


def main() -> None:
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    dimensions: dict[str, Counter] = {"all families": Counter(), "causal language models": Counter()}
    shared: Counter = Counter()
    unknown = 0
    for family in sorted(MODEL_MAPPING_NAMES):
        try:
            config = transformers.CONFIG_MAPPING[family]()
        except Exception:  # which has no defaults
            unknown += 1
            continue
        heads, width, dimension = first(config, HEADS), first(config, WIDTH), first(config, DIMENSION)
        dimension = dimension or (width // heads if heads and width else None)
        if dimension is None:
            unknown += 1
            continue
        dimensions["all families"][dimension] += 1
        if family in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            dimensions["causal language models"][dimension] += 1
            key_heads = first(config, KEY_HEADS) or heads
            shared[heads / key_heads if heads and key_heads else None] += 1
    print(f"transformers {transformers.__version__}; {unknown} families have no attention, or do not say its heads by default")
    for name, counts in dimensions.items():
        print(f"\n{name}: {counts.total()}")
        for dimension, count in counts.most_common(10):
            print(f"  head dimension {dimension:4}: {count}")
    print("\ncausal language models, query heads to a key head")
    for group, count in shared.most_common(10):
        print(f"  {group if group is None else format(group, 'g'):>4}: {count}")


if __name__ == "__main__":
    main()
