"""Learning together with parties on other machines: each party keeps its rows, and the curator is a server.

Every round is one pass of an engine over the parties (`PartySide.parts`). The server releases the sum and sends its
answer to all. In the end each party learns from the released answers, on its own machine (docs/proofs/parties.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from apportion.data.numbers import finite_column, finite_matrix
from apportion.data.users import UserParts, Users
from apportion.engines import Engine, add_up_one
from apportion.errors import InputError
from apportion.parties.curator import Answer, Released
from apportion.parties.estimator import ProtectedMultiTask
from apportion.parties.parties import Party
from apportion.parties.side import PartySide
from apportion.parties.tasks import TaskRows, rows_of_lists
from apportion.privacy import Session, Statement

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class SharedLearning:
    """What parties learned together. All of it was released, so it may be sent to anybody.

    Attributes:
        side: the settings by which a party learns.
        released: the released numbers of each round.
        statement: the privacy statement of the releases.
    """

    side: PartySide
    released: tuple[Released, ...]
    statement: Statement

    @property
    def answers(self) -> tuple[Answer, ...]:
        """What the curator sent after each round."""
        return tuple(each.answer for each in self.released)

    def learned(self, X: Any, y: Any, task: int | str = "own") -> Party:  # noqa: N803
        """Learn from the answers with the rows of one party, on its own machine; see `PartySide.learned`."""
        return self.side.learned(self.answers, X, y, task)


def learn_elsewhere(
    estimator: ProtectedMultiTask,
    engine: Engine,
    parties: UserParts,
    *,
    session: Session | None = None,
    progress: Progress | None = None,
) -> SharedLearning:
    """Run all rounds of an estimator over parties that an engine reaches.

    Args:
        estimator: has the settings of the fit and the number of parties, which is public (`n_tasks`).
        engine: adds up over parties; see `FederatedEngine` and `NoisyClientsEngine`.
        parties: the parties, each one user: `parties_of` in memory, or `UsersElsewhere` with the number of features.
        session: a session with its own budget, noise and window, which replace those of the estimator.
        progress: called with the kind of step, the number done and the total.

    Example:
        >>> from apportion.federated import FederatedEngine, Trust
        >>> from apportion.privacy.neighbours import ADD_REMOVE_TASK
        >>> rng = np.random.default_rng(0)
        >>> x = [rng.standard_normal((10, 3)) for _ in range(12)]
        >>> y = [rows @ np.ones(3) for rows in x]
        >>> wanted = ProtectedMultiTask(epsilon=3.0, n_tasks=12, neighbours=ADD_REMOVE_TASK)
        >>> found = learn_elsewhere(wanted, FederatedEngine(Trust(12)), parties_of(x, y))
        >>> found.learned(x[0], y[0]).model.shape  # at home
        (3,)
    """
    _refuse_at_home_only(estimator)
    estimator.check()
    opened = estimator.opened(session, parties.n_tasks, estimator.n_tasks)
    curator = estimator.curator(opened, parties.n_tasks, estimator.n_tasks)
    side, answers = estimator.side(curator.form.weights), list[Answer]()
    n_rounds = curator.n_rounds
    for number in range(1, n_rounds + 1):
        total = add_up_one(engine, parties, side.parts(tuple(answers), curator.form))
        answers.append(curator.answer_to(total))
        if progress is not None:
            progress("round", number, n_rounds)
    return SharedLearning(side, tuple(curator.rounds), opened.statement())


def parties_of(X: Any, y: Any) -> Users:  # noqa: N803
    """Return parties in memory for an engine, from one matrix and one label column each.

    A client of a federation holds one of them: `parties_of([X], [y])`.
    """
    matrices = [finite_matrix(each, "X") for each in X]
    labels = [finite_column(each, "y", len(rows)) for each, rows in zip(y, matrices, strict=True)]
    rows: TaskRows = rows_of_lists(matrices, labels)
    keys = np.stack([np.arange(rows.n_tasks, dtype=np.uint64), np.zeros(rows.n_tasks, np.uint64)], axis=1)
    columns = {"features": rows.features, "labels": rows.labels}
    return Users(rows.indptr, columns, n_tasks=rows.dimension, keys=keys)


def _refuse_at_home_only(estimator: ProtectedMultiTask) -> None:
    """Refuse settings that have no form for parties on other machines."""
    at_home = {
        "n_tasks": (estimator.n_tasks is None, "a declared number of parties, n_tasks"),
        "instance_epsilon": (estimator.instance_epsilon is not None, "no instance_epsilon"),
        "feature_mask": (estimator.feature_mask is not None, "no feature_mask"),
        "release": (not estimator.release.on_lattice, "Gaussian noise"),
    }
    for name, (refused, wanted) in at_home.items():
        if refused:
            raise InputError(
                f"Expected {wanted} where parties are somewhere else, got {getattr(estimator, name)!r}.", argument=name
            )
