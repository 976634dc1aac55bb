"""The structs of include/flashtile/flashtile.h as Python packs them. Each struct is one table of its fields; sizes and
offsets are computed from it. tests/test_abi.py compares the tables with the header, and the layouts with a C
compiler's. Needs no PyTorch."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import accumulate
from struct import Struct, calcsize
from typing import Any, NamedTuple, Optional

from ._block_lists import LIST_NAMES
from ._functions import Functions
from ._library import InvalidArgument
from ._options import CallOptions

MAX_RANK = 6
CPU, CUDA = 1, 2  # flashtile_device
DTYPE_CODES = {"float32": 1, "float16": 2, "bfloat16": 3, "float8_e4m3fn": 4, "bool": 5, "int32": 6,
               "int64": 7}  # flashtile_dtype


class Layout:
    """A C struct: the names of its fields in order, and their types as Python's module struct writes them."""

    def __init__(self, **fields: str):
        self.offsets: dict[str, int] = {}
        so_far = ""
        for name, code in fields.items():
            self.offsets[name] = calcsize(f"{so_far}0{code[-1]}")
            so_far += code
        self.struct = Struct(f"{so_far}0P")  # 0P pads the end to a pointer's alignment, as C does
        self.size = self.struct.size

    def pack_into(self, memory: Any, at: int, **values: Any) -> None:
        """Writes the struct. It sets the field `size` itself; a field that is not given is 0."""
        self.struct.pack_into(memory, at, self.size, *(values.get(name, 0) for name in self.offsets if name != "size"))


OPTIONS = Layout(size="N", causal="i", alignment="i", has_scale="i", scale="f", softcap="f", window_left="q",
                 window_right="q", dropout="d", seed="Q", offset="Q", seed_ptr="P", offset_ptr="P", deterministic="i",
                 batch_invariant="i", check_values="i", threads="i", isa="i", executor="P", stream="P", workspace="P",
                 workspace_size="N", exact_max="i", num_splits="i", attention_chunk="q", sm_limit="i",
                 diagonal="q", origin_b="q", origin_h="q", origin_i="q", origin_j="q")
SHARD_NAMES = ("diagonals", "origins_i", "origins_j")
ONE_FOR_ALL = (None,) * len(SHARD_NAMES)  # these where one diagonal and one origin are those of all sequences
INPUT_NAMES = ("q", "k", "v", "alibi_slopes", "bias", "mask", "cu_seqlens_q", "cu_seqlens_k", "seqused_k", "sinks",
               *SHARD_NAMES)
SERVING_NAMES = ("block_table", "cache_batch_idx", "first_k", "seqused_q", "tree_mask", "positions", "prefix_groups",
                 "prefix_lengths")  # what only forward takes
SCALE_NAMES = ("q_scale", "k_scale", "v_scale")  # likewise, of e4m3 tensors
INPUTS = Layout(size="N", **dict.fromkeys(INPUT_NAMES[:9], "P"), max_seqlen_q="q", max_seqlen_k="q",
                **dict.fromkeys((*SERVING_NAMES[:5], "sinks", *SERVING_NAMES[5:], "append", *SHARD_NAMES,
                                 "score_function", "mask_function", "function_tensors"), "P"),
                function_tensor_count="q", block_lists="P", **dict.fromkeys(SCALE_NAMES, "P"), scale_block="i")
BLOCK_LISTS = Layout(size="N", block_q="q", block_k="q", **dict.fromkeys(LIST_NAMES, "P"))  # flashtile_block_lists
RESULT_NAMES = {"forward": ("out", "lse"),
                "backward": ("out", "lse", "dout", "dlse", "dq", "dk", "dv", "dbias", "dsinks")}
RESULTS = {"forward": Layout(size="N", **dict.fromkeys(RESULT_NAMES["forward"], "P")),
           "backward": Layout(size="N", **dict.fromkeys((*RESULT_NAMES["backward"], "dtensors"), "P"),
                              dtensor_count="q")}
MERGE_NAMES = ("outs", "lses", "out", "lse")
MERGE = Layout(size="N", **dict.fromkeys(MERGE_NAMES, "P"))  # flashtile_merge_tensors
APPEND_NAMES = ("k", "v", "k_cache", "v_cache", "block_table", "slots", "cache_batch_idx", "cache_seqlens",
                "cu_seqlens_k_new", "rotary_cos", "rotary_sin", "rotary_offsets", "positions", "q", "q_out",
                "cu_seqlens_q", "positions_q")
APPEND = Layout(size="N", **dict.fromkeys(APPEND_NAMES, "P"), rotary_begin="q", rotary_interleaved="i",
                **dict.fromkeys(SCALE_NAMES[1:], "P"), scale_block="i")
QUANTIZE_NAMES = ("x", "quantized", "scale", "cu_seqlens", "rotary_cos", "rotary_sin", "rotary_offsets", "positions")
QUANTIZE = Layout(size="N", **dict.fromkeys(QUANTIZE_NAMES[:4], "P"), scale_block="i", scale_given="i",
                  **dict.fromkeys(QUANTIZE_NAMES[4:], "P"), rotary_begin="q", rotary_interleaved="i", has_hadamard="i",
                  hadamard_seed="Q")  # flashtile_quantize_tensors
TENSOR = Layout(data="P", dtype="i", device_type="i", device_id="i", rank="i", shape=f"{MAX_RANK}q",
                stride=f"{MAX_RANK}q")
