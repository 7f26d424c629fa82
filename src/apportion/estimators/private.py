"""What private estimators share: how a fit opens its session, and what its statement says was public."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, field, replace
from typing import Any, ClassVar

import numpy as np

from apportion.data import Interactions
from apportion.data.user_data import UserData
from apportion.engines import Engine, LocalEngine, SparkEngine
from apportion.errors import InputError
from apportion.estimators.base import Estimator, defaults_of
from apportion.estimators.constructors import with_constructor
from apportion.privacy import ADD_REMOVE, Budget, Neighbours, NoiseSource, Session
from apportion.privacy.statement import DEFAULTS, Statement, Tuning

OWN_ITEMS = "who holds an item that nobody else holds"
BY_HAND = "declared: some settings were given by hand; the data they were chosen on is not covered"
_LARGEST_VALUE = 1e12
_NARROWEST = 1e-12  # a range of values, by itself and as a part of its larger end: beyond, arithmetic loses its digits
_NARROWEST_RATINGS = 1e-5  # the same as a part of the larger end, for values that are held in float32
_MOST = {"dimension": 10_000, "rounds": 200}  # with larger values, shares of the budget underflow or a fit never ends
_NOT_SETTINGS = {
    "epsilon", "delta", "n_users", "kind", "value_range", "rank_by", "features", "public", "rules", "window", "tuning",
    "noise", "engine", "random_state", "variance", "correlation", "sizes", "level", "quantiles", "base", "base_mass",
    "label_range", "noise_variance", "target", "fit_intercept", "loss", "interval_for", "of", "weights", "items",
    "simultaneous", "max_size", "step", "candidates", "floor", "statistics", "keys", "bins", "shrink",
    "law", "n_components",
}  # fmt: skip


class BudgetedEstimator(Estimator):
    """An estimator with a budget. Each estimator decides where ε stands among its arguments."""

    epsilon: float


@with_constructor
class PrivateEstimator(BudgetedEstimator):
    """The arguments that every private estimator has, and the session they open.

    Args:
        epsilon: ε of the whole fit.
        delta: δ of the whole fit.
        public: further sentences for the statement about what is assumed public.
        rules: public rules by which rows were kept or joined, each within one user's rows, for the statement.
        window: the time span of the data, for the statement.
        tuning: how settings were chosen, for the statement, if any were given.
        noise: `"secure"` (default, from the operating system), `"exact"` (exact arithmetic as well), or a source.
    """

    _: KW_ONLY
    public: Sequence[str] = ()
    rules: Sequence[str] = ()
    window: str = "not declared"
    tuning: str | None = None
    noise: NoiseSource | str | None = None

    statement_: Statement = field(init=False)

    def _open(self, given: Session | None, budget: Budget, neighbours: Neighbours, public: Sequence[str]) -> Session:
        """Return the session of this fit, with its public assumptions and how its settings were chosen."""
        session = given or Session(budget, noise=self.noise, window=self.window, neighbours=neighbours)
        if session.neighbours != neighbours:
            raise InputError(
                f"The neighbours of the session are {session.neighbours.relation!r}, those of this "
                f"estimator {neighbours.relation!r}; open a session for the same neighbours.",
                argument="session",
            )
        for sentence in (*public, *self.public):
            session.assume_public(sentence)
        for rule in self.rules:
            session.assume_public(rule, of_rows=True)
        if self.tuning or self._given_by_hand():
            session.declare_tuning(self.tuning or BY_HAND)
        else:
            session.declare_tuning(self._words_on_defaults(), Tuning.DEFAULTS)
        return session

    def _words_on_defaults(self) -> str:
        """Say how the defaults were chosen, for the statement."""
        return DEFAULTS

    def _given_by_hand(self) -> bool:
        """Whether any setting differs from the constructor's default."""
        return any(
            getattr(self, name) != default for name, default in defaults_of(self).items() if name not in _NOT_SETTINGS
        )


@with_constructor
class EngineEstimator(PrivateEstimator):
    """A private estimator whose sums an engine forms.

    Args:
        engine: where sums are formed; None for this machine's processors.
    """

    _: KW_ONLY
    engine: Engine | None = None

    @property
    def _adder(self) -> Engine:
        """The engine of this fit; by default one in double precision."""
        return LocalEngine(np.float64) if self.engine is None else self.engine


