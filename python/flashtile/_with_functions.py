"""Attention with score and mask functions: what flashtile.attention does where it gets some, and the operators for it,
torch.ops.flashtile.forward_with_functions and .backward_with_functions. To a compiler a function is its text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional, Union

import torch
from torch import Tensor

from . import _flops
from ._block_lists import BlockLists, split_lists
from ._call import Tensors, explain
from ._define import operator
from ._functions import Functions
from ._one_call import Function, call
from ._ops import (
    _ARGUMENTS,
    _GRADIENTS,
    _OPTIONS,
    _TENSORS,
    _any_requires_grad,
    _autocast,
    _BIAS,
    _is_any_autocast_enabled,
    _is_grad_enabled,
    _none_is_empty,
    _of_inputs,
    _SINKS,
    eager,
    transformed,
)
from ._options import CallOptions, Recipe, options_of
from ._run import complete, gradients, usable
from ._structs import INPUT_NAMES, RESULT_NAMES, RESULTS, Part, inputs_part
from ._trace import Captured, trace
from ._while_tracing import run_between_graphs

Text = Union[str, Callable[..., Any]]  # a function's text, or a function of Python's


def functions_of(score: Optional[Text], mask: Union[None, Tensor, Text], tensors: Optional[dict[str, Tensor]],
                 lists: Optional[BlockLists],
                 q: Tensor) -> tuple[Optional[Functions], tuple[Tensor, ...], Optional[Tensor]]:
    """The functions and lists of blocks among attention's arguments, their tensors, and the mask that is a tensor."""
    of_mask = None if mask is None or isinstance(mask, Tensor) else mask
    for name, given in (("score", score), ("mask", of_mask)):
        if not (given is None or isinstance(given, str) or callable(given)):
            allowed = "None, a text or a function" if name == "score" else "a torch.Tensor, a text or a function"
            raise TypeError(f"{name} is a {type(given).__name__}, allowed is {allowed}")
    named = {} if tensors is None else tensors
    if not isinstance(named, dict) or not all(isinstance(name, str) for name in named):
        raise TypeError(f"tensors is {tensors!r}, allowed is a dict of names and tensors")
    for name, tensor in named.items():
        if not isinstance(tensor, Tensor):
            explain(tensor, f"tensors[{name!r}]")
    if callable(score) or callable(of_mask):
        score, of_mask, named = _traced(score, of_mask, named, q)
    of_lists, block_size = ({}, ()) if lists is None else split_lists(lists)
    for name, tensor in of_lists.items():
        if not isinstance(tensor, Tensor):
            explain(tensor, name)
    functions = None
    if not (score is of_mask is None) or named or of_lists:
        functions = Functions(score, of_mask, tuple(named), block_size)
    return functions, (*named.values(), *of_lists.values()), mask if isinstance(mask, Tensor) else None


@run_between_graphs
def _traced(score: Optional[Text], mask: Optional[Text], tensors: dict[str, Tensor],
            q: Tensor) -> tuple[Optional[str], Optional[str], dict[str, Tensor]]:
    """The texts of functions, and the tensors that these name. What changes nothing is none."""
    if not isinstance(q, Tensor):
        explain(q, "q")
    captured = Captured(tensors)
    texts = [trace(what, given, captured, q.device) if callable(given) else given
             for what, given in (("score", score), ("mask", mask))]
    of_score, of_mask = texts if isinstance(score, str) or texts[0] != "s" else (None, texts[1])
    if of_mask == "true":
        of_mask = None
    if of_score is of_mask is None:
        return None, None, {}
    return of_score, of_mask, {**tensors, **captured.read_by([text for text in (of_score, of_mask) if text])}


_NAMES = (*INPUT_NAMES, *RESULT_NAMES["forward"])
_READ = RESULT_NAMES["backward"][:4]


def _parts(name: str) -> Callable[[CallOptions], tuple[Part, Part]]:
    return lambda options: (inputs_part(INPUT_NAMES, options), Part(RESULTS[name], RESULT_NAMES[name]))