# A flashtile_tensor by its rank: what lies past the rank is never read.
_UNUSED = [f"{8 * (MAX_RANK - rank)}x" for rank in range(MAX_RANK + 1)]
TENSORS = [Struct(f"P4i{rank}q{unused}{rank}q{unused}") for rank, unused in enumerate(_UNUSED)]
TENSOR_SIZE = TENSOR.size
NAMED = Layout(name="P", tensor=f"{TENSOR_SIZE}s")  # flashtile_named_tensor
_POINTER, _FLOAT = Struct("P"), Struct("f")


def pack_options(memory: Any, at: int, options: CallOptions, **more: Any) -> None:
    """Writes flashtile_options. `more` are the fields that CallOptions does not have."""
    softcap = options.softcap
    if softcap != 0 and _FLOAT.unpack(_FLOAT.pack(softcap)) == (0.0,):  # 32 bits would make it 0, which is off
        raise InvalidArgument(f"softcap is {softcap:g}, allowed is 0 (off) or a positive number, of 32 bits")
    fields = options._asdict()
    scale = fields.pop("scale")
    OPTIONS.pack_into(memory, at, **fields, has_scale=scale is not None, scale=scale or 0.0, **more)


class Part(NamedTuple):
    """A struct of a call beside its options. Another field may be a Layout: the address of that other part."""

    layout: Layout
    names: Sequence[str]  # of its tensors
    fields: dict[str, Any] = {}  # the other fields


def inputs_part(names: Sequence[str], options: CallOptions, **fields: Any) -> Part:
    return Part(INPUTS, names, {"max_seqlen_q": options.max_seqlen_q, "max_seqlen_k": options.max_seqlen_k, **fields})


class Structs:
    """The filled structs of a call in one piece of memory: options, the parts, a flashtile_tensor for each tensor, and
    the texts of functions.

    tensors: those of all parts, in their order, then those that the functions name, then those of lists of blocks, then
    the gradients of named ones that are wanted. Each is None or the fields of a flashtile_tensor: data, dtype, device_type, device_id, rank, shape,
    stride. Every one has room for a name in front of it, so that those with names are an array of
    flashtile_named_tensor.
    """

    def __init__(self, parts: Sequence[Part], tensors: Sequence[Optional[tuple]], options: CallOptions,
                 functions: Optional[Functions] = None, **more: Any):
        starts = [*accumulate((part.layout.size for part in parts), initial=OPTIONS.size)]
        first = starts[-1] + NAMED.offsets["tensor"]
        self.places = range(first, first + len(tensors) * NAMED.size, NAMED.size)
        lists_at = starts[-1] + len(tensors) * NAMED.size
        texts_at = lists_at + BLOCK_LISTS.size
        texts = [] if functions is None else [functions.score, functions.mask, *functions.names]
        encoded = [b"" if text is None else _c_text(text) for text in texts]
        self.memory = memory = bytearray(texts_at) + b"".join(encoded)
        memory.extend(bytes(-len(memory) % 8))  # whole words, as which callers see it
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.addresses = (base, *(base + start for start in starts[:-1]))  # of the options and of each part
        pack_options(memory, 0, options, **more)
        layouts = [part.layout for part in parts]
        given = iter(zip(tensors, self.places, strict=True))
        of_functions: dict[str, int] = {}
        of_gradients: dict[str, int] = {}
        if functions is not None:
            ends = [*accumulate(map(len, encoded), initial=base + texts_at)]
            score, mask, *names = (at if text else 0 for at, text in zip(ends, encoded))
            wanted = [names[functions.names.index(name)] for name in functions.wanted]
            own = self.places[sum(len(part.names) for part in parts):]
            of_names, of_lists = own[:len(names)], own[len(names):len(own) - len(wanted)]
            of_wanted = own[len(own) - len(wanted):]
            for at, name in zip((*of_names, *of_wanted), [*names, *wanted], strict=True):
                _POINTER.pack_into(memory, at - NAMED.offsets["tensor"], name)
            first_named, first_wanted = (base + at[0] - NAMED.offsets["tensor"] if at else 0
                                         for at in (of_names, of_wanted))
            of_functions = {"score_function": score, "mask_function": mask, "function_tensor_count": len(names),
                            "function_tensors": first_named}
            of_gradients = {"dtensor_count": len(wanted), "dtensors": first_wanted}
            if functions.block_size:
                block_q, block_k = functions.block_size
                BLOCK_LISTS.pack_into(memory, lists_at, block_q=block_q, block_k=block_k,
                                      **{name: base + at for name, at in zip(LIST_NAMES, of_lists)})
                of_functions["block_lists"] = base + lists_at
        for part, start in zip(parts, starts):
            fields = {name: base + starts[layouts.index(value)] if isinstance(value, Layout) else value
                      for name, value in part.fields.items()}
            for name, (tensor, at) in zip(part.names, given):
                if tensor is not None:
                    TENSORS[tensor[4]].pack_into(memory, at, *tensor)
                    fields[name] = base + at
            if part.layout is INPUTS:
                fields |= of_functions
            if part.layout is RESULTS["backward"]:
                fields |= of_gradients
            part.layout.pack_into(memory, start, **fields)
        for tensor, at in given:
            assert tensor is not None
            TENSORS[tensor[4]].pack_into(memory, at, *tensor)


def _c_text(text: str) -> bytes:
    """A text as C reads it. What the language does not have stays wrong there; a 0 would end the text unseen."""
    return text.encode("utf-8", "backslashreplace").replace(b"\0", b"\1") + b"\0"
