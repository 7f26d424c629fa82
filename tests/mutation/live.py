"""Change a module that is already imported: its functions get the code of the changed source.

A process that has imported everything is copied for each mutant, which is much faster than importing again. Where
something else than the body of a function is changed, or a function that runs while modules are imported, this is not
the same as a changed file, and the mutant is imported in a process of its own.
"""

from __future__ import annotations

import ast
import gc
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType

from mutation.sources import Mutant, changed_tree, nodes_of, parsed

Place = tuple[str, int]
"""A function's qualified name and first line."""


def changed_functions(mutant: Mutant, path: Path) -> dict[Place, CodeType] | None:
    """The new code of every function that a mutant changes; None where it changes something else as well."""
    before, after = (compile(tree, str(path), "exec") for tree in (parsed(path), changed_tree(mutant, path)))
    found: dict[Place, CodeType] = {}
    return found if _compared(before, after, found) else None


_living: dict[tuple[str, Place], list[FunctionType]] = {}


def note_living(root: str) -> None:
    """Note all living functions of files in this folder: to look for them again in every copy would take longest."""
    _living.clear()
    for held in [each for each in gc.get_objects() if type(each) is FunctionType]:  # proxies may say that they are one
        if held.__code__.co_filename.startswith(root):
            _living.setdefault((held.__code__.co_filename, _place(held.__code__)), []).append(held)


def give(codes: dict[Place, CodeType], path: Path) -> None:
    """Give the functions of a module that were noted their new code."""
    for place, code in codes.items():
        for held in _living.get((str(path), place), []):
            held.__code__ = code


def body_of(code: CodeType) -> bool:
    """Whether this is the code of a function, not of a module or a class."""
    return bool(code.co_flags & inspect.CO_OPTIMIZED)


def _place(code: CodeType) -> Place:
    return code.co_qualname, code.co_firstlineno


def _compared(before: CodeType, after: CodeType, found: dict[Place, CodeType]) -> bool:
    """Whether two modules or classes differ in functions alone, which are noted."""
    if before.co_code != after.co_code or before.co_names != after.co_names:
        return False
    if len(before.co_consts) != len(after.co_consts):
        return False
    for one, other in zip(before.co_consts, after.co_consts, strict=True):
        if not isinstance(one, CodeType) or not isinstance(other, CodeType):
            if type(one) is not type(other) or repr(one) != repr(other):
                return False
        elif one == other:
            continue
        elif not body_of(one):
            if not _compared(one, other, found):
                return False
        elif one.co_name.startswith("<") or one.co_freevars != other.co_freevars:
            return False  # runs at once, or closes over other names
        else:
            found.update({_place(code): code for code in _within(other)})
    return True


def _within(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and that of functions in it."""
    yield code
    for held in code.co_consts:
        if isinstance(held, CodeType):
            yield from _within(held)


@dataclass(frozen=True)
class Statement:
    """Where a node is.

    Attributes:
        first: line of the statement.
        last: line of the statement.
        function: first line of the function whose body runs it, decorators included; 0 where none does.
    """

    first: int = 0
    last: int = 0
    function: int = 0


def statement_lines(path: Path) -> dict[int, Statement]:
    """By place of a node."""
    tree = parsed(path)
    holders: dict[ast.AST, Statement] = {}
    _note(tree, Statement(), holders)
    return {place: holders[node] for place, node in enumerate(nodes_of(tree))}


def _note(node: ast.AST, held: Statement, into: dict[ast.AST, Statement]) -> None:
    function = held.function
    if isinstance(node, ast.FunctionDef):
        function = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    elif isinstance(node, ast.Lambda) and not function:
        function = node.lineno
    if isinstance(node, ast.stmt) or function != held.function:
        held = Statement(node.lineno, node.end_lineno or node.lineno, function)
    into[node] = held
    for child in ast.iter_child_nodes(node):
        _note(child, held, into)
