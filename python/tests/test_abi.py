"""The package's own tables of the C structs agree with flashtile.h and with a C compiler's layouts, every option
reaches its field, and the operators have the schemas that exported programs were made for."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import flashtile
from flashtile import _structs
from flashtile._functions import Functions
from flashtile._options import CallOptions

INCLUDE = Path(__file__).parents[2] / "include"
HEADER = INCLUDE / "flashtile" / "flashtile.h"

STRUCTS = {
    "flashtile_options": _structs.OPTIONS,
    "flashtile_inputs": _structs.INPUTS,
    "flashtile_forward_outputs": _structs.RESULTS["forward"],
    "flashtile_gradients": _structs.RESULTS["backward"],
    "flashtile_append_tensors": _structs.APPEND,
    "flashtile_merge_tensors": _structs.MERGE,
    "flashtile_quantize_tensors": _structs.QUANTIZE,
    "flashtile_tensor": _structs.TENSOR,
    "flashtile_named_tensor": _structs.NAMED,
    "flashtile_block_lists": _structs.BLOCK_LISTS,
}
TYPES = {"flashtile_tensor": f"{_structs.TENSOR_SIZE}s", "size_t": "N", "int32_t": "i", "int64_t": "q", "uint64_t": "Q", "float": "f", "double": "d"}

needs_header = pytest.mark.skipif(not INCLUDE.is_dir(), reason="needs the repository's headers")


def fields_in_the_header(name):
    """{field: its type as the module struct writes it}."""
    body = re.search(rf"typedef struct {name} {{(.*?)}} {name};", HEADER.read_text(), re.DOTALL).group(1)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
    fields = {}
    for kind, field, many in re.findall(r"([\w ]+?\*?)\s+(\w+)(\[\w+\])?;", body):
        kind = kind.removeprefix("const ").removeprefix("struct ").strip()
        fields[field] = (str(_structs.MAX_RANK) if many else "") + ("P" if kind.endswith("*") else TYPES[kind])
    return fields


@needs_header
@pytest.mark.parametrize("name", STRUCTS)
def test_fields(name):
    codes = re.findall(r"\d*[a-zA-Z]", STRUCTS[name].struct.format.removesuffix("0P"))
    assert list(fields_in_the_header(name).items()) == list(zip(STRUCTS[name].offsets, codes, strict=True))


@needs_header
@pytest.mark.parametrize("name", STRUCTS)
def test_layout(name, tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    layout = STRUCTS[name]
    prints = "".join(f'    printf("%zu ", offsetof({name}, {field}));\n' for field in layout.offsets)
    (tmp_path / "flashtile").mkdir()
    (tmp_path / "flashtile" / "version.h").write_text("")
    source = tmp_path / "layout.c"
    source.write_text(f"#include <flashtile/flashtile.h>\n#include <stdio.h>\nint main(void) {{\n{prints}"
                      f'    printf("%zu", sizeof({name}));\n    return 0;\n}}\n')
    subprocess.run([compiler, f"-I{INCLUDE}", f"-I{tmp_path}", source, "-o", tmp_path / "layout"], check=True)
    said = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout
    assert [*layout.offsets.values(), layout.size] == [int(number) for number in said.split()]


@pytest.mark.parametrize("rank", range(_structs.MAX_RANK + 1))
def test_tensors_of_every_rank(rank):
    shape, stride = range(10, 10 + rank), range(20, 20 + rank)
    memory = bytearray(_structs.TENSORS[rank].size)
    _structs.TENSORS[rank].pack_into(memory, 0, 1, 2, 3, 4, rank, *shape, *stride)
    unused = (0,) * (_structs.MAX_RANK - rank)
    assert _structs.TENSOR.struct.unpack(memory) == (1, 2, 3, 4, rank, *shape, *unused, *stride, *unused)


OPTIONS = CallOptions(max_seqlen_q=1, max_seqlen_k=2, causal=3, alignment=4, scale=0.5, softcap=6.0, window_left=7,
                      window_right=8, dropout=0.25, deterministic=True, batch_invariant=True, exact_max=True,
                      attention_chunk=14, num_splits=15, sm_limit=16, diagonal=17, origin_b=18, origin_h=19, origin_i=20,
                      origin_j=21)


def test_every_option_reaches_its_field():
    assert all(value != default for value, default in zip(OPTIONS, CallOptions()))
    memory = bytearray(_structs.OPTIONS.size)
    _structs.pack_options(memory, 0, OPTIONS, seed=9, offset=10, seed_ptr=11, offset_ptr=12, stream=13)
    written = dict(zip(_structs.OPTIONS.offsets, _structs.OPTIONS.struct.unpack(memory), strict=True))
    assert {name: value for name, value in written.items() if value != 0} == {
        "size": len(memory), "causal": 3, "alignment": 4, "has_scale": 1, "scale": 0.5, "softcap": 6.0,
        "window_left": 7, "window_right": 8, "dropout": 0.25, "seed": 9, "offset": 10, "seed_ptr": 11,
        "offset_ptr": 12, "deterministic": 1, "batch_invariant": 1, "stream": 13, "exact_max": 1, "attention_chunk": 14,
        "num_splits": 15, "sm_limit": 16, "diagonal": 17, "origin_b": 18, "origin_h": 19, "origin_i": 20, "origin_j": 21}


def test_structs_of_a_call():
    """Every tensor's struct is where its field of the call's structs says, and an append's struct likewise."""
    names = (*_structs.INPUT_NAMES, *_structs.SERVING_NAMES)
    parts = (_structs.inputs_part(names, OPTIONS, append=_structs.APPEND),
             _structs.Part(_structs.APPEND, ("k", "slots"), {"rotary_begin": 5, "rotary_interleaved": True}))
    tensors = [(100 + at, 1, 1, 0, 1, 7, 1) for at in range(len(names))]
    structs = _structs.Structs(parts, [*tensors, None, (200, 7, 1, 0, 0)], OPTIONS)
    base = structs.addresses[0]
    inputs, append = ({name: value for name, value in zip(layout.offsets, layout.struct.unpack_from(
        structs.memory, address - base))} for layout, address in zip((_structs.INPUTS, _structs.APPEND),
                                                                     structs.addresses[1:]))
    data = {name: _structs.TENSOR.struct.unpack_from(structs.memory, inputs[name] - base)[0] for name in names}
    assert data == dict(zip(names, range(100, 100 + len(names))))
    assert (inputs["max_seqlen_q"], inputs["max_seqlen_k"], inputs["append"]) == (1, 2, structs.addresses[2])
    assert _structs.TENSOR.struct.unpack_from(structs.memory, append["slots"] - base)[0] == 200
    assert {name: value for name, value in append.items() if value and name != "slots"} == {
        "size": _structs.APPEND.size, "rotary_begin": 5, "rotary_interleaved": 1}


