"""Settings chosen by private selection: a search that is paid for, unlike everything else in this package.

Users are assigned to a training part and a validation part by a hash of their ids. One try draws settings from a grid,
fits on the training part, and releases one noisy score from the validation part. Each user is in only one part, so a
try costs the larger of the two costs, which are equal. The number of tries is random, and only the try with the best
noisy score is published (docs/proofs/selection.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from apportion.data import Interactions
from apportion.data.user_keys import sampling_keys
from apportion.data.users import Users
from apportion.engines import LocalEngine, add_up_one
from apportion.errors import InputError
from apportion.evaluation.validation_scores import SCORES
from apportion.privacy import ADD_REMOVE, Account, Budget, NoiseSource, Purpose, Rows, Session, Statement, SystemNoise
from apportion.privacy.contributions import Kernels, UserTotal
from apportion.privacy.ledger import Receipt, SelectionRun
from apportion.privacy.sampling import poisson_sample
from apportion.privacy.selection import SelectionCost, Tries, calibrate
from apportion.privacy.statement import LedgerReference, Tuning
from apportion.recommend.model import ItemModel

__all__ = ["Tuned", "tune"]

Settings = Mapping[str, Any]
Make = Callable[[Settings, Budget], Any]
"""Makes an unfitted estimator from settings, for one try's budget."""

_SPLIT: Final = b"apportion: tune divides users by"  # public: a user's part follows from the id alone
_COUNT_SCALE: Final = 0.1  # the number of users is only needed to show a mean, so it gets little of the release
_LEAST_USERS: Final = 10.0


@dataclass(frozen=True)
class Parts:
    """The users of one data set, each in one part."""

    training: Interactions
    validation: Interactions


@dataclass(frozen=True)
class Tuned:
    """The winner, and the cost of the search. It says nothing about the losers or their number.

    Attributes:
        model: the model of the best try; its statement covers the whole search.
        chosen: its settings.
        cost: the cost of one try and of the whole search.
        grid: the values from which settings were drawn.
        score_name: what the score measures.
        score: the winner's score as released: a noisy mean over validation users.
        score_noise: the approximate standard deviation of its noise.
    """

    model: ItemModel
    chosen: dict[str, Any]
    cost: SelectionCost
    grid: dict[str, tuple[Any, ...]]
    score_name: str
    score: float
    score_noise: float

    @property
    def selection(self) -> dict[str, Any]:
        """What the privacy card shows about the selection."""
        cost, tries = self.cost, self.cost.tries
        return {
            "epsilon": cost.epsilon,
            "delta": cost.delta,
            "order": cost.order,
            "tries": {"law": tries.law, "mean": tries.mean, "gamma": tries.gamma, "eta": tries.eta},
            "one_try": {"epsilon": cost.one_try.epsilon, "mu": cost.one_try.mu},
            "grid": {name: list(values) for name, values in self.grid.items()},
            "chosen": dict(self.chosen),
            "score": {"name": self.score_name, "value": self.score, "noise_stddev": self.score_noise},
        }


@dataclass(frozen=True)
class _Try:
    """One try. All of it is released only to the selection."""

    settings: dict[str, Any]
    model: ItemModel
    total: float
    n_users: float
    noise: float
    statement: Statement


