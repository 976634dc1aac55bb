"""flash-attn 2's interface on flashtile: the same functions, arguments, defaults and return values.

    from flashtile.flash_attn import flash_attn_func            # or, for code that cannot be changed:
    flashtile.install_as_flash_attn()                           # from now on `import flash_attn` finds this

Beyond flash-attn it takes fp32, CPU tensors, head dimensions to 512 and v of another head dimension than q. What it
does not have (paged keys, KV caches) raises NotImplementedError.
"""

import importlib
import sys

from .flash_attn_interface import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)

__version__ = "2.8.3"  # whose interface this is

__all__ = [
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "install_as_flash_attn",
]

_MODULES = ("", ".flash_attn_interface", ".bert_padding", ".layers", ".layers.rotary")


def install_as_flash_attn() -> None:
    """From now on `import flash_attn`, and its modules flash_attn_interface, bert_padding and layers.rotary, find
    flashtile's. Code that has imported another flash_attn before keeps that one."""
    for module in _MODULES:
        sys.modules["flash_attn" + module] = importlib.import_module(__name__ + module)