def test_structs_of_functions():
    """Texts and named tensors are where the inputs' fields say, and end there."""
    parts = (_structs.inputs_part(_structs.INPUT_NAMES, OPTIONS), _structs.Part(_structs.RESULTS["forward"], ("out",)))
    tensors = [(100 + at, 1, 1, 0, 2, 7, 5, 5, 1) for at in range(len(_structs.INPUT_NAMES) + 3)]
    structs = _structs.Structs(parts, tensors, OPTIONS, Functions("s + x[i, j]", None, ("x", "mask")))
    base = structs.addresses[0]
    read = _structs.INPUTS.struct.unpack_from(structs.memory, structs.addresses[1] - base)
    inputs = dict(zip(_structs.INPUTS.offsets, read, strict=True))

    def text(address):
        return structs.memory[address - base:structs.memory.index(0, address - base)].decode()

    assert text(inputs["score_function"]) == "s + x[i, j]" and inputs["mask_function"] == 0
    assert inputs["function_tensor_count"] == 2
    for at, name in enumerate(("x", "mask")):
        name_at, tensor = _structs.NAMED.struct.unpack_from(
            structs.memory, inputs["function_tensors"] - base + at * _structs.NAMED.size)
        assert text(name_at) == name
        assert _structs.TENSOR.struct.unpack(tensor)[:6] == (100 + len(tensors) - 2 + at, 1, 1, 0, 2, 7)
    assert _structs.TENSOR.struct.unpack_from(structs.memory, inputs["mask"] - base)[0] == 105


