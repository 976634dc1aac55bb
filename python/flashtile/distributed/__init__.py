"""Attention over several devices, on torch.distributed: NCCL on GPUs, gloo on CPUs.

    q, k, v = (flashtile.distributed.shard(x) for x in (q, k, v))      # each rank's rows
    out = flashtile.distributed.context_parallel_attention(q, k, v, causal=True)

docs/scale-out.md says what each strategy costs, and from which model strategy="auto" chooses.
"""

from ._attention import context_parallel_attention
from ._cost import Cost, Machine, Work, choose, predict, seen_share
from ._shard import measure_link, shard, unshard

__all__ = ["Cost", "Machine", "Work", "choose", "context_parallel_attention", "measure_link", "predict", "seen_share",
           "shard", "unshard"]
