"""install_as_flash_attn: `import flash_attn`, and the imports of its modules, find flashtile's.

importlib.metadata, too, then finds a distribution flash_attn, of the version whose interface this is: transformers and
diffusers look for it. Importing a module that flashtile does not have raises an ImportError with the reason.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from typing import Any, Optional

VERSION = "2.8.3"
_PACKAGE = __package__  # flashtile.flash_attn
_MODULES = ("", ".flash_attn_interface", ".bert_padding", ".layers", ".layers.rotary", ".ops", ".ops.triton",
            ".ops.triton.rotary", ".utils", ".utils.benchmark", ".utils.distributed")
_ATTENTION_ONLY = "flashtile has attention and rotary embedding, not flash-attn's other layers and models"
_REASONS = {
    "flash_attn.cute": "FlashAttention-4's interface is not in flashtile",
    "flash_attn.losses": _ATTENTION_ONLY,
    "flash_attn.models": _ATTENTION_ONLY,
    "flash_attn.modules": _ATTENTION_ONLY,
    "flash_attn.ops": _ATTENTION_ONLY,
    "flash_attn.utils": _ATTENTION_ONLY,
    "flash_attn_2_cuda": "flashtile has no module of flash-attn's kernels: use flash_attn.flash_attn_interface",
    "flash_attn_interface": "flashtile has not this part of FlashAttention-3's interface",
    "flash_attn": f"it is not in flashtile, which has flash-attn {VERSION}'s interface",
}


def install_as_flash_attn() -> None:
    """From now on `import flash_attn` (flash-attn 2) and `import flash_attn_interface` (FlashAttention-3) find
    flashtile's.

    Call it before importing code that looks for flash-attn. Code that has imported another flash_attn keeps using it,
    and code that has found none may not look again. (transformers does look again.)
    """
    for module in _MODULES:
        sys.modules["flash_attn" + module] = importlib.import_module(_PACKAGE + module)
    sys.modules["flash_attn_interface"] = importlib.import_module("flashtile.flash_attn_3")
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _tell_transformers()


class _Finder(MetaPathFinder):
    """Finds the distribution flash_attn. It finds no modules, but raises the reason why a module is missing."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if "flash_attn" not in name:
            return
        public = name.replace("flashtile.flash_attn_3", "flash_attn_interface").removeprefix("flashtile.")
        reason = next((why for part, why in _REASONS.items() if f"{public}.".startswith(f"{part}.")), None)
        # Only an import raises. importlib.util.find_spec asks whether a module exists, and gets None.
        if reason is not None and sys._getframe(2).f_code.co_name == "_find_and_load_unlocked":
            raise ModuleNotFoundError(f"there is no {public}: {reason}", name=public)

    def find_distributions(self, context: DistributionFinder.Context = DistributionFinder.Context()) -> Iterator[Any]:
        if context.name is None or context.name.lower().replace("-", "_").replace(".", "_") == "flash_attn":
            yield _FlashAttn()


class _FlashAttn(Distribution):
    """The distribution flash_attn for importlib.metadata."""

    _FILES = {"METADATA": f"Metadata-Version: 2.1\nName: flash_attn\nVersion: {VERSION}\n"
                          "Summary: flashtile under flash-attn's name\n",
              "top_level.txt": "flash_attn\n"}

    def read_text(self, filename: str) -> Optional[str]:
        return self._FILES.get(filename)

    def locate_file(self, path: Any) -> Path:
        return Path(__file__).parent / path


def _tell_transformers() -> None:
    """Clears what transformers, if it has been imported, remembers about flash-attn."""
    found = sys.modules.get("transformers.utils.import_utils")
    for name in ("_package_distribution_mapping", "is_flash_attn_2_available", "is_flash_attn_greater_or_equal"):
        forget = getattr(getattr(found, name, None), "cache_clear", None)
        if forget is not None:
            forget()
