"""Which models of Hugging Face transformers can use flashtile's attention, and why the others cannot.

Models call a registered attention through transformers' AttentionInterface. Older models compute attention in code of
their own. Under a registered name some of them would get boolean masks, add these to the scores and give wrong numbers
without an error; others would use their own attention. Flags of a model's class, and its source, say which it is.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from typing import Optional

ATTENTION_CLASS = re.compile(r"^class \w*(Attention|Attn)\w*\(", re.MULTILINE)
INTERFACE = re.compile(r"\bALL_ATTENTION_FUNCTIONS\b")
# SOME_ATTENTION_CLASSES[config._attn_implementation] raises KeyError for names that the model does not know.
LIST_OF_CLASSES = re.compile(r"_CLASSES\[[^\]]*attn_implementation")
# Sparse attention that hides keys by the mask for these two names only.
ONLY_BY_NAME = re.compile(r"_attn_implementation in \(\"eager\", \"sdpa\"\)")
FLAGS = ("_supports_sdpa", "_supports_flash_attn", "_supports_flex_attn")


def why_not(model: type) -> Optional[str]:
    """Why this class of models cannot use flashtile's attention; None if it can."""
    sources = [_source(base.__module__) for base in model.__mro__ if _holds_a_model(base)]
    text = "\n".join(source for source in sources if source is not None)
    if LIST_OF_CLASSES.search(text):
        return "it takes its attention from a list of its own, which knows PyTorch's and flash-attn's only"
    if ONLY_BY_NAME.search(text):
        return "its sparse attention hides keys under the names eager and sdpa only"
    # A model without attention can do no harm, such as a convolutional backbone that is a part of another model.
    if all(source is not None and not ATTENTION_CLASS.search(source) for source in sources):
        return None
    if ATTENTION_CLASS.search(text) and not INTERFACE.search(text):
        return "it computes attention in code of its own and not through transformers' attention interface"
    if not any(getattr(model, flag, False) for flag in FLAGS):
        return f"it declares that it works with its own attention only: none of {', '.join(FLAGS)} is set"
    return None


def _holds_a_model(base: type) -> bool:
    """Whether the class belongs to one model, rather than to code that all models share."""
    module = base.__module__
    return module.startswith("transformers.models.") or not module.startswith(("transformers.", "torch.", "builtins"))


@functools.lru_cache(maxsize=None)
def _source(module: str) -> Optional[str]:
    try:
        return inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return None
