"""The code on which a stored result was measured: one hash of all code that its claim can reach.

A claim reaches what its module imports, at the top or inside a function, and what these modules import in turn, within
the package, the reproductions, these benchmarks and the tests' own estimators. If a claim runs the package in another
process, it reaches the whole package. For a Python file, the hash covers only the code that runs, so that a better
docstring does not make a result outdated; for the kernel, it covers the text. A result with another hash may still
hold: the table says that it was not measured again.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "src", ROOT, ROOT / "tests")
PACKAGE = ROOT / "src" / "apportion"
FRAME = ("benchmarks.claim", "benchmarks.table", "benchmarks.source")  # these measure nothing

_NAMES = re.compile(r"planted|(apportion|planted)(\.\w+)+")


def fingerprint(name: str) -> str:
    """Return the SHA-256 over the code that a claim reaches, in the order of the files' paths."""
    total = hashlib.sha256()
    for path in sorted(reached(f"benchmarks.{name.replace('-', '_')}")):
        total.update(f"{path.relative_to(ROOT).as_posix()}\0{_code_hash(path)}\n".encode())
    return total.hexdigest()


def reached(module: str) -> set[Path]:
    """Files of everything that a module imports, its own among them, and of the kernel if it is loaded."""
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        path = _file(name := waiting.pop())
        if path is not None and name not in found and name not in FRAME:
            found[name] = path
            waiting += _imports(path)
    if "apportion" not in found:
        return {*found.values(), *PACKAGE.rglob("*.py"), *_kernel()}
    return {*found.values(), *(_kernel() if "apportion.linalg.kernel" in found else ())}


def _kernel() -> set[Path]:
    return {*PACKAGE.rglob("*.cpp"), *PACKAGE.rglob("*.hpp")}


@cache
def _file(module: str) -> Path | None:
    places = [folder.joinpath(*module.split(".")) for folder in FOLDERS]
    choices = [path for place in places for path in (place / "__init__.py", place.with_suffix(".py"))]
    return next((path for path in choices if path.exists()), None)


@cache
def _imports(path: Path) -> tuple[str, ...]:
    """Names of modules, and of packages around them, that a file imports; a lazy package names them in strings."""
    names: set[str] = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAMES.fullmatch(node.value):
            names.add(node.value)
    around = {".".join(name.split(".")[:k]) for name in names for k in range(1, name.count(".") + 1)}
    return tuple(sorted(names | around))


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


@cache
def _code_hash(path: Path) -> str:
    """The hash of a Python file without comments, docstrings and layout; of any other file as it is."""
    if path.suffix != ".py":
        return hashlib.sha256(path.read_bytes()).hexdigest()
    bare = _WithoutDocstrings().visit(_tree(path))
    return hashlib.sha256(_dumped(bare).encode()).hexdigest()


def _dumped(tree: ast.AST) -> str:
    """Return a tree as text that is the same in every version of Python: newer ones name empty fields differently."""
    shown: dict[str, Any] = {"show_empty": True} if sys.version_info >= (3, 13) else {}
    return ast.dump(tree, **shown).replace(", type_params=[]", "")


class _WithoutDocstrings(ast.NodeTransformer):
    """Drops statements that are nothing but a string."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        """Return nothing for a string that stands alone."""
        alone = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if alone else node
