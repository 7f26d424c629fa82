"""Which two data sets a guarantee compares: the unit that is protected, and how neighbours differ.

A sum states its sensitivity for one relation, a session promises one, and a session releases only sums that state
theirs for the same (`Session`). A weaker relation is never read as a stronger one.

What is stored names a relation by its key. The sentences are for readers and may be improved.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Neighbours:
    """A neighbour relation: a key to know it by, and the words that a statement has for it.

    Attributes:
        key: its name for programs, as statements, cards and ledgers store it; no two relations have the same.
        unit: whose data is protected, and what of it.
        relation: how two neighbouring data sets differ.
        one: the unit in one word.
    """

    key: str
    unit: str
    relation: str
    one: str = field(default="user", compare=False)


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
)
REPLACE_LABELS = Neighbours(
    "replace-labels",
    "user: the labels of all rows of one user",
    "replace the labels of one user's rows; all features, and which rows belong to one user, are public",
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
        REPLACE_LABELS,
        REPLACE_TASK,
    )
}


def relation_of(key: str, unit: str, relation: str) -> Neighbours:
    """A stored relation: the library's own by its key, or one of somebody else's in its own words."""
    return RELATIONS.get(key, Neighbours(key, unit, relation))
