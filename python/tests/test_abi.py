"""The layouts that the package packs by hand are those of flashtile.h, as a C compiler has them."""

import re
import shutil
import subprocess
from pathlib import Path
from struct import Struct, calcsize

import pytest

from flashtile import _structs

INCLUDE = Path(__file__).parents[2] / "include"

STRUCTS = {
    "flashtile_options": (_structs.OPTIONS, _structs.OPTION_FIELDS),
    "flashtile_inputs": (_structs.INPUTS, ("size", *_structs.INPUT_NAMES, "max_seqlen_q", "max_seqlen_k")),
    "flashtile_forward_outputs": (Struct("N2P"), ("size", *_structs.RESULT_NAMES["forward"])),
    "flashtile_gradients": (Struct("N8P"), ("size", *_structs.RESULT_NAMES["backward"])),
    "flashtile_tensor": (_structs.TENSORS[6], ("data", "dtype", "device_type", "device_id", "rank", "shape", "stride")),
}


def offsets(packed: Struct) -> list[int]:
    """Where each value of a Struct starts; an array's is its first one's."""
    starts, so_far = [], ""
    for count, code in re.findall(r"(\d*)([a-zA-Z])", packed.format):
        if code == "x":
            so_far += f"{count}x"
            continue
        array = packed is _structs.TENSORS[6] and code == "q"
        for _ in range(1 if array else int(count or 1)):
            starts.append(calcsize(so_far + "0" + code))
            so_far += f"{count}{code}" if array else code
    return starts


@pytest.mark.parametrize("name", STRUCTS)
def test_layout(name, tmp_path):
    compiler = shutil.which("cc")
    if compiler is None or not INCLUDE.is_dir():
        pytest.skip("needs a C compiler and the repository's headers")
    packed, fields = STRUCTS[name]
    prints = "".join(f'    printf("%zu ", offsetof({name}, {field}));\n' for field in fields)
    (tmp_path / "flashtile").mkdir()
    (tmp_path / "flashtile" / "version.h").write_text("")
    source = tmp_path / "layout.c"
    source.write_text(f"#include <flashtile/flashtile.h>\n#include <stdio.h>\nint main(void) {{\n{prints}"
                      f'    printf("%zu", sizeof({name}));\n    return 0;\n}}\n')
    subprocess.run([compiler, f"-I{INCLUDE}", f"-I{tmp_path}", source, "-o", tmp_path / "layout"], check=True)
    said = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout
    assert [*offsets(packed), packed.size] == [int(number) for number in said.split()]


def test_places_of_what_each_call_sets():
    starts = dict(zip(_structs.OPTION_FIELDS, offsets(_structs.OPTIONS)))
    words = {"seed_ptr": _structs.SEEDS, "offset_ptr": _structs.SEEDS + 1, "stream": _structs.STREAM,
             "workspace": _structs.WORKSPACE, "workspace_size": _structs.WORKSPACE + 1}
    assert {name: starts[name] for name in (*words, "threads")} == {
        **{name: 8 * word for name, word in words.items()}, "threads": 4 * _structs.THREADS}
