"""Which keys there are, under user-level differential privacy: words, queries, places that enough users hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, field
from typing import Any, Final, Self

import numpy as np
from numpy.typing import ArrayLike

from apportion.data.encoding import EncodedIds
from apportion.data.grouping import one_of
from apportion.data.groups import parts_of, rows_by_group
from apportion.errors import InputError
from apportion.estimators.constructors import with_constructor
from apportion.estimators.frames import is_frame
from apportion.estimators.private import EngineEstimator
from apportion.privacy import ADD_REMOVE, Budget, Session
from apportion.statistics.groups.columns import columns_of_groups
from apportion.statistics.groups.key_rounds import release_most_keys

KEYS_PART: Final = 0.5  # of δ, for the thresholds
_DEFAULTS: Final = (
    "library defaults: constants and functions of public and released quantities, developed on MovieLens 1M, Amazon "
    "Beauty, Penn Treebank and generated data; nothing was chosen by looking at these data, unless they are among those"
)


@with_constructor
class UserKeys(EngineEstimator):
    """A private list with as many keys as possible; the whole budget is for the list, and it has no counts.

    Where numbers of users are wanted too, `UserGroupBy("users")` releases both at once, with fewer keys.

    Args:
        delta: δ; half of it is for the thresholds.

    Attributes:
        keys_: the keys, in text order. A text each; a tuple where several columns make a key.
        first_: how many of them the first of two rounds listed.
        statement_: the privacy statement.

    Privacy: adding or removing one user with all rows. A key that one user alone holds is listed with a probability of
    at most δ/2, whatever the user does (docs/proofs/key_rounds.md).

    Example:
        >>> rng = np.random.default_rng(0)
        >>> users, words = np.arange(30_000) % 3000, rng.choice(["hello", "world"], 30_000)
        >>> UserKeys(epsilon=1.0).fit(users=users, by=words).keys_
        ('hello', 'world')
    """

    epsilon: float = 1.0
    delta: float = 1e-6
    _: KW_ONLY

    keys_: tuple[Any, ...] = field(init=False)
    first_: int = field(init=False)

    def fit(
        self,
        X: Any = None,  # noqa: N803
        y: object = None,
        *,
        users: ArrayLike | EncodedIds | None = None,
        by: ArrayLike | EncodedIds | Sequence[ArrayLike | EncodedIds] | Mapping[str, ArrayLike] = (),
        groups: ArrayLike | None = None,
        session: Session | None = None,
    ) -> Self:
        """Spend the budget on the list of keys; afterwards everything that ends in _ may be released.

        Args:
            X: ignored, for compatibility.
            y: ignored, for compatibility.
            users: whose row it is, integers or text.
            by: the key of each row; several columns as a list or mapping of columns.
            groups: the same as `users`, for tools of scikit-learn that pass this word; give one of the two.
            session: brings its own budget, noise and window; those of the estimator are then not used.
        """
        if is_frame(X):
            raise InputError(
                "UserKeys takes columns in memory, not a frame of a cluster, because its second round looks up hidden "
                'counts of the first; UserGroupBy("users") lists keys on a cluster in one round.',
                argument="X",
            )
        columns = columns_of_groups(by)
        if not columns:
            raise InputError("Expected a column of keys, got none.", argument="by")
        owners = users if isinstance(users, EncodedIds) else one_of(users, groups)
        n_rows = len(owners.codes) if isinstance(owners, EncodedIds) else len(np.asarray(owners))
        opened = self._opened(session)
        found = release_most_keys(rows_by_group(owners, columns, n_rows), opened, self._adder)
        names = [parts_of(text, len(columns)) for text in found.texts]
        self.keys_ = tuple(name[0] if len(columns) == 1 else name for name in names)
        self.first_ = found.first
        self.statement_ = opened.statement()
        return self

    def _opened(self, given: Session | None) -> Session:
        if given is None and not self.delta > 0:
            problem = f"Expected a delta above 0, because a list of keys needs one, got {self.delta}."
            raise InputError(problem, argument="delta")
        session = self._open(given, Budget(self.epsilon, self.delta, KEYS_PART * self.delta), ADD_REMOVE, ())
        if not 0 < session.budget.keys_delta < session.budget.delta:
            raise InputError(
                "A list of keys takes a part of delta and leaves the rest to noise; open the session with "
                f"Budget(epsilon, delta, keys_delta), got keys_delta={session.budget.keys_delta}.",
                argument="session",
            )
        return session

    def _words_on_defaults(self) -> str:
        return _DEFAULTS
