"""Which two data sets a guarantee compares: the unit that is protected, and how neighbours differ.

A sum states its sensitivity for one relation, a session promises one, and a session releases only sums that state
theirs for the same (`Session`). A weaker relation is never read as a stronger one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Neighbours:
    """A neighbour relation in words, as the statement has them.

    Attributes:
        unit: whose data is protected, and what of it.
        relation: how two neighbouring data sets differ.
    """

    unit: str
    relation: str


ADD_REMOVE = Neighbours("user: all rows of one user", "add or remove one user")
ADD_REMOVE_EXAMPLE = Neighbours("example: one row; a user with several rows is protected less", "add or remove one row")
REPLACE_VALUES = Neighbours(
    "user: the contents of all rows of one user",
    "replace the contents of one user's rows; which rows belong to one user, and so how many rows each has, is public",
)
REPLACE_LABELS = Neighbours(
    "user: the labels of all rows of one user",
    "replace the labels of one user's rows; all features, and which rows belong to one user, are public",
)
ADD_REMOVE_TASK = Neighbours(
    "task: all rows and the model of one party, against everybody else's view (joint differential privacy)",
    "add or remove one task: all rows of one party",
)
REPLACE_TASK = Neighbours(
    "task: all rows and the model of one party, against everybody else's view (joint differential privacy)",
    "replace one task: all rows of one party; the number of tasks is public",
)
