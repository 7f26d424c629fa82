"""What private estimators share: how a fit opens its session, and what its statement says was public."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from apportion.data import Interactions
from apportion.engines import Engine, LocalEngine
from apportion.errors import InputError
from apportion.estimators.base import Estimator
from apportion.privacy import Budget, NoiseSource, Session
from apportion.privacy.session import DEFAULTS

BY_HAND = "declared: some settings were given by hand; whatever data they were chosen on is not covered"


class PrivateEstimator(Estimator):
    """The arguments that every private estimator has, and the session they open."""

    epsilon: float
    delta: float
    n_users: int | None
    dimension: int | None
    rounds: int | None
    settings: Any
    public: Sequence[str]
    window: str
    tuning: str | None
    noise: NoiseSource | None
    engine: Engine | None

    def _budget(self) -> Budget:
        if self.n_users is not None and self.n_users < 1:
            raise InputError(f"Expected a declared number of users of at least 1, got {self.n_users}.")
        return Budget(self.epsilon, self.delta)

    def _chosen_settings(self, default: Callable[[float], Any]) -> Any:
        """The given settings, or the default of this budget, with a dimension or rounds given by hand."""
        chosen = self.settings or default(self._budget().mu)
        by_hand = {"dimension": self.dimension, "rounds": self.rounds}
        for name, value in by_hand.items():
            if value is not None and value < 1:
                raise InputError(f"Expected {name} of at least 1, got {value}.")
        return replace(chosen, **{name: value for name, value in by_hand.items() if value is not None})

    def _declared(self, given: Session | None, data: Interactions, further_public: list[str]) -> Session:
        """The session of this fit, which knows what the fit assumes public and how its settings were chosen."""
        session = given or Session(self._budget(), noise=self.noise, window=self.window)
        session.assume_public(_about_tasks(data))
        if self.n_users is not None:
            session.assume_public(f"the number of users, declared as {self.n_users}")
        for sentence in (*further_public, *self.public):
            session.assume_public(sentence)
        by_hand = any(value is not None for value in (self.settings, self.dimension, self.rounds))
        session.declare_tuning(self.tuning or (BY_HAND if by_hand else DEFAULTS))
        return session

    def _engine_or(self, default: LocalEngine) -> Engine:
        return self.engine or default


def _about_tasks(data: Interactions) -> str:
    if data.task_ids.declared:
        return f"the list of {data.n_tasks} tasks, as given"
    return f"the list of {data.n_tasks} tasks, taken from the data itself, so that which tasks occur is revealed"