def _new(tensors: Tensors) -> Callable[[Tensor], Tensor]:
    return torch.empty_like if tensors[6] is None else torch.zeros_like  # in packed batches some rows are of nobody


def _results(tensors: Tensors) -> tuple[Callable[[Tensor], Tensor], Tensors]:
    """How results are made, and out and lse. out has the order of q's strides, as flex_attention gives it."""
    q, _, v = tensors[:3]
    *rows, heads, _ = q.shape
    lead = (*rows, heads)
    order = sorted(range(len(lead)), key=lambda n: q.stride(n), reverse=True)
    out = q.new_empty((*(lead[n] for n in order), v.shape[-1])).permute(*map(order.index, range(len(lead))), -1)
    return _new(tensors), (out, q.new_empty((*rows[:-1], heads, rows[-1]), dtype=torch.float32))


def _gradients(want: tuple[bool, bool]) -> Callable[[Tensors], tuple[Callable[[Tensor], Tensor], Tensors]]:
    return lambda tensors: (_new(tensors), gradients(tensors, want))


_FORWARD = Function("forward", _parts("forward"), _NAMES, {}, _results, _TENSORS)
_BACKWARD = {want: Function("backward", _parts("backward"), (*INPUT_NAMES, *RESULT_NAMES["backward"]), {},
                            _gradients(want), _TENSORS + len(_READ))
             for want in ((False, False), (False, True), (True, False), (True, True))}
_AFTER = _TENSORS + _OPTIONS  # the arguments after those that forward_op has, but for rng


def _forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    score, mask, names, block_size, tensors, rng = arguments[_AFTER:]
    function = _FORWARD._replace(functions=Functions(score, mask, tuple(names), tuple(block_size)))
    out, lse = call(function, (*usable(arguments[:_TENSORS]), *tensors), (CallOptions, *arguments[_TENSORS:_AFTER]),
                    rng=rng)
    return out, lse


def _backward(*arguments: Any) -> tuple[Any, ...]:
    """dq, dk, dv, dbias, dsinks, and those of the tensors that are wanted, by their names."""
    score, mask, names, block_size, tensors, rng, *read, need_dbias, need_dsinks, wanted = arguments[_AFTER:]
    function = _BACKWARD[need_dbias, need_dsinks]._replace(
        functions=Functions(score, mask, tuple(names), tuple(block_size), tuple(wanted)))
    of_tensors = _gradients_of_tensors(names, tensors, wanted)
    made = call(function, (*usable((*arguments[:_TENSORS], *read)), *tensors, *of_tensors),
                (CallOptions, *arguments[_TENSORS:_AFTER]), rng=rng)
    return (*_none_is_empty(made), of_tensors)


def _fake_forward(*arguments: Any) -> Tensors:
    new, made = _results(usable(arguments[:_TENSORS]))
    return tuple(map(new, made))


def _gradients_of_tensors(names: list[str], tensors: list[Tensor], wanted: list[str]) -> list[Tensor]:
    named = dict(zip(names, tensors))
    return [named[name].new_empty(named[name].shape, dtype=torch.float32) for name in wanted]


def _fake_backward(*arguments: Any) -> tuple[Any, ...]:
    names, _, tensors = arguments[_AFTER + 2:_AFTER + 5]
    *_, need_dbias, need_dsinks, wanted = arguments
    return (*_none_is_empty(gradients(usable(arguments[:_TENSORS]), (need_dbias, need_dsinks))),
            _gradients_of_tensors(names, tensors, wanted))


