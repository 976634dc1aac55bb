"""flash-attn 2's interface on flashtile: the same functions, arguments, defaults and return values.

    from flashtile.flash_attn import flash_attn_func            # or, for code that cannot be changed:
    flashtile.install_as_flash_attn()                           # from now on `import flash_attn` finds this

Beyond flash-attn it takes fp32, CPU tensors, head dimensions to 512 and v of another head dimension than q. Of
flash-attn's other parts it has bert_padding, layers.rotary, ops.triton.rotary, utils.distributed and utils.benchmark.
"""

from ._install import VERSION, install_as_flash_attn
from .flash_attn_interface import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)

__version__ = VERSION

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
