"""FlashAttention-3's arguments for what flashtile does not have, which are refused, and those that flashtile counts in
another way."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

_FEW = 64  # the most queries of a sequence whose keys CUDA splits; Hopper's kernels for more take no num_splits


def refuse(**given: Any) -> None:
    """Raises where one of these is given."""
    for name, value in given.items():
        if value is not None:
            raise NotImplementedError(f"{name} is given, which flashtile does not have: allowed is None")


def limit(sm_margin: int, *tensors: Tensor) -> int:
    """The multiprocessors that sm_margin leaves of those of the tensors' GPU; 0, all, on the CPU and where a backward
    pass may follow, which takes no limit."""
    if sm_margin == 0 or not tensors[0].is_cuda:
        return 0
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return 0
    return max(torch.cuda.get_device_properties(tensors[0].device).multi_processor_count - sm_margin, 1)


def splits(num_splits: int, q: Tensor, max_seqlen_q: Optional[int] = None) -> int:
    """num_splits where it is more than 1, which is the default and so no wish, and queries are few; else 0, the
    library's choice. max_seqlen_q: where q is packed."""
    if num_splits <= 1:
        return 0
    return num_splits if (q.shape[1] if max_seqlen_q is None else max_seqlen_q) <= _FEW else 0
