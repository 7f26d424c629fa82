"""Pasts that honest noise never makes: released values of up to 1e30 standard deviations, of either sign.

Privacy is for every past, so that a fit must take the same way on neighbours whatever was released before: no refusal,
no crash, no number that is none.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from apportion import linalg
from apportion.auditing.replay import RecordingSession, _replayed
from apportion.data import Interactions, ItemFeatures
from apportion.engines import LocalEngine
from apportion.linalg import rating_reference
from apportion.linalg.fixed_sums import Runs
from apportion.privacy import Budget, SeededNoise
from apportion.privacy.contributions import step_of
from apportion.recommend.clicks import ClickSettings
from apportion.regression import UserERM
from apportion.statistics import UserGroupBy, UserMean, UserPCA

from private_estimators import PRIVATE_ESTIMATORS, clicks, published, ratings
from strategies import random_interactions

SIZES = (1e6, 1e12, 1e30)
PATTERNS = {
    "random signs": lambda rng, shape: np.where(rng.random(shape) < 0.5, -1.0, 1.0),
    "all up": lambda rng, shape: np.ones(shape),
    "all down": lambda rng, shape: -np.ones(shape),
    "one entry": lambda rng, shape: 1.0 * (np.arange(np.prod(shape, dtype=int)).reshape(shape) == 0),
    "normal": lambda rng, shape: rng.standard_normal(shape),
}
DATA = random_interactions(3)


class AbsurdSession(RecordingSession):
    """Releases values that are off by `size` standard deviations: all of them, or those of one release."""

    def __init__(self, pattern, size, only, **arguments):
        super().__init__(**arguments)
        self._pattern, self._size, self._only = PATTERNS[pattern], size, only

    def _draw(self, pending):
        released, number = super()._draw(pending), len(self.records) - 1
        if self._only not in (None, number):
            return released
        noise = self._pattern(np.random.default_rng(number), released.shape)
        absurd = released + self._size * pending.release.stddev * noise
        self.records[-1] = replace(self.records[-1], released=absurd.copy())
        return absurd


def items():
    """Public features of the tasks of `DATA`."""
    columns = {"item": np.arange(DATA.n_tasks), "genre": [f"g{k % 3}" for k in range(DATA.n_tasks)]}
    return ItemFeatures.from_frame(pa.table(columns))


def fit(make, data, session):
    return published(make().fit(data, session=session).model_)


def by_group(data, session):
    """Every statistic of tasks as groups; a quantile has no noise of its own."""
    names = ("count", "users", "sum", "mean", "variance", "histogram", "quantile")
    made = UserGroupBy(names, value_range=(1, 5), keys=list(range(DATA.n_tasks)))
    found = made.fit(data.values, users=data.user_ids.ids_of(data.users), by=data.tasks, session=session)
    kinds = {"estimate": found.estimates_, "interval": found.intervals_, "together": found.simultaneous_}
    return {f"{kind} of {name}": each[name] for kind, each in kinds.items() for name in names}


def by_group_with_laplace(data, session):
    """Some of them with the other noise, every user counting one."""
    given = {"value_range": (1, 5), "keys": list(range(DATA.n_tasks)), "of": "users", "law": "laplace"}
    made = UserGroupBy(("mean", "variance", "histogram"), **given, shrink=False)
    found = made.fit(data.values, users=data.user_ids.ids_of(data.users), by=data.tasks, session=session)
    both = {"estimate": found.estimates_, "interval": found.intervals_}
    return {f"{kind} of {name}": each for kind, held in both.items() for name, each in held.items()}


def components(data, session):
    rows = np.stack([np.cos(data.tasks), (data.values - 3) / 2], axis=1)
    found = UserPCA(value_range=(-1, 1)).fit(rows, users=data.user_ids.ids_of(data.users), session=session)
    parts = ("covariance_", "mean_", "interval_", "noise_stddev_", "components_", "explained_variance_ratio_")
    return {name: getattr(found, name) for name in parts}


def mean(of, data, session):
    made = UserMean(value_range=(1, 5), sizes="private", of=of)
    found = made.fit(data.values, users=data.user_ids.ids_of(data.users), session=session)
    return {"mean": np.asarray(found.mean_), "interval": np.asarray(found.interval_)}


def logistic(data, session):
    rows = np.stack([np.cos(data.tasks), data.values / 5], axis=1)
    users = data.user_ids.ids_of(data.users)
    found = UserERM("logistic", steps=2, sizes="private").fit(rows, data.values > 3, users=users, session=session)
    return {"coefficients": np.asarray(found.coef_)}


def encoder_fit(name, data, session):
    from private_torch import PRIVATE_ENCODERS, signed

    from encoder_cases import features_of

    made = PRIVATE_ENCODERS[name](features=features_of(data.n_tasks))
    fitted = made.fit(signed(data) if "convex" in name else data, session=session)
    state = {} if fitted.encoder_ is None else fitted.encoder_.state_dict()
    return {**published(fitted.model_), **{key: held.numpy() for key, held in state.items()}}


def followed(run, pattern, size, only=None, delta=1e-5):
    """Fit after such a past, on the data and without one user; return the releases and how far each moved."""
    arguments = {"budget": Budget(5.0, delta), "noise": SeededNoise(1)}
    session = AbsurdSession(pattern, size, only, **arguments)
    made = run(DATA, session)
    for name, value in made.items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            assert np.isfinite(value).all(), name
    ratios = _replayed(run, DATA.without(2), session, made, arguments).ratios
    assert max(ratios) <= 1 + 1e-9
    return ratios


FITS = {
    **{name: partial(fit, make) for name, make in PRIVATE_ESTIMATORS.items() if "sampled" not in name},
    "statistics by group": by_group,
    "ratings with features": partial(fit, partial(ratings, features=items())),
    "clicks with features": partial(
        fit, partial(clicks, features=items(), settings=ClickSettings(feature_prior=True), dimension=None, n_users=1000)
    ),
    **{
        f"{name}, in float32": partial(fit, partial(PRIVATE_ESTIMATORS[name], engine=LocalEngine()))
        for name in ("ratings", "clicks", "clicks, statistics, closed form", "ratings, gradient, adaptive")
    },
}
ENCODERS = (
    "encoder, statistics", "encoder, statistics, clicks", "encoder, gradient", "encoder, gradient, clicks",
    "encoder, convex loss", "joint gradient", "collective factorisation",
)  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FITS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_past_stops_a_fit_or_moves_a_release_beyond_its_sensitivity(name, size):
    for pattern in PATTERNS:
        followed(FITS[name], pattern, size)


STATISTICS = {
    "components": (components, 1e-5),
    "groups, Laplace": (by_group_with_laplace, 0.0),
    "mean of rows": (partial(mean, "rows"), 1e-5),
    "mean of users, Laplace": (partial(mean, "users"), 0.0),
    "logistic": (logistic, 1e-5),
}


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_past_stops_a_statistic(name):
    run, delta = STATISTICS[name]
    for pattern in ("random signs", "all down", "normal"):
        followed(run, pattern, 1e30, None, delta)
    followed(run, "all down", 1e6, 0, delta)


def test_means_of_a_few_users_are_numbers_where_noise_leaves_nobody():
    """One of some hundred fits like this one had a histogram of sizes so far below 0 that the mean was not a number."""

    class Below(RecordingSession):
        def _draw(self, pending):
            released = super()._draw(pending)
            return released if len(self.records) > 1 else released - 4 * pending.release.stddev

    found = mean("users", DATA, Below(Budget(0.05, 0.0), noise=SeededNoise(1)))
    assert np.isfinite(found["mean"]).all()
    assert np.isfinite(found["interval"]).all()


@pytest.mark.parametrize("name", ["ratings", "clicks", "ratings with features", "clicks, statistics, closed form"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_nor_does_a_single_absurd_release(name):
    for only in range(6):
        for pattern in ("random signs", "all down", "one entry"):
            followed(FITS[name], pattern, 1e12, only)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_past_stops_a_fit_with_an_encoder(name, size):
    pytest.importorskip("torch")
    for pattern in PATTERNS:
        followed(partial(encoder_fit, name), pattern, size)


def backends():
    return ("numpy", "compiled") if linalg.compiled_available() else ("numpy",)


def test_a_user_whose_regression_has_no_solution_gets_zero_and_nobody_else_notices():
    """User 0 has one item of an absurd vector, whose square swallows the ridge; user 1 has none of it."""
    vectors = np.array([[2.0**50, 2.0**51, 2.0**52], [0.3, 0.1, -0.2], [0.1, -0.4, 0.2]])
    about = linalg.RatingRound(
        vectors, np.ones(3), np.eye(3), np.array([0.0, 1.0, 0.0]), np.ones(2), (1.0, 5.0), 0.0, 1.0,
        clip_norm=0.7, step=step_of(0.7), summary_clip=2.0, summary_step=step_of(2.0),
    )  # fmt: skip
    both = Interactions.from_arrays([0, 1, 1], [0, 1, 2], [5.0, 4.0, 1.0], task_ids=np.arange(3))
    alone = Interactions.from_arrays([1, 1], [1, 2], [4.0, 1.0], task_ids=np.arange(3), single_user=True)
    found = {}
    for name, data in (("both", both), ("alone", alone)):
        weights = np.full(data.n_observations, 0.5)
        runs = Runs(data.by_user.indptr)
        found[name] = rating_reference.rows_and_votes(runs, data.tasks, data.values, weights, about)
        for backend in backends():
            sums = np.zeros((3, 2), np.int64), np.zeros(about.summary_width, np.int64)
            with linalg.use_backend(backend):
                linalg.rating_round(data.by_user.indptr, data.tasks, data.values, weights, about, *sums)
            found[name] += sums
    rows, votes, *sums = found["both"]
    assert not rows[0].any()
    assert not votes[0].any()
    np.testing.assert_array_equal(rows[1:], found["alone"][0])
    np.testing.assert_array_equal(votes[1:], found["alone"][1])
    assert np.abs(rows[1:]).min() > 0
    for one, other in zip(sums, found["alone"][2:], strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(np.linalg.LinAlgError):  # what one user's items would have done to all
        np.linalg.inv(vectors[0, :, None] * vectors[0] + np.eye(3))


def test_one_system_without_a_solution_leaves_the_others_alone():
    rng = np.random.default_rng(0)
    matrices = rng.normal(size=(6, 3, 3))
    right = rng.normal(size=(6, 3, 2))
    solved, inverse = np.linalg.solve(matrices, right), np.linalg.inv(matrices)
    np.testing.assert_array_equal(linalg.solve_or_zero(matrices, right), solved)
    np.testing.assert_array_equal(linalg.inverse_or_zero(matrices), inverse)
    spoiled = matrices.copy()
    spoiled[1], spoiled[2, 0, 0], spoiled[4] = 0.0, np.nan, np.diag([1.0, 1e-200, 1.0])
    kept = [0, 3, 5]
    for found, whole in (
        (linalg.solve_or_zero(spoiled, right), solved),
        (linalg.inverse_or_zero(spoiled), inverse),
    ):
        np.testing.assert_array_equal(found[kept], whole[kept])
        assert not found[[1, 2, 4]].any()
    assert not linalg.solve_or_zero(np.zeros((2, 2)), np.ones((2, 1))).any()
    assert linalg.inverse_or_zero(np.zeros((0, 2, 2))).shape == (0, 2, 2)
