"""Claim: function by function and as a house, the code is at least as tidy as the projects it is measured against.

Lengths of function bodies (lines without the docstring), shares of annotated and documented functions, the longest
file, how many names are public (those in `__all__` of the front door and of packages), in how many places the layers
are written down, and how many files of the product a new engine, statistic, mechanism and file format touch. The last
is counted from the examples in tests/extending: a folder for each thing that is added and a test beside it. An example
touches a file of the product if it sets an attribute of that module or takes a private name out of it. Setting a
package's `__path__` puts a new file into its folder, and changes none that is there.

Anchors are measured from the projects' own files in the same way (November 2026). All of it is read from the source,
nothing is run, so the quick form is the full one; only while an example is missing can it not decide the claim.
"""

from __future__ import annotations

import ast
import math
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.claim import Outcome, Rehearsal, print_table

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "apportion"
EXTENDING = ROOT / "tests" / "extending"
THINGS = ("engine", "statistic", "mechanism", "file_format")
ANCHORS: dict[str, dict[str, float | None]] = {
    "dp_accounting": {"median": 10, "p90": 39, "annotated": 0.91, "longest": 2652, "public": 87, "front_door": 30},
    "jax_privacy": {"median": 10, "p90": 39, "annotated": 0.80, "longest": 1611},
    "Tumult core": {"median": 5, "p90": 31, "annotated": 0.94, "longest": 2332},
    "scikit-learn": {"median": 11, "p90": 51, "annotated": 0.08, "longest": 5744},
    "LensKit": {"median": 6, "p90": 28, "annotated": 0.78, "longest": 1246},
    "implicit": {"median": 12, "p90": 41, "annotated": 0.01, "longest": 572, "public": 47, "front_door": 6},
    "equinox": {"median": 6, "p90": 31, "annotated": 0.41, "longest": 1278},
    "structlog": {"median": 4, "p90": 20, "annotated": 0.98, "longest": 1249},
}
MEASURES = ("median", "p90", "annotated", "documented", "longest", "public", "front_door")
AT_MOST = {"median": 10, "p90": 20, "longest": 500, "front_door": 30, "places_of_layers": 1, "files_touched": 0}
AT_LEAST = {"annotated": 1.0, "documented": 1.0}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class File:
    """A file of the product, read once."""

    path: Path
    lines: int
    tree: ast.Module

    @property
    def module(self) -> str:
        """The dotted name within the package. A package's own file has the package's name."""
        return ".".join(self.path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


def measure(quick: bool) -> Outcome | Rehearsal:
    """Read the source, print it beside the anchors, and compare."""
    files = read(SOURCE)
    value = {**_functions(files), **_names(files), "longest": max(file.lines for file in files)}
    places = places_of_layers()
    value["places_of_layers"] = len(places)
    extensions = {thing: files_of_extension(thing) for thing in THINGS}
    _print(value, extensions)
    value["extensions"] = extensions
    touched = [found["touched"] for found in extensions.values() if found is not None]
    value["files_touched"] = max(map(len, touched), default=0)
    limits = {name: value[name] <= limit for name, limit in AT_MOST.items()}
    limits |= {name: value[name] >= limit for name, limit in AT_LEAST.items()}
    complete = len(touched) == len(THINGS)
    if quick and not complete:
        return Rehearsal(value, limits)
    return Outcome(
        value=value,
        target={"at_most": AT_MOST, "at_least": AT_LEAST, "examples": list(THINGS)},
        holds=complete and all(limits.values()),
        headline=_headline(value, extensions),
        settings={"anchors": ANCHORS, "layers_are_written_in": places},
    )


def read(folder: Path) -> list[File]:
    """Return every Python file below a folder."""
    texts = [(path, path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))]
    return [File(path, len(text.splitlines()), ast.parse(text)) for path, text in texts]


def files_of_extension(thing: str) -> dict[str, list[str]] | None:
    """Return the files of the example that adds a `thing`, and the product's modules that it touches.

    Return None if there is no example.
    """
    folder = EXTENDING / thing
    if not folder.is_dir():
        return None
    own = sorted(folder.rglob("*.py"))
    touched = {name for path in (*own, *EXTENDING.glob(f"test_{thing}.py")) for name in product_files_touched(path)}
    return {"added": [path.relative_to(EXTENDING).as_posix() for path in own], "touched": sorted(touched)}


