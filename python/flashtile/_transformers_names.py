"""The name under which transformers knows flashtile's attention, and how transformers comes to use it.

Users write attn_implementation="flashtile". But transformers takes every name that contains "flash" for a build of
flash-attn, and gives such models masks, classes and packed inputs that are for flash-attn only. So the attention is
registered under another name, which replaces "flashtile" wherever a configuration or a model is given a name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import _transformers_batching
from ._transformers_models import why_not

GIVEN = "flashtile"
NAME = "tiled_attention"


def registered(name: Any) -> Any:
    """The registered name for the name that a user gives: a name, a dict of names by part of the model, or None. The
    prefix "paged|" is what continuous batching once wanted."""
    if isinstance(name, dict):
        return {part: registered(inner) for part, inner in name.items()}
    return NAME if name in (GIVEN, f"paged|{GIVEN}") else name


def accept() -> None:
    """Has transformers replace "flashtile" by the registered name, and refuse models that cannot use it."""
    from transformers import PreTrainedConfig, PreTrainedModel

    if getattr(PreTrainedConfig.__setattr__, "knows_flashtile", False):
        return
    PreTrainedConfig.__setattr__ = _told(PreTrainedConfig.__setattr__)
    PreTrainedModel.set_attn_implementation = _set_in(PreTrainedModel.set_attn_implementation)
    PreTrainedModel.get_correct_attn_implementation = _checked(PreTrainedModel.get_correct_attn_implementation)
    _transformers_batching.accept(NAME)


def _told(setter: Callable) -> Callable:
    @functools.wraps(setter)
    def told(config: Any, key: str, value: Any) -> None:
        setter(config, key, registered(value) if key == "_attn_implementation" else value)

    told.knows_flashtile = True  # type: ignore[attr-defined]
    return told


def _set_in(setter: Callable) -> Callable:
    @functools.wraps(setter)
    def set_attn_implementation(model: Any, attn_implementation: Any, *args: Any, **kwargs: Any) -> Any:
        name = registered(attn_implementation)
        # transformers only logs it where a model, or a part of it, keeps its own attention.
        if name == NAME:
            for part in model.modules():
                if hasattr(part, "get_correct_attn_implementation"):  # a model
                    refuse(part)
        elif isinstance(name, dict) and name.get("") == NAME:
            refuse(model)
        return setter(model, name, *args, **kwargs)

    return set_attn_implementation


def _checked(check: Callable) -> Callable:
    @functools.wraps(check)
    def get_correct_attn_implementation(model: Any, requested_attention: Any, *args: Any, **kwargs: Any) -> Any:
        name = registered(requested_attention)
        if name == NAME:
            refuse(model)
        return check(model, name, *args, **kwargs)

    return get_correct_attn_implementation


def refuse(model: Any) -> None:
    reason = why_not(type(model))
    if reason is None:
        return
    supports = getattr(model, "_supports_sdpa", False)
    other = ('attn_implementation="sdpa" within flashtile.sdpa()' if supports else 'attn_implementation="eager"')
    raise ValueError(
        f'attn_implementation is "{GIVEN}", which {type(model).__name__} cannot have: {reason}. Allowed is {other}; '
        f'where it is one part of a model, the others can be named: '
        f'attn_implementation={{"text_config": "{GIVEN}"}}, say')
