"""The audit of a whole recommender on data that it was, or might be, fitted to: replay, and canary users.

The recommender is fitted again, with seeded noise and the settings in question. The result tests the code and the
settings on these data, not the noise that an earlier fit drew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.auditing.boundaries import Boundary, Sizes, small_blocks
from apportion.auditing.canaries import CanaryFinding, audit_one_run, with_canaries
from apportion.auditing.neighbour_files import UserFile
from apportion.auditing.own_items import audit_own_items
from apportion.auditing.replay import AuditError, Fit, audit
from apportion.auditing.replay_files import SECONDS, Load, replay_file
from apportion.auditing.statements import Check, check_statement
from apportion.data import Interactions
from apportion.engines import LocalEngine
from apportion.errors import InputError
from apportion.privacy import Budget, NoiseSource, SeededNoise, Session, Statement
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender
from apportion.recommend.clicks import LEARNED, ClickSettings
from apportion.recommend.model import ItemModel
from apportion.recommend.rating_settings import RatingSettings

Make = Callable[[], Any]
"""Makes a private recommender with the settings in question."""
_TOLERANCE, _GAP = 1e-6, 1e-6  # tolerance of replay, in float64
_OWN_CANARIES = 1000
_LEAST_CANARIES, _MOST_CANARIES = 200, 4000


@dataclass(frozen=True)
class AuditReport:
    """What was claimed, what was tested, and what was found.

    Attributes:
        name: the name of what was audited.
        claimed: its ε.
        delta: its δ.
        checks: every check, in order.
        lower_bound: a lower bound on ε from canaries; None if there were none.
        confidence: the confidence of that bound.
        tried: what was done, in words.
        crossed: the blocks of the code, and how the replays crossed each.
    """

    name: str
    claimed: float
    delta: float
    checks: tuple[Check, ...]
    lower_bound: float | None
    confidence: float
    tried: tuple[str, ...]
    crossed: tuple[Boundary, ...] = ()

    @property
    def violated(self) -> bool:
        """Whether any check failed."""
        return not all(check.passed for check in self.checks)


def audit_statement(name: str, statement: Statement) -> AuditReport:
    """Audit the claims of a statement."""
    checks = tuple(check_statement(statement))
    tried = ("the statement, recomputed",)
    return AuditReport(name, statement.epsilon, statement.delta, checks, None, 0.0, tried)


def audit_recommender(
    name: str,
    make: Make,
    data: Interactions,
    budget: Budget,
    *,
    users: int = 3,
    canaries: int | None = None,
    confidence: float = 0.999,
    seed: int = 0,
) -> AuditReport:
    """Replay without each of a few users, then search for canaries.

    Args:
        name: the name of what is audited.
        make: makes the recommender.
        data: the real users.
        budget: the claimed budget.
        users: number of users to leave out, one at a time: the one with the most rows, then random ones.
        canaries: number of canaries to add; None for half the number of users, from 200 to 4000; 0 for none.
        confidence: the confidence of the bound from canaries.
        seed: the seed of everything random.
    """
    rng, delta = np.random.default_rng(seed), budget.delta
    checks, tried, crossed = replayed(fit_of(make), data, users, budget, rng, seed)
    own = audit_own_items(make, data, budget, users, seed)
    if own is not None:
        checks.append(own)
        tried.append("users who have an item that nobody else has left out, and every file compared")
    if budget.keys_delta and canaries != 0:
        checks.append(_listed_canaries(make, data, budget, rng))
        tried.append(f"{_OWN_CANARIES} canary users put in, with an item of their own each: is any of these listed?")
        make, data = _with_fixed_list(make), data.with_public_tasks()
        budget = Budget(budget.epsilon, budget.noise_delta)
    result = _canaries(make, data, budget, canaries, confidence, rng)
    if result is not None:
        shown = f"epsilon is at least {result.lower_bound:.4g} at confidence {confidence:g}"
        checks.append(Check("canary users", not result.violated, shown))
        tried.append(result.tried)
    bound = None if result is None else result.lower_bound
    return AuditReport(name, budget.epsilon, delta, tuple(checks), bound, confidence, tuple(tried), tuple(crossed))


def audit_file(
    file: UserFile,
    load: Load,
    fit: Fit,
    budget: Budget,
    *,
    name: str = "",
    users: int = 3,
    seed: int = 0,
    seconds: float = SECONDS,
) -> AuditReport:
    """Replay a file without each of a few users: it is written, read and fitted again; see `replay_files`.

    Args:
        file: the file.
        load: reads it, or a file without a user, as the audited command does.
        fit: fits what it holds and returns what would be published.
        budget: the claimed budget.
        name: the name of what is fitted, if there are several.
        users: how many users to leave out, one at a time; half of them have the most rows.
        seed: the seed of everything random.
        seconds: how long new users are left out.
    """
    checks, tried = replay_file(file, load, fit, budget, users=users, seed=seed, seconds=seconds)
    called = f"{name}{': ' if name else ''}{file.path.name}, read again without a user"
    return AuditReport(called, budget.epsilon, budget.delta, tuple(checks), None, 0.0, tuple(tried))


def fit_of(make: Make) -> Fit:
    """Return what fits a recommender and returns everything that it publishes."""
    return lambda some, session: published(make().fit(some, session=session).model_)


def replayed(
    fit: Fit, data: Interactions, users: int, budget: Budget, rng: np.random.Generator, seed: int
) -> tuple[list[Check], list[str], list[Boundary]]:
    """Replay a fit without each of a few users, on blocks that the data cross.

    Returns the check, what was done in words, and how blocks were crossed; nothing is checked if there are no users.
    """
    chosen = _left_out(data, users, rng)
    with small_blocks(Sizes.of(data)) as crossed:
        checks = [_replayed(fit, data, chosen, budget, seed)] if len(chosen) else []
    left_out = f"{len(chosen)} users, one at a time, the one with the most rows first, were"
    left_out = left_out if len(chosen) > 1 else "the user with the most rows was"
    tried = [f"{left_out} left out, with every release replayed"] if len(chosen) else []
    return checks, tried, crossed


def _left_out(data: Interactions, users: int, rng: np.random.Generator) -> NDArray[Any]:
    """Return the user with the most rows, then random others."""
    sizes = np.diff(data.by_user.indptr)
    heaviest = int(np.argmax(sizes))
    others = np.flatnonzero((sizes > 0) & (np.arange(len(sizes)) != heaviest))
    chosen = rng.choice(others, size=max(min(users - 1, len(others)), 0), replace=False)
    return np.concatenate([[heaviest], chosen])[:users]


def recommender_of(model: ItemModel) -> Make:
    """Return a function that makes the recommender of a saved model again, with the same settings, in float64.

    Raises:
        InputError: if the model has no statement or came from another estimator.
    """
    if model.statement is None:
        raise InputError("Expected a model with a privacy statement, got one without.", argument="model")
    ratings = model.kind == "ratings"
    kind: Any = RatingSettings if ratings else ClickSettings
    settings = {name: value for name, value in model.settings.items() if name != LEARNED}
    if set(settings) != set(kind.__dataclass_fields__):
        raise InputError(
            "Expected a model of `apportion fit`; the settings of this one belong to another method.", argument="model"
        )
    arguments: dict[str, Any] = {
        "epsilon": model.statement.epsilon,
        "delta": model.statement.delta,
        "settings": kind(**settings),
        "n_users": model.statement.declared_users,
        "engine": LocalEngine(np.float64),
        "items": "private" if model.statement.keys_delta else None if model.task_ids.declared else "from-data",
    }
    if ratings:
        return lambda: PrivateRatingRecommender(value_range=model.value_range, **arguments)
    return lambda: PrivateClickRecommender(**arguments)


def published(model: ItemModel) -> dict[str, Any]:
    """Return everything that is published with a model, by name."""
    parts = {name: getattr(model.fold_in, name) for name in model.fold_in.__dataclass_fields__}
    choice = getattr(model, "choice", None)
    if choice is not None:
        parts |= {f"choice {name}": getattr(choice, name) for name in choice.__dataclass_fields__}
    parts |= {name: getattr(model, name) for name in ("vectors", "popularity", "reliability", "offset", "value_range")}
    return {**parts, "settings": model.settings, "tasks": list(model.task_ids), "statement": model.statement}


def _replayed(fit: Fit, data: Interactions, users: NDArray[Any], budget: Budget, seed: int) -> Check:
    worst, where = 0.0, ""
    for user in users.tolist():
        try:
            findings = audit(fit, data, user, {"budget": budget, "noise": SeededNoise(seed)})
        except AuditError as error:
            return Check("replay without a user", False, str(error))
        for result in findings:
            if result.gap > _GAP:
                return Check("replay without a user", False, f"{result.name!r} is not a sum over users")
            if result.ratio > worst:
                worst, where = result.ratio, result.name
    words = f"no release moved by more than its sensitivity; the largest move was {worst:.4g} of it, in {where!r}"
    if worst > 1 + _TOLERANCE:
        words = f"{where!r} moved by {worst:.4g} times its sensitivity"
    return Check("replay without a user", worst <= 1 + _TOLERANCE, words)


def _listed_canaries(make: Make, data: Interactions, budget: Budget, rng: np.random.Generator) -> Check:
    """Fit with canaries that have items of their own.

    A released list may contain such an item only with the probability that its part of δ allows.
    """

    def listed(some: Interactions, session: Session) -> set[str]:
        return set(map(str, make().fit(some, session=session).model_.task_ids))

    return own_canaries(listed, data, budget, _far_value(make(), data), rng, "items")


def own_canaries(
    listed: Callable[[Interactions, Session], set[str]],
    data: Interactions,
    budget: Budget,
    value: float,
    rng: np.random.Generator,
    what: str,
) -> Check:
    """Add canary users who have one item or key each that nobody else has, and count how many of these are listed.

    Args:
        listed: makes the list, as texts.
        data: the real users.
        budget: the claimed budget.
        value: of the canaries' rows.
        rng: chooses the seed of the noise.
        what: what the list is of.
    """
    added = with_canaries(data, _OWN_CANARIES, value)
    found = listed(added.data, Session(budget, noise=SeededNoise(int(rng.integers(2**31)))))
    own = sum(str(added.data.task_ids.id_of(int(task))) in found for task in added.tasks)
    words = f"the {what} of {own} of {_OWN_CANARIES} canary users, who have one each, are in the list"
    return Check(f"canary {what}", own <= 1, words)  # two are listed with a probability below (1000 delta)^2


def _with_fixed_list(make: Make) -> Make:
    """Return the same recommender with a public list, so that the model knows the canaries' items and scores them."""
    return lambda: make().set_params(items=None)


def _canaries(
    make: Make,
    data: Interactions,
    budget: Budget,
    canaries: int | None,
    confidence: float,
    rng: np.random.Generator,
) -> CanaryFinding | None:
    present = int((np.diff(data.by_user.indptr) > 0).sum())
    number = int(np.clip(present // 2, _LEAST_CANARIES, _MOST_CANARIES)) if canaries is None else canaries
    if not number:
        return None

    def fit(some: Interactions, noise: NoiseSource) -> ItemModel:
        model: ItemModel = make().fit(some, session=Session(budget, noise=noise)).model_
        return model

    value = _far_value(make(), data)
    return audit_one_run(
        fit, data, value=value, canaries=number, confidence=confidence, noise=SeededNoise(int(rng.integers(2**31))),
        rng=rng,
    )  # fmt: skip


def _far_value(estimator: Any, data: Interactions) -> float:
    """Return the end of the scale that is further from the mean; 1 for clicks."""
    low, high = getattr(estimator, "value_range", (1.0, 1.0))
    mean = float(data.values.mean(dtype=np.float64))
    return float(low if mean - low > high - mean else high)