def product_files_touched(example: Path) -> set[str]:
    """Return the modules of the package whose attributes a file sets, or whose private names it takes."""
    tree = ast.parse(example.read_text(encoding="utf-8"))
    imported = dict(_imported(tree))
    touched = {name.rpartition(".")[0] for name in imported.values() if name.rpartition(".")[2].startswith("_")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (owner := imported.get(_root(node.value))):
            written = isinstance(node.ctx, ast.Store | ast.Del)
            private = node.attr.startswith("_") and not node.attr.startswith("__") and isinstance(node.value, ast.Name)
            touched |= {owner} if written or private else set()
        elif isinstance(node, ast.Call) and _called(node) in ("setattr", "setitem", "delattr", "patch") and node.args:
            touched |= {name for name in [_patched(node, imported)] if name}
    return {name for name in touched if name.split(".")[0] == "apportion"}


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Return the names of a file, and what they stand for in the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name.split(".")[0], alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else _root(node.func)


def _patched(patch: ast.Call, imported: dict[str, str]) -> str:
    """Return what is patched: a dotted name in a string, or something imported.

    A new file in a folder is not a patch.
    """
    target, *further = patch.args
    if further and isinstance(further[0], ast.Constant) and further[0].value == "__path__":
        return ""
    if isinstance(target, ast.Constant) and isinstance(target.value, str):
        return target.value.rpartition(".")[0]
    return imported.get(_root(target), "")


def places_of_layers() -> list[str]:
    """Return the files that list more than half of the packages: contracts of layers, collections, lists in docs."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    found = [f"pyproject.toml: {contract['name']}" for contract in contracts if contract["type"] == "layers"]
    for folder in ("src", "tests", "docs", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            found += [path.relative_to(ROOT).as_posix()] * _lists_packages(path, packages)
    for path in sorted((ROOT / "docs").glob("**/*.md")):
        heads = re.findall(r"^[\s\d|`*-]*(\w+)\b", path.read_text(encoding="utf-8"), re.MULTILINE)
        found += [path.relative_to(ROOT).as_posix()] if len(packages & set(heads)) > len(packages) / 2 else []
    return [place for place in found if "docs/reference" not in place and "docs/_build" not in place]


def _lists_packages(path: Path, packages: set[str]) -> int:
    """Return how many collections of strings in a file name more than half of the packages."""
    count = 0
    for node in ast.walk(ast.parse(path.read_bytes())):
        parts = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
        strings = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
        count += len(packages & {text.removeprefix("apportion.") for text in strings}) > len(packages) / 2
    return count


def _functions(files: list[File]) -> dict[str, Any]:
    functions = [node for file in files for node in ast.walk(file.tree) if isinstance(node, Function)]
    lengths = sorted(_body_lines(node) for node in functions)
    public = [node for file in files for node in _public_definitions(file.tree)]
    return {
        "functions": len(functions),
        "median": median(lengths),
        "p90": lengths[math.ceil(0.9 * len(lengths)) - 1],
        "annotated": sum(map(_is_annotated, functions)) / len(functions),
        "documented": sum(ast.get_docstring(node) is not None for node in public) / len(public),
    }


def _body_lines(node: Function) -> int:
    """Return the number of lines of the body without its docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def _is_annotated(node: Function) -> bool:
    """Whether all arguments and the result of a function have a type."""
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    given += [each for each in (node.args.vararg, node.args.kwarg) if each is not None]
    typed = all(each.annotation is not None or each.arg in ("self", "cls") for each in given)
    return typed and node.returns is not None


def _public_definitions(tree: ast.Module) -> Iterator[Function | ast.ClassDef]:
    """Return the public functions and classes of a module, and the public methods of the classes."""
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            inner = node.body if isinstance(node, ast.ClassDef) else []
            yield from (each for each in inner if isinstance(each, Function) and not each.name.startswith("_"))


def _names(files: list[File]) -> dict[str, int]:
    """Names of the front door, all that some package exports, and all that merely have no underscore."""
    exported = {file.module: _all(file.tree) for file in files if file.path.name == "__init__.py"}
    reachable = [node for file in files if "._" not in file.module for node in file.tree.body]
    plain = [n for n in reachable if isinstance(n, Function | ast.ClassDef) and not n.name.startswith("_")]
    return {
        "front_door": len(exported["apportion"]),
        "public": len({name for names in exported.values() for name in names}),
        "without_underscore": len(plain),
    }


def _all(tree: ast.Module) -> list[str]:
    """Return what a module lists in `__all__`, as far as it is written there as strings."""
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            strings = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
            return [text for text in strings if isinstance(text, str)]
    return []


def _print(value: dict[str, Any], extensions: dict[str, dict[str, list[str]] | None]) -> None:
    projects: dict[str, dict[str, Any]] = {"apportion": value, **ANCHORS}
    rows = [[name, *(held.get(key, "-") for key in MEASURES)] for name, held in projects.items()]
    print_table(["project", *MEASURES], rows)
    print(f"{value['functions']:,} functions; {value['without_underscore']} functions and classes without underscore\n")
    print_table(
        ["adding a new", "files of one's own", "files of the product touched"],
        [
            [thing, *((len(found["added"]), ", ".join(found["touched"]) or 0) if found else ("no example yet", "-"))]
            for thing, found in extensions.items()
        ],
    )


def _headline(value: dict[str, Any], extensions: dict[str, dict[str, list[str]] | None]) -> str:
    touched = ", ".join(
        f"{thing.replace('_', ' ')} {len(found['touched']) if found else '(no example yet)'}"
        for thing, found in extensions.items()
    )
    return (
        f"function bodies of {value['median']:g} lines in the median and {value['p90']} at the 90th percentile "
        f"(dp_accounting 10 and 39, scikit-learn 11 and 51); {100 * value['annotated']:.0f} % annotated, "
        f"{100 * value['documented']:.0f} % of public names documented; longest file {value['longest']} lines; "
        f"{value['public']} public names, {value['front_door']} at the front door (dp_accounting 87 and 30); files of "
        f"the product touched by a new: {touched}"
    )
