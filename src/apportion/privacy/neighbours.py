"""Which two data sets a guarantee compares: the protected unit, and how neighbouring data sets differ.

A sum states its sensitivity for one relation. A session protects one relation, and releases only sums that state their
sensitivity for the same one (`Session`). A weaker relation never counts as a stronger one.

Stored documents name a relation by its key. The sentences are for readers and may be improved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from apportion.errors import InputError


@dataclass(frozen=True)
class Neighbours:
    """A neighbour relation: a key that identifies it, and its words in a statement.

    Attributes:
        key: its name for programs, as statements, cards and ledgers store it; unique.
        unit: whose data is protected, and what of it.
        relation: how two neighbouring data sets differ.
        one: the unit in one word.
        warning: what a reader must know first if the relation leaves something about users public; otherwise empty.
    """

    key: str
    unit: str
    relation: str
    one: str = field(default="user", compare=False)
    warning: str = field(default="", compare=False)


_PUBLIC_SIZES = "How many rows each user has is PUBLIC here: only what the rows hold is protected."

ADD_REMOVE = Neighbours("add-remove", "user: all rows of one user", "add or remove one user")
ADD_REMOVE_EXAMPLE = Neighbours(
    "add-remove-example",
    "example: one row; a user with several rows is protected less",
    "add or remove one row",
    one="example",
)
REPLACE_VALUES = Neighbours(
    "replace-values",
    "user: the contents of all rows of one user",
    "replace the contents of one user's rows; which rows belong to one user, and so how many rows each has, is public",
    warning=_PUBLIC_SIZES,
)
REPLACE_VALUES_PUBLIC_GRAPH = Neighbours(
    "replace-values-public-graph",
    "user: the values of all rows of one user, private features among them, but not which tasks these rows are for",
    "replace the values of one user's rows; which user has which task is public",
)
REPLACE_LABELS = Neighbours(
    "replace-labels",
    "user: the labels of all rows of one user",
    "replace the labels of one user's rows; all features, and which rows belong to one user, are public",
    warning="All features, and how many rows each user has, are PUBLIC here: only the labels are protected.",
)
ADD_REMOVE_TASK = Neighbours(
    "add-remove-task",
    "task: all rows and the model of one party, against everybody else's view (joint differential privacy)",
    "add or remove one task: all rows of one party",
    one="task",
)
REPLACE_TASK = Neighbours(
    "replace-task",
    "task: all rows and the model of one party, against everybody else's view (joint differential privacy)",
    "replace one task: all rows of one party; the number of tasks is public",
    one="task",
)
RELATIONS = {
    each.key: each
    for each in (
        ADD_REMOVE,
        ADD_REMOVE_EXAMPLE,
        ADD_REMOVE_TASK,
        REPLACE_VALUES,
        REPLACE_VALUES_PUBLIC_GRAPH,
        REPLACE_LABELS,
        REPLACE_TASK,
    )
}


def relation_of(key: str, unit: str, relation: str) -> Neighbours:
    """Return a stored relation: one of the library's by its key, or someone else's in its own words."""
    return RELATIONS.get(key, Neighbours(key, unit, relation))


def moved_by_user(neighbours: Neighbours, *, semidefinite: bool = False) -> float:
    """Return how far one user moves a sum over users if each part has a norm of at most 1.

    A user who is added or removed moves it by one part. A user whose values are replaced moves it by the difference of
    two parts. The angle between two positive semidefinite matrices is never more than 90°, so their difference has norm
    at most √2 (docs/proofs/weights.md).

    Args:
        neighbours: how the data sets differ: by a user with all rows, or by the values of one user's rows.
        semidefinite: whether every part is a positive semidefinite matrix, or a row of such, in Frobenius norm.
    """
    if neighbours == ADD_REMOVE:
        return 1.0
    if neighbours == REPLACE_VALUES_PUBLIC_GRAPH:
        return math.sqrt(2) if semidefinite else 2.0
    raise InputError(
        f"Expected neighbours that differ in one user of a sum over users, got: {neighbours.relation}.",
        argument="neighbours",
    )


def in_words(neighbours: Neighbours, *, semidefinite: bool = False) -> str:
    """Describe the factor of `moved_by_user`, for the derivation of a sensitivity."""
    if moved_by_user(neighbours) == 1.0:
        return ""
    return (
        "; sqrt(2) for replaced values, both parts positive semidefinite" if semidefinite else "; 2 for replaced values"
    )
