"""Where the code cuts data into blocks, and whether given data cross these cuts.

A mistake at the edge of a block shows only on data with more than one block. The sizes of blocks are the whole numbers
that modules name at their top level. They are read from the sources, so a new one is covered on the day it is written.
During an audit, `small_blocks` makes blocks smaller that the data do not cross.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np

from apportion.data import Interactions

_SOURCES: Final = Path(__file__).parents[1]
_ELSEWHERE: Final = (
    "auditing", "cli", "evaluation", "exports", "federated", "parties", "report", "serving", "training",
)  # fmt: skip
"""Packages that work on released values, or whose units are not users with rows of items."""

NOT_SIZES: Final = {
    "apportion.data.text_files._BLOCK_BYTES": "bytes of a file that is read, not of what is computed from it",
    "apportion.linalg.user_rounds._MOST_COPIES": "bytes of sums; a test of its own makes it smaller",
    "apportion.privacy.contributions.partial_sums._LARGEST_STEPS": "larger sums are refused",
    "apportion.privacy.ledger.postgres_store._ONE_AT_A_TIME": "the name of a lock",
    "apportion.published.public_features.gradient._LARGEST_ROW": "larger gradients are refused",
}
"""Whole numbers that are not sizes of blocks, and what they are."""

_BLOCK: Final = re.compile("AT_A_TIME|AT_ONCE|PER_BLOCK|IN_A_PART|BATCH|MAX_ELEMENTS|_RANKED")
_SMALLEST: Final = 8
_SMALLEST_BLOCK: Final = 256
_BLOCKS: Final = 8


@dataclass(frozen=True)
class Sizes:
    """The size of a data set, in everything that a block may count.

    Attributes:
        users: number of users.
        rows: number of rows.
        items: number of items.
        of_one_user: the most rows of one user.
        of_one_item: the most rows of one item.
    """

    users: int
    rows: int
    items: int
    of_one_user: int
    of_one_item: int

    @classmethod
    def of(cls, data: Interactions) -> Sizes:
        """Return the sizes of a data set."""
        by_user, by_item = np.diff(data.by_user.indptr), data.by_task.counts
        return cls(
            data.n_users, len(data.users), data.n_tasks, int(by_user.max(initial=0)), int(by_item.max(initial=0))
        )

    def beyond(self, number: int) -> list[str]:
        """Return what the data have more of than this number."""
        sizes = {
            "users": self.users, "rows of one user": self.of_one_user, "items": self.items,
            "rows of one item": self.of_one_item, "rows": self.rows,
        }  # fmt: skip
        return [name for name, size in sizes.items() if size > number]


@dataclass(frozen=True)
class Boundary:
    """One size of a block, and how an audit crossed it.

    Attributes:
        name: the module and the constant.
        number: the value of the constant.
        crossed: how the audit crossed it, in words.
    """

    name: str
    number: int
    crossed: str


@cache
def block_sizes() -> dict[str, int]:
    """Return the whole numbers that modules name at their top level: {module.NAME: number}."""
    found = {}
    paths = (path for path in _SOURCES.rglob("*.py") if path.relative_to(_SOURCES).parts[0] not in _ELSEWHERE)
    for path in sorted(paths):
        module = ".".join(path.relative_to(_SOURCES.parent).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            number = _whole(getattr(node, "value", None))
            if isinstance(target, ast.Name) and target.id.isupper() and number is not None and number >= _SMALLEST:
                found[f"{module}.{target.id}"] = number
    return found


def _crossed(name: str, sizes: Sizes) -> str:
    shrunk = is_shrunk(name, sizes)
    crossed = ", ".join(sizes.beyond(_shrunk(sizes) if shrunk else block_sizes()[name]))
    if not crossed:
        return "not crossed: the data are too small"
    return f"made smaller, to {_shrunk(sizes)}" if shrunk else f"crossed by the {crossed}"


def is_shrunk(name: str, sizes: Sizes) -> bool:
    """Return whether `small_blocks` makes a block smaller, because the data fill less than two of it."""
    few, smaller = not sizes.beyond(2 * block_sizes()[name]), _shrunk(sizes) < block_sizes()[name]
    return name not in NOT_SIZES and few and smaller


@contextmanager
def small_blocks(sizes: Sizes, *, all_numbers: bool = False) -> Iterator[list[Boundary]]:
    """Shrink the blocks that the data do not cross, so that the data fill more than one of each.

    Args:
        sizes: the sizes of the data.
        all_numbers: whether to shrink every number of every module, not only numbers of modules in use whose names say
            that they are blocks; for data that exceed every other limit.

    Yields:
        The blocks, and how the data cross each of them inside the context.
    """
    names = [name for name in block_sizes() if (_importable if all_numbers else _is_block_in_use)(name)]
    with ExitStack() as stack:
        for name in names:
            if is_shrunk(name, sizes):
                module, _, constant = name.rpartition(".")
                patched: Any = mock.patch.object(importlib.import_module(module), constant, _shrunk(sizes))
                stack.enter_context(patched)
        yield [Boundary(name, block_sizes()[name], _crossed(name, sizes)) for name in names if name not in NOT_SIZES]


def _is_block_in_use(name: str) -> bool:
    return _BLOCK.search(name) is not None and name.rpartition(".")[0] in sys.modules


def _shrunk(sizes: Sizes) -> int:
    return max(sizes.users // _BLOCKS, _SMALLEST_BLOCK)


def _importable(name: str) -> bool:
    """Whether the module can be imported here; some need torch or Spark."""
    needs = {"torch": "torch", "public_features": "torch", "spark": "pyspark"}
    return all(find_spec(package) is not None for word, package in needs.items() if word in name)


def _whole(node: ast.expr | None) -> int | None:
    """Return a whole number that is written out, possibly as 1 << 20 or 2**16; None for anything else."""
    parts = (ast.Constant, ast.BinOp, ast.operator)
    if node is None or not all(isinstance(part, parts) for part in ast.walk(node)):
        return None
    value = _worked_out(node)
    return value if type(value) is int else None


def _worked_out(node: Any) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    operations = {ast.LShift: "__lshift__", ast.Pow: "__pow__", ast.Mult: "__mul__", ast.Add: "__add__"}
    left, right = _worked_out(node.left), _worked_out(node.right)
    name = operations.get(type(node.op))
    return getattr(left, name)(right) if name and type(left) is type(right) is int else None
