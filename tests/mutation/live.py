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
from pathlib import Path
from types import CodeType, FunctionType

from mutation.sources import Mutant, changed_tree, parsed

Place = tuple[str, int]
"""A function's qualified name and first line."""


def changed_functions(mutant: Mutant, path: Path) -> dict[Place, CodeType] | None:
    """The new code of every function that a mutant changes; None where it changes something else as well."""
    before, after = (compile(tree, str(path), "exec") for tree in (parsed(path), changed_tree(mutant, path)))
    found: dict[Place, CodeType] = {}
    return found if _compared(before, after, found) else None


def give(codes: dict[Place, CodeType], path: Path) -> None:
    """Give all living functions of a module their new code."""
    for held in [each for each in gc.get_objects() if type(each) is FunctionType]:  # proxies may say that they are one
        code = codes.get(_place(held.__code__)) if held.__code__.co_filename == str(path) else None
        if code is not None:
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


def statement_lines(path: Path) -> dict[int, tuple[int, int, bool]]:
    """By place of a node: first and last line of the statement it is in, and whether a function's body runs it."""
    tree = parsed(path)
    found: dict[int, tuple[int, int, bool]] = {}
    holders: dict[ast.AST, tuple[int, int, bool]] = {}
    _note(tree, (0, 0, False), holders)
    from mutation.sources import nodes_of

    for place, node in enumerate(nodes_of(tree)):
        found[place] = holders[node]
    return found


def _note(node: ast.AST, held: tuple[int, int, bool], into: dict[ast.AST, tuple[int, int, bool]]) -> None:
    inside = held[2] or isinstance(node, ast.FunctionDef | ast.Lambda)
    if isinstance(node, ast.stmt) or (inside and not held[2]):
        held = (node.lineno, node.end_lineno or node.lineno, inside)
    into[node] = held
    for child in ast.iter_child_nodes(node):
        _note(child, held, into)
