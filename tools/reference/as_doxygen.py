#!/usr/bin/env python3
"""Doxygen's input filter for the public headers: their comments, which say what they describe by where they stand, become
Doxygen's. A comment at the end of a line of code describes that code, another one what follows it.

    as_doxygen.py HEADER        prints the header
"""

from __future__ import annotations

import re
import sys
from pathlib import Path


def with_marks(line: str) -> str:
    code, start, comment = re.match(r"(.*?)(/\*|//)(.*)", line, re.DOTALL).groups()
    if code.strip() == "}":  # of a namespace, whose name is no description
        return line
    behind = "<" if code.strip() else ""
    return code + ("/**" if start == "/*" else "///") + behind + comment


def main() -> None:
    in_block = False
    for line in Path(sys.argv[1]).read_text().splitlines():
        if not in_block and ("/*" in line or "//" in line) and not line.startswith("#include"):
            marked = with_marks(line)
            in_block = "/*" in line and "*/" not in line
            print(marked)
            continue
        in_block = in_block and "*/" not in line
        print(line)


main()
