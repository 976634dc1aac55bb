"""FlashAttention-3's interface on flashtile, as its module flash_attn_interface has it.

    from flashtile.flash_attn_3 import flash_attn_func          # or, for code that cannot be changed:
    flashtile.install_as_flash_attn()                           # from now on `import flash_attn_interface` finds this

pack_gqa and scheduler_metadata are ignored, since they tune FlashAttention-3's kernels. sm_margin multiprocessors of a
GPU are left to other work, but where a gradient is recorded: backward takes no limit. num_splits counts where queries
are few; without a cache its default, 1, is the library's choice, as 0 is. Arguments for what flashtile does not have
(qv) raise a NotImplementedError that names them.
"""

from ._functions import flash_attn_combine, flash_attn_func, flash_attn_qkvpacked_func, flash_attn_varlen_func
from ._kvcache import flash_attn_with_kvcache

__all__ = ["flash_attn_combine", "flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
           "flash_attn_with_kvcache"]
