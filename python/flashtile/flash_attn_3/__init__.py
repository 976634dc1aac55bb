"""FlashAttention-3's interface on flashtile, as its module flash_attn_interface has it.

    from flashtile.flash_attn_3 import flash_attn_func          # or, for code that cannot be changed:
    flashtile.install_as_flash_attn()                           # from now on `import flash_attn_interface` finds this

pack_gqa, sm_margin, scheduler_metadata and, without a cache, num_splits are ignored, since they tune FlashAttention-3's
kernels. Arguments for what flashtile does not have (fp8 with scales, qv) raise a NotImplementedError that names them.
"""

from ._functions import flash_attn_combine, flash_attn_func, flash_attn_qkvpacked_func, flash_attn_varlen_func
from ._kvcache import flash_attn_with_kvcache

__all__ = ["flash_attn_combine", "flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
           "flash_attn_with_kvcache"]