def test_structs_of_block_lists():
    """They point to their tensors, which stand between the functions' and the gradients."""
    parts = (_structs.inputs_part(("q",), OPTIONS), _structs.Part(_structs.RESULTS["backward"], ("out",)))
    tensors = [(100 + at, 1, 1, 0, 2, 7, 5, 5, 1) for at in range(6)]
    structs = _structs.Structs(parts, tensors, OPTIONS, Functions("s * x[h]", None, ("x",), (64, 128), ("x",)))
    base = structs.addresses[0]

    def fields(layout, address):
        return dict(zip(layout.offsets, layout.struct.unpack_from(structs.memory, address - base), strict=True))

    inputs, results = (fields(layout, at) for layout, at in zip((_structs.INPUTS, _structs.RESULTS["backward"]),
                                                                structs.addresses[1:]))
    lists = fields(_structs.BLOCK_LISTS, inputs["block_lists"])
    assert (lists["size"], lists["block_q"], lists["block_k"]) == (_structs.BLOCK_LISTS.size, 64, 128)
    data = [_structs.TENSOR.struct.unpack_from(structs.memory, lists[name] - base)[0] for name in ("counts", "indices")]
    assert data == [103, 104] and lists["full_counts"] == lists["full_indices"] == 0
    named = [_structs.NAMED.struct.unpack_from(structs.memory, at - base)[1]
             for at in (inputs["function_tensors"], results["dtensors"])]
    assert [_structs.TENSOR.struct.unpack(tensor)[0] for tensor in named] == [102, 105]


def test_structs_without_functions():
    parts = (_structs.inputs_part(_structs.INPUT_NAMES, OPTIONS),)
    structs = _structs.Structs(parts, [None] * len(_structs.INPUT_NAMES), OPTIONS)
    read = _structs.INPUTS.struct.unpack_from(structs.memory, structs.addresses[1] - structs.addresses[0])
    inputs = dict(zip(_structs.INPUTS.offsets, read, strict=True))
    assert {name: value for name, value in inputs.items() if value} == {
        "size": _structs.INPUTS.size, "max_seqlen_q": 1, "max_seqlen_k": 2}


def test_options_that_are_not_given_are_the_librarys():
    memory = bytearray(_structs.OPTIONS.size)
    _structs.pack_options(memory, 0, CallOptions())
    written = dict(zip(_structs.OPTIONS.offsets, _structs.OPTIONS.struct.unpack(memory), strict=True))
    assert {name: value for name, value in written.items() if value != 0} == {
        "size": len(memory), "window_left": -1, "window_right": -1}


def test_schemas_of_the_operators():
    """Programs that torch.export saved contain calls of these operators."""
    arguments = ("Tensor q, Tensor k, Tensor v, Tensor? alibi_slopes, Tensor? bias, Tensor? mask, "
                 "Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? seqused_k, Tensor? sinks, Tensor? diagonals, "
                 "Tensor? origins_i, Tensor? origins_j, SymInt max_seqlen_q, SymInt max_seqlen_k, int causal, int alignment, float? scale, float softcap, SymInt window_left, "
                 "SymInt window_right, float dropout, bool deterministic, bool batch_invariant, bool exact_max, "
                 "SymInt attention_chunk, int num_splits, int sm_limit, SymInt diagonal, SymInt origin_b, SymInt origin_h, "
                 "SymInt origin_i, SymInt origin_j, Tensor? rng")
    flashtile.attention  # noqa: B018 - defines them
    assert str(torch.ops.flashtile.forward.default._schema) == f"flashtile::forward({arguments}) -> (Tensor, Tensor)"
    functions = arguments.replace("Tensor? rng", "str? score_function, str? mask_function, str[] function_names, "
                                  "int[] block_size, Tensor[] function_tensors, Tensor? rng")
    assert str(torch.ops.flashtile.forward_with_functions.default._schema) == (
        f"flashtile::forward_with_functions({functions}) -> (Tensor, Tensor)")
    flashtile.merge  # noqa: B018 - defines it
    assert str(torch.ops.flashtile.merge.default._schema) == (
        "flashtile::merge(Tensor outs, Tensor lses, ScalarType? dtype) -> (Tensor, Tensor)")
    assert str(torch.ops.flashtile.backward.default._schema) == (
        f"flashtile::backward({arguments}, Tensor out, Tensor lse, Tensor dout, Tensor? dlse, bool need_dbias, "
        "bool need_dsinks) -> (Tensor, Tensor, Tensor, Tensor, Tensor)")
