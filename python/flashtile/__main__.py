"""`python -m flashtile` and `flashtile`: the command line, which travels in the wheel as a program of its own."""

from __future__ import annotations

import os
import sys

from ._library import CHOSEN, FOLDER, PATH


def main() -> None:
    # Beside a library that the user has chosen lies the command line that was built with it.
    program = PATH.parent / "flashtile" if CHOSEN else FOLDER / "bin" / "flashtile"
    if not program.is_file():
        sys.exit(f"flashtile: there is no command line at {program}")
    sys.stdout.flush()
    os.execv(program, [str(program), *sys.argv[1:]])


if __name__ == "__main__":
    main()