def _remember(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    *rest, tensors, rng = inputs[_TENSORS:]
    ctx.save_for_backward(*inputs[:_TENSORS], *output, rng, *tensors)
    ctx.rest = rest


def _gradients_of_all(ctx: Any, dout: Optional[Tensor], dlse: Optional[Tensor], need: tuple[bool, bool],
                      of_tensors: Sequence[bool]) -> tuple[tuple[Optional[Tensor], ...], list[Optional[Tensor]]]:
    """Those of the inputs and of the functions' tensors. need: whether bias and sinks need theirs; of_tensors: whether
    the others do."""
    saved = ctx.saved_tensors
    (*given, out, lse, rng), tensors = saved[:_TENSORS + 3], [*saved[_TENSORS + 3:]]
    if dout is None and dlse is None:
        return (None,) * _TENSORS, [None] * len(tensors)
    # The operator raises where gradients of gradients are asked for.
    function = _backward if not _is_grad_enabled() and eager((out, dout, dlse)) else backward_op
    wanted = [name for name, needed in zip(ctx.rest[-2], of_tensors) if needed]
    dq, dk, dv, dbias, dsinks, made = function(*given, *ctx.rest, tensors, rng, out, lse,
                                               torch.zeros_like(out) if dout is None else dout, dlse, *need, wanted)
    left = iter(made)
    return (_of_inputs(dq, dk, dv, dbias if need[0] else None, dsinks if need[1] else None),
            [next(left).to(tensor.dtype) if needed else None for tensor, needed in zip(tensors, of_tensors)])


def _differentiate(ctx: Any, dout: Optional[Tensor], dlse: Optional[Tensor]) -> tuple[Any, ...]:
    needs, (*others, names, block_size) = ctx.needs_input_grad, ctx.rest
    of_inputs, of_tensors = _gradients_of_all(ctx, dout, dlse, (needs[_BIAS], needs[_SINKS]), needs[-2])
    # To PyTorch an empty list is one of tensors, and its gradient another.
    return (*of_inputs, *(None for _ in others), *(None if given else [] for given in (names, block_size)), of_tensors,
            None)


class _Eager(torch.autograd.Function):
    """forward_op without the dispatcher, which takes longer, and imports torch._dynamo, a second, for its first
    gradient."""

    @staticmethod
    def forward(ctx: Any, rest: list, rng: Optional[Tensor],  # type: ignore[override]
                *given: Optional[Tensor]) -> tuple[Tensor, Tensor]:
        given, tensors = given[:_TENSORS], list(given[_TENSORS:])
        made = _forward(*given, *rest, tensors, rng)
        _remember(ctx, (*given, *rest, tensors, rng), made)
        return made

    @staticmethod
    def backward(ctx: Any, dout: Optional[Tensor],  # type: ignore[override]
                 dlse: Optional[Tensor]) -> tuple[Any, ...]:
        needs = ctx.needs_input_grad[2:]
        of_inputs, of_tensors = _gradients_of_all(ctx, dout, dlse, (needs[_BIAS], needs[_SINKS]), needs[_TENSORS:])
        return None, None, *of_inputs, *of_tensors


_SCHEMA = _ARGUMENTS.replace("Tensor? rng", "str? score_function, str? mask_function, str[] function_names, "
                             "int[] block_size, Tensor[] function_tensors, Tensor? rng")
forward_op = operator("forward_with_functions", f"({_SCHEMA}) -> (Tensor, Tensor)", _forward, _fake_forward,
                      _differentiate, _remember)
backward_op = operator("backward_with_functions", f"({_SCHEMA}, {_GRADIENTS}, str[] wanted) -> "
                       "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor[])", _backward, _fake_backward)
_flops.register(torch.ops.flashtile.forward_with_functions, torch.ops.flashtile.backward_with_functions)


def attend_with_functions(given: Tensors, functions: Functions, tensors: tuple[Tensor, ...], recipe: Recipe,
                          rng: Optional[Tensor]) -> tuple[Tensor, Tensor]:
    """(out, lse), as _ops.attend gives them."""
    if _is_any_autocast_enabled():
        given = _autocast(given)
    if transformed():
        raise NotImplementedError("score and mask functions under torch.func's transforms: allowed is a call outside")
    given = complete(given)
    score, mask, names, block_size, _ = functions
    rest, named = [*options_of(recipe), score, mask, list(names), list(block_size)], list(tensors)
    if not eager((*given, *tensors)):
        return forward_op(*given, *rest, named, rng)
    if _is_grad_enabled() and _any_requires_grad(*given, *tensors):
        return _Eager.apply(rest, rng, *given, *tensors)
    return _forward(*given, *rest, named, rng)
