"""The reference's examples: functions of the programs in examples/calls, each named by the call that it shows."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from textwrap import dedent


def of_native(program: Path) -> tuple[str, dict[str, str]]:
    """What a C or C++ program says before its examples, and the body of each: of `void NAME_()`."""
    text = program.read_text()
    _, common, examples = re.split(r"^(?:/\*|//) --- .* ---(?: \*/)?\n", text, maxsplit=2, flags=re.MULTILINE)
    found = re.finditer(r"^(?:static )?void (\w+)_\((?:void)?\) \{\n(.*?)^\}$", examples, re.MULTILINE | re.DOTALL)
    return common.strip(), {each[1]: dedent(each[2]).strip() for each in found}


def of_python(program: Path) -> dict[str, str]:
    """The body of each function, by the path of what it shows with _ for the dots."""
    text = program.read_text()
    lines = text.splitlines()
    return {node.name: dedent("\n".join(lines[node.body[0].lineno - 1:node.end_lineno]))
            for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
