"""What `make docs` finds: public symbols without a description, calls without an example, and dead links. The tools are tried
on small inputs that have one fault each. The Python examples run; ctest has those of C and C++."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
from reference import examples, pages, python_names  # noqa: E402


def write_reference():
    loader = SourceFileLoader("write_reference", str(TOOLS / "write_reference"))
    module = module_from_spec(spec_from_loader("write_reference", loader))
    sys.modules["write_reference"] = module
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


def test_comments_describe_what_they_stand_at(tmp_path):
    header = tmp_path / "x.h"
    header.write_text("/* A function. */\nint f(void);\nint x; /* a number\n          of two lines */\nint y; // another\n}  // namespace\n")
    printed = subprocess.run([sys.executable, TOOLS / "reference/as_doxygen.py", header], capture_output=True, text=True, check=True)
    assert printed.stdout == ("/** A function. */\nint f(void);\nint x; /**< a number\n          of two lines */\n"
                              "int y; ///< another\n}  // namespace\n")


def test_a_native_symbol_without_a_description_is_found():
    def entry(name, kind, text):
        return pages.Entry(name, kind, name, text, [])

    entries = [entry("told", "function", "It does."), entry("told", "function", ""), entry("mute", "function", ""),
               entry("Mute", "struct", ""), entry("CONSTANT", "define", "")]
    assert pages.without_description(entries) == ["Mute", "mute"]


def test_a_call_without_an_example_is_found(tmp_path):
    program = tmp_path / "calls.c"
    program.write_text("/* --- common --- */\n\nint x;\n\n/* --- the examples --- */\n\n"
                       "static void f_(void) {\n    if (x) {\n        f();\n    }\n}\n\nint main(void) {\n    f_();\n}\n")
    common, found = examples.of_native(program)
    assert common == "int x;" and found == {"f": "if (x) {\n    f();\n}"}
    entries = [pages.Entry(name, "function", f"void {name}(void)", "It does.", []) for name in ("f", "f", "g")]
    assert pages.without_example(entries, found) == ["g"]
    assert pages.markdown(entries, found, "c").count("f();") == 1  # behind the last overload


def test_the_examples_of_python_come_out_as_they_say(tmp_path):
    program = TOOLS.parent / "examples/calls/calls.py"
    names = {name for name in examples.of_python(program) if name.startswith("flashtile_")}
    done = subprocess.run([sys.executable, program], capture_output=True, text=True,
                          env={**os.environ, "FLASHTILE_CACHE": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert f"{len(names) - done.stdout.count('(no ')} examples came out as they say" in done.stdout


def test_a_python_name_without_a_docstring_is_found(tmp_path):
    package = tmp_path / "p"
    package.mkdir()
    (package / "__init__.py").write_text("from ._f import told, mute as quiet\n__all__ = ['told', 'quiet', 'm']\n")
    (package / "_f.py").write_text("def told():\n    'It does.'\n\ndef mute():\n    pass\n")
    (package / "m.py").write_text("'A module.'\n")
    assert python_names.names_of(tmp_path, "p") == ["m", "quiet", "told"]
    assert python_names.find(tmp_path, "p", "told") == ("p._f.told", "It does.")
    assert python_names.find(tmp_path, "p", "quiet") == ("p._f.mute", None)
    assert python_names.find(tmp_path, "p", "m") == ("p.m", "A module.")


def test_a_dead_link_is_found(tmp_path, monkeypatch):
    module = write_reference()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "there.txt").write_text("")
    document = tmp_path / "page.md"
    document.write_text("[one](there.txt), [two](gone.md#part), `[code](is not one)`, [three](https://elsewhere/)")
    stage = module.Stage(tmp_path / "stage")
    stage.take(document)
    assert stage.dead == ["page.md: gone.md is not there"]
    assert (tmp_path / "stage/there.txt").exists()