class InteractionsEstimator(EngineEstimator):
    """A private estimator of users and tasks. Neighbours add or remove a user, unless the allocation has other ones.

    Args:
        n_users: the number of users, declared public; None to release it with noise.
    """

    delta: float
    n_users: int | None
    _tasks_are: ClassVar[str] = "items"
    """What the statement calls the tasks."""

    def _read(self, data: Any) -> AbstractContextManager[Any]:
        """Return the data of a fit. The engine reads a frame of its cluster, and frees it after the fit."""
        is_frame = hasattr(data, "mapInArrow")
        if is_frame and not isinstance(self.engine, SparkEngine):
            raise InputError("A Spark frame needs an engine on its cluster: SparkEngine(spark).", argument="engine")
        if is_frame and isinstance(self.engine, SparkEngine):
            return self.engine.read(data)
        return nullcontext(data if hasattr(data, "as_users") else Interactions.from_frame(data))

    def _budget(self) -> Budget:
        if self.n_users is not None and not (self.n_users >= 1 and float(self.n_users).is_integer()):
            problem = f"Expected a whole declared number of users, of at least 1, got {self.n_users!r}."
            raise InputError(problem, argument="n_users")
        return Budget(self.epsilon, self.delta)

    def _declared(self, given: Session | None, data: UserData, further_public: list[str]) -> Session:
        """Return the session of this fit, with its statements about tasks and the number of users."""
        public = [_words_on_tasks(data, self._tasks_are), *further_public]
        session = self._open(given, self._budget(), self._neighbours, public)
        if not data.task_ids.declared:
            session.declare_unprotected(OWN_ITEMS)
        if self.n_users is not None:
            session.declare_users(self.n_users)
        return session

    @property
    def _neighbours(self) -> Neighbours:
        """Return the neighbour relation of the allocation's weights, if there is an allocation."""
        result: Neighbours = getattr(getattr(self, "allocation", None), "neighbours", ADD_REMOVE)
        return result

    def _engine_or(self, default: LocalEngine, session: Session) -> Engine:
        """Return the engine of this fit; the default one forms exact sums if the session needs them."""
        if not session.exact or (self.engine is None and default.exact):
            return self.engine or default
        if self.engine is None:
            return LocalEngine(default.dtype, default.threads, default.chunk, exact=True)
        if not getattr(self.engine, "exact", False):
            raise InputError("Exact noise needs an engine for exact sums, LocalEngine(exact=True).", argument="engine")
        return self.engine


class SettingsEstimator(InteractionsEstimator):
    """A private estimator whose settings come as one object, with a default for each budget."""

    dimension: int | None
    rounds: int | None
    settings: Any

    def _chosen_settings(self, default: Callable[[float], Any]) -> Any:
        """Return the given settings, or the default of this budget with a dimension or rounds given by hand."""
        chosen = default(self._budget().mu)
        if self.settings is not None and not isinstance(self.settings, type(chosen)):
            problem = f"Expected settings as {type(chosen).__name__}, got {self.settings!r}."
            raise InputError(problem, argument="settings")
        chosen = self.settings or chosen
        by_hand = {"dimension": self.dimension, "rounds": self.rounds}
        check_lengths(by_hand)
        chosen = replace(chosen, **{name: value for name, value in by_hand.items() if value is not None})
        check_lengths({name: getattr(chosen, name) for name in by_hand}, least=0)
        return chosen


def check_lengths(lengths: Mapping[str, int | None], least: int = 1) -> None:
    """Refuse a dimension or a number of rounds that no fit takes; None stands for a default."""
    for name, value in lengths.items():
        if value is not None and value < least:
            raise InputError(f"Expected {name} of at least {least}, got {value}.", argument=name)
        if value is not None and value > _MOST[name]:
            raise InputError(f"Expected {name} of at most {_MOST[name]}, got {value}.", argument=name)


def check_value_range(value_range: tuple[float, float]) -> None:
    """Refuse a scale of values that is empty, or so wide that arithmetic could fail."""
    low, high = value_range
    largest = max(abs(low), abs(high))
    if not (low < high and largest <= _LARGEST_VALUE):
        problem = f"Expected a value range with low < high, within ±{_LARGEST_VALUE:g}, got ({low}, {high})."
        raise InputError(problem, argument="value_range")
    refuse_narrow(low, high)


def check_rating_scale(scale: tuple[float, float]) -> None:
    """Refuse a scale of ratings as `check_value_range` does, and one that float32, which holds them, cannot divide."""
    check_value_range(scale)
    low, high = scale
    if high - low < _NARROWEST_RATINGS * max(abs(low), abs(high)):
        problem = (
            f"Expected a value range that float32 can divide finely, got ({low}, {high}); shift or scale the values."
        )
        raise InputError(problem, argument="value_range")


def refuse_narrow(low: float, high: float) -> None:
    """Refuse a range of values so narrow that arithmetic could fail, before anything is spent."""
    if not float(high) - float(low) >= _NARROWEST * max(1.0, abs(low), abs(high)):
        raise InputError(
            f"Expected a value range at least {_NARROWEST:g} wide, and not narrower than {_NARROWEST:g} of its larger "
            f"end, got ({low}, {high}); give the values in another unit.",
            argument="value_range",
        )


def _words_on_tasks(data: UserData, name: str) -> str:
    if data.task_ids.declared:
        return f"the list of {data.n_tasks} {name}, as given"
    return f"the list of {data.n_tasks} {name}, taken from the data itself, which reveals which {name} occur"
