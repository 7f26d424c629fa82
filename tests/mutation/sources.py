"""Every place of every module where an operator changes something, and a process in which one of them is changed."""

from __future__ import annotations

import ast
import importlib.util
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path

from mutation.operators import OPERATORS

PACKAGES = (
    "privacy", "engines", "allocation", "estimators", "recommend", "statistics", "regression", "parties", "training",
    "federated", "transport",
)  # fmt: skip
SKIPPED = ("privacy.ledger", "privacy.statement", "privacy.purposes")
"""What is written about a release; tests of their own compare it with what ran."""


@dataclass(frozen=True)
class Mutant:
    """One changed place.

    Attributes:
        module: in dotted form.
        operator: its name.
        place: which of the nodes of the module, in the order of a walk.
        choice: which of the operator's results.
    """

    module: str
    operator: str
    place: int
    choice: int = 0

    def __str__(self) -> str:
        return f"{self.module}|{self.operator}|{self.place}|{self.choice}"

    @classmethod
    def parse(cls, text: str) -> Mutant:
        """From what `str` gives."""
        module, operator, place, choice = text.split("|")
        return cls(module, operator, int(place), int(choice))

    @property
    def package(self) -> str:
        """The package under `apportion`."""
        return self.module.split(".")[1]


def every_mutant(root: Path, packages: Sequence[str] = PACKAGES) -> list[Mutant]:
    """Every change of every module of these packages."""
    return [
        Mutant(module, name, place, choice)
        for module, path in _modules(root, packages)
        for place, node in enumerate(nodes_of(parsed(path)))
        for name, change in OPERATORS.items()
        for choice, made in enumerate(change(node))
        if ast.dump(made) != ast.dump(node)
    ]


def sampled(mutants: Sequence[Mutant], number: int, seed: int) -> list[Mutant]:
    """So many of them, from every package and operator in turn."""
    strata = defaultdict(list)
    chance = random.Random(seed)  # which mutants are looked at is no secret
    for mutant in mutants:
        strata[mutant.package, mutant.operator].append(mutant)
    order = sorted(strata)
    chance.shuffle(order)
    for held in strata.values():
        chance.shuffle(held)
    taken: list[Mutant] = []
    while len(taken) < number and any(strata.values()):
        taken += [strata[key].pop() for key in order if strata[key]]
    return taken[:number]


def changed_tree(mutant: Mutant, path: Path) -> ast.Module:
    """The changed module; lines keep their numbers."""
    tree = parsed(path)
    node = list(nodes_of(tree))[mutant.place]
    made = OPERATORS[mutant.operator](node)[mutant.choice]
    if not hasattr(made, "lineno"):
        ast.copy_location(made, node)
    return ast.fix_missing_locations(_Replace(node, made).visit(tree))


def source_of(mutant: Mutant, path: Path) -> str:
    """The changed module as text."""
    return ast.unparse(changed_tree(mutant, path))


def described(mutant: Mutant, path: Path) -> str:
    """What is changed into what, in one line."""
    node = list(nodes_of(parsed(path)))[mutant.place]
    made = OPERATORS[mutant.operator](node)[mutant.choice]
    before, after = (ast.unparse(ast.fix_missing_locations(part)).split("\n")[0][:60] for part in (node, made))
    return f"{path.name}:{getattr(node, 'lineno', 0)} {before}  ->  {after}"


def install(mutant: Mutant) -> None:
    """Import the changed module in place of the one on disk, from here on in this process."""
    sys.meta_path.insert(0, _Finder(mutant))


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self._mutant.module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        sys.meta_path.insert(0, self)
        spec.loader = _Changed(self._mutant, Path(spec.origin))
        return spec


class _Changed(Loader):
    def __init__(self, mutant: Mutant, path: Path) -> None:
        self._mutant, self._path = mutant, path

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        exec(compile(source_of(self._mutant, self._path), str(self._path), "exec"), module.__dict__)


class _Replace(ast.NodeTransformer):
    def __init__(self, before: ast.AST, after: ast.AST) -> None:
        self._before, self._after = before, after

    def visit(self, node):
        return self._after if node is self._before else self.generic_visit(node)


def _modules(root: Path, packages: Sequence[str]) -> Iterator[tuple[str, Path]]:
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            inside = ".".join(path.relative_to(root).with_suffix("").parts)
            if path.name != "__init__.py" and not inside.startswith(SKIPPED):
                yield f"apportion.{inside}", path


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def nodes_of(node: ast.AST) -> Iterator[ast.AST]:
    """Every node that something is computed from: no docstrings, annotations or messages of errors."""
    yield node
    for name, held in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params") or isinstance(node, ast.Raise):
            continue
        for child in held if isinstance(held, list) else [held]:
            if isinstance(child, ast.AST) and not _is_text(child):
                yield from nodes_of(child)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