def tune(
    data: Interactions,
    make: Make,
    grid: Mapping[str, Sequence[Any]],
    budget: Budget,
    *,
    tries: Tries | None = None,
    validation: float = 0.2,
    noise: NoiseSource | None = None,
    window: str = "not declared",
    ledger: Account | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Tuned:
    """Search a grid of settings under one budget, and return the best model by noisy validation score.

    Args:
        data: the observations.
        make: makes the estimator of a try; settings that are not in the grid keep their defaults.
        grid: values of each setting; a try draws each at random.
        budget: the budget for everything: all fits, all scores and the choice.
        tries: the distribution of the number of tries; None for a mean equal to the number of combinations in the grid.
        validation: probability that a user is in the validation part.
        noise: the noise source; None for the operating system's.
        window: the time span of the data, for the statement.
        ledger: an account of kind 'renyi', charged for all tries together before the first.
        progress: called with each finished try; only for people who may see the data, because the number of tries is
            secret.

    Privacy: (ε, δ)-DP for adding or removing one user with all rows, for everything in the result.
    """
    places = _checked(grid, validation)
    cost = calibrate(budget, tries or Tries(max(2.0, math.prod(map(len, places.values())))))
    noise = noise or SystemNoise()
    if getattr(noise, "exact", False):
        raise InputError(
            "Expected noise without exact arithmetic, because scores of users have no exact form in a search.",
            argument="noise",
        )
    receipt = None if ledger is None else _charged(ledger, cost)
    parts = divide(data, validation)
    best: _Try | None = None
    n_tries = cost.tries.draw(noise)
    for number in range(n_tries):
        if progress:
            progress("fit", number, n_tries)
        made = _one_try(parts, make, _drawn(places, noise), cost.one_try, noise, window)
        if best is None or made.total > best.total:
            best = made
    if progress:
        progress("fit", n_tries, n_tries)
    assert best is not None
    result = _winner(best, cost, places, validation, budget)
    if receipt is not None and result.model.statement is not None:
        charged = LedgerReference(receipt.account, receipt.run, 1, receipt.number, receipt.hash)
        result.model.statement = replace(result.model.statement, ledger=charged)
    return result


def _charged(ledger: Account, cost: SelectionCost) -> Receipt:
    """Charge an account for a whole selection; it refuses if too little is left."""
    if ledger.neighbours != ADD_REMOVE:
        got = ledger.neighbours.relation
        raise InputError(
            f"Expected an account for the neighbours {ADD_REMOVE.relation!r}, got one for {got!r}.", argument="ledger"
        )
    return ledger.charge("private selection", SelectionRun(cost.one_try.mu, cost.tries.mean, cost.tries.law))


def divide(data: Interactions, validation: float) -> Parts:
    """Assign each user to a part by a hash of the user's id, so that the part does not depend on other users."""
    held = poisson_sample(sampling_keys(data.user_ids), _SPLIT, validation)
    return Parts(data.select_users(~held), data.select_users(held))


@dataclass(frozen=True)
class _Scores:
    """The score of every user and a count of scored users; clipped."""

    norm: float

    def __call__(self, users: Users, kernels: Kernels) -> Rows:
        return Rows.clipped(users.of_user("scores"), self.norm)


def _one_try(
    parts: Parts, make: Make, settings: dict[str, Any], budget: Budget, noise: NoiseSource, window: str
) -> _Try:
    """Fit on one part of the users and score on the other. Each part pays the whole budget of a try once."""
    training = Session(budget, noise=noise, window=window)
    model: ItemModel = make(settings, budget).fit(parts.training, session=training).model_
    checking = Session(budget, noise=noise, window=window)
    score = SCORES.get(model.kind)
    if score is None:
        raise InputError(
            f"Expected a recommender of ratings or clicks, got one with a model of kind {model.kind!r}.",
            argument="make",
        )
    each = score.of_users(model, parts.validation)
    scored = np.isfinite(each)
    rows = np.stack([np.where(scored, each, 0.0), _COUNT_SCALE * scored], axis=1)
    users = parts.validation.as_users.with_user_columns(scores=rows)
    statistic = add_up_one(LocalEngine(), users, UserTotal(_Scores(math.hypot(1.0, _COUNT_SCALE))))
    share = checking.plan(score=1.0).one("score")
    released: NDArray[np.float64] = checking.release(Purpose.VALIDATION_SCORE, statistic, share)
    stddev = statistic.l2_sensitivity / share.mu
    counted = max(float(released[1]) / _COUNT_SCALE, _LEAST_USERS)
    return _Try(settings, model, float(released[0]), counted, stddev, _joined(training, checking))


def _joined(training: Session, checking: Session) -> Statement:
    """Combine the releases of a try, with nominal shares: half for each part of the users."""
    fitted, scored = training.statement(), checking.statement()
    releases = [replace(each, share=each.share / 2) for each in (*fitted.releases, *scored.releases)]
    return replace(fitted, releases=tuple(releases))


def _winner(
    best: _Try, cost: SelectionCost, grid: dict[str, tuple[Any, ...]], validation: float, budget: Budget
) -> Tuned:
    score = SCORES[best.model.kind]
    best.model.statement = replace(
        best.statement,
        epsilon=budget.epsilon,
        delta=budget.delta,
        spent_epsilon=cost.epsilon,
        spent_mu=None,
        public=(
            *best.statement.public,
            "the values from which settings were drawn, and the distribution of the number of tries",
            f"that each user is in the validation part with probability {validation:g}, by a hash of the id",
        ),
        tuning=_words(best, cost, grid),
        tuning_kind=Tuning.SELECTION,
    )
    return Tuned(
        model=best.model,
        chosen=best.settings,
        cost=cost,
        grid=grid,
        score_name=score.name,
        score=score.shown(best.total / best.n_users, best.model),
        score_noise=score.shown_noise(best.noise / best.n_users, best.model),
    )


def _words(best: _Try, cost: SelectionCost, grid: Mapping[str, Sequence[Any]]) -> str:
    """Describe the choice for the statement."""
    listed = ", ".join(f"{name} in {{{', '.join(map(str, values))}}}" for name, values in grid.items())
    result = ", ".join(f"{name} = {value}" for name, value in best.settings.items())
    return (
        f"settings chosen by private selection among {listed}, and paid for: the guarantee covers "
        f"all tries and the choice; chosen: {result}; number of tries: {cost.tries.law}, "
        f"{cost.tries.mean:g} on average, each with epsilon {cost.one_try.epsilon:.4g} at the same "
        f"delta; in total epsilon {cost.epsilon:.4g}, by Rényi order {cost.order:.4g}; all other "
        "settings are library defaults; shares are nominal: training and validation users each "
        "pay one try's whole budget"
    )


def _drawn(grid: Mapping[str, Sequence[Any]], noise: NoiseSource) -> dict[str, Any]:
    """Draw settings uniformly at random, whatever the data."""
    places = noise.uniform(len(grid))
    return {name: values[int(u * len(values))] for (name, values), u in zip(grid.items(), places, strict=True)}


def _checked(grid: Mapping[str, Sequence[Any]], validation: float) -> dict[str, tuple[Any, ...]]:
    if not grid or not all(grid.values()):
        raise InputError(
            f"Expected at least one setting, each with at least one value, got {dict(grid)}.", argument="grid"
        )
    if not 0.01 <= validation <= 0.5:
        raise InputError(
            f"Expected a validation part of 0.01 to 0.5 of the users, got {validation:g}.", argument="validation"
        )
    return {name: tuple(values) for name, values in grid.items()}
