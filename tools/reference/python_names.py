"""The Python package's public names, read without importing it: __all__ of flashtile and of its public modules; where each
is defined, and whether it has a docstring."""

from __future__ import annotations

import ast
from pathlib import Path

MODULES = ("flashtile", "flashtile.distributed", "flashtile.jax", "flashtile.numpy", "flashtile.transformers", "flashtile.flash_attn", "flashtile.flash_attn_3")


def _file(root: Path, module: str) -> Path:
    path = root.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _definitions(tree: ast.Module) -> dict[str, ast.AST]:
    """The last one of each name: overloads come before what they describe."""
    return {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def names_of(root: Path, module: str) -> list[str]:
    tree = ast.parse(_file(root, module).read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted(ast.literal_eval(node.value))
    return sorted(name for name in _definitions(tree) if not name.startswith("_"))


def find(root: Path, module: str, name: str) -> tuple[str, str | None]:
    """Where the name is defined, and its docstring."""
    if _file(root, f"{module}.{name}").exists():
        own = f"{module}.{name}"
        return own, ast.get_docstring(ast.parse(_file(root, own).read_text()))
    path = _file(root, module)
    tree = ast.parse(path.read_text())
    definitions = _definitions(tree)
    if name in definitions:
        return f"{module}.{name}", ast.get_docstring(definitions[name])
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    above = package.split(".")[:len(package.split(".")) - node.level + 1] if node.level else []
                    return find(root, ".".join([*above, *filter(None, [node.module])]), alias.name)
    return f"{module}.{name}", None
