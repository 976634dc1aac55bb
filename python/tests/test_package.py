"""The package without PyTorch, its errors at import, and its command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import flashtile


def run(*arguments, **environment):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True,
                          env={**os.environ, **environment})


def test_import_needs_no_pytorch():
    done = run("-c", "import sys, flashtile; flashtile.info(); assert 'torch' not in sys.modules")
    assert done.returncode == 0, done.stderr
    for part in (f"version: {flashtile.__version__}", "isa:", "driver:", "nvrtc:"):
        assert part in done.stdout


def test_calls_do_not_load_the_compiler():
    """torch._dynamo takes a second."""
    done = run("-c", """
import sys, torch
loaded = 'torch._dynamo' in sys.modules
import flashtile
q = torch.randn(1, 4, 2, 8, requires_grad=True)
flashtile.attention(q, q, q).sum().backward()
flashtile.flash_attn.flash_attn_func(q, q, q).sum().backward()
flashtile.scaled_dot_product_attention(q, q, q).sum().backward()
with flashtile.sdpa():
    torch.nn.functional.scaled_dot_product_attention(q, q, q)
assert loaded or 'torch._dynamo' not in sys.modules
""")
    assert done.returncode == 0, done.stderr


def test_the_compilers_mark_is_pytorchs():
    from flashtile._while_tracing import run_while_tracing
    assert vars(run_while_tracing(lambda: 1)) == vars(torch.compiler.assume_constant_result(lambda: 1))


@pytest.mark.parametrize("name", ["attention", "sdpa", "scaled_dot_product_attention", "install_as_flash_attn",
                                  "register_flash_attention_impl", "flash_attn", "flash_attn_3"])
def test_without_pytorch_it_is_asked_for(name):
    done = run("-c", f"import sys; sys.modules['torch'] = None; import flashtile; flashtile.{name}")
    assert done.returncode == 1
    assert done.stderr.endswith(f"ImportError: flashtile.{name} needs PyTorch: pip install flashtile[torch]\n")
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert not project.is_file() or 'torch = ["torch' in project.read_text()


def test_info_has_no_empty_lines(capsys):
    """A key alone heads what is indented below it."""
    flashtile.info()
    lines = capsys.readouterr().out.splitlines()
    for line, after in zip(lines, [*lines[1:], ""]):
        assert line.strip()
        assert not line.rstrip().endswith(":") or after.startswith(line[:len(line) - len(line.lstrip())] + "  "), line


def test_describe():
    found = flashtile.describe()
    assert Path(found["library"]).is_file()
    assert found["cpu"]["threads"] >= 1 and set(found["cpu"]["isa"]) == {"fp32", "fp16", "bf16"}
    assert {"driver", "devices", "nvrtc", "cache"} <= set(found["cuda"])


def test_a_library_that_is_not_there():
    done = run("-c", "import flashtile", FLASHTILE_LIBRARY="/nowhere/libflashtile.so")
    assert done.returncode == 1
    assert "ImportError: flashtile cannot load its library /nowhere/libflashtile.so (named by FLASHTILE_LIBRARY)" \
        in done.stderr


def test_unknown_names():
    with pytest.raises(AttributeError, match="no attribute 'attend'"):
        flashtile.attend  # noqa: B018
    assert set(flashtile.__all__) <= set(dir(flashtile))
    assert all(getattr(flashtile, name) is not None for name in flashtile.__all__ if name != "transformers")


def test_command_line():
    from flashtile.__main__ import FOLDER
    beside = Path(flashtile.describe()["library"]).parent / "flashtile"
    if not (beside.is_file() or (FOLDER / "bin" / "flashtile").is_file()):
        done = run("-m", "flashtile", "info")
        assert done.returncode == 1 and "there is no command line at" in done.stderr
        return
    done = run("-m", "flashtile", "--version")
    assert (done.returncode, done.stdout.strip()) == (0, flashtile.__version__)
    assert run("-m", "flashtile", "attend", "--nonsense").returncode == 2


def test_typed():
    assert (Path(flashtile.__file__).parent / "py.typed").is_file()
