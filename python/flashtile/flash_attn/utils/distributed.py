"""flash_attn.utils.distributed: collectives along the first dimension, plain (`_raw`) and with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import Tensor

Group = Optional[dist.ProcessGroup]


def all_gather_raw(input_: Tensor, process_group: Group, async_op: bool = False) -> tuple[Tensor, Any]:
    """Every process' tensor, one after the other, and the handle of the operation."""
    out = input_.new_empty(dist.get_world_size(process_group) * input_.shape[0], *input_.shape[1:])
    return out, dist.all_gather_into_tensor(out, input_.contiguous(), group=process_group, async_op=async_op)


def reduce_scatter_raw(input_: Tensor, process_group: Group, async_op: bool = False) -> tuple[Tensor, Any]:
    """This process' part of the sum of all tensors, and the handle of the operation."""
    world = dist.get_world_size(process_group)
    if input_.shape[0] % world != 0:
        raise ValueError(f"input_.shape[0] is {input_.shape[0]}, allowed is a multiple of the {world} processes")
    out = input_.new_empty(input_.shape[0] // world, *input_.shape[1:])
    return out, dist.reduce_scatter_tensor(out, input_.contiguous(), group=process_group, async_op=async_op)


def all_reduce_raw(input_: Tensor, process_group: Group, async_op: bool = False) -> tuple[Tensor, Any]:
    """The sum of all tensors, in input_'s memory if that is contiguous, and the handle of the operation."""
    out = input_.contiguous()
    return out, dist.all_reduce(out, group=process_group, async_op=async_op)


def _differentiable(name: str, collective: Callable, adjoint: Callable) -> type[torch.autograd.Function]:
    """The autograd function of a collective whose gradient is another one."""

    def forward(ctx: Any, input_: Tensor, process_group: Group) -> Tensor:
        ctx.process_group = process_group
        return collective(input_, process_group)[0]

    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        return adjoint(grad_output, ctx.process_group)[0], None

    return type(name, (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward),
                                                   "__module__": __name__})


AllGatherFunc = _differentiable("AllGatherFunc", all_gather_raw, reduce_scatter_raw)
ReduceScatterFunc = _differentiable("ReduceScatterFunc", reduce_scatter_raw, all_gather_raw)


class AllReduceFunc(torch.autograd.Function):
    """all_reduce_raw. The gradient is passed on as it is: every process has the same one, that of the sum."""

    @staticmethod
    def forward(ctx: Any, input_: Tensor, process_group: Group) -> Tensor:
        return all_reduce_raw(input_.clone(), process_group)[0]

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        return grad_output, None


all_gather, reduce_scatter, all_reduce = AllGatherFunc.apply, ReduceScatterFunc.apply, AllReduceFunc.apply
