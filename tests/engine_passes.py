"""Every pass of every estimator, recorded on the reference engine, for engines that must add up to the same.

A pass is the users and the contributions that an estimator handed to its engine. Contributions hold what was released
before, so any engine can be given them: it sees the same world as the reference did.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec

import numpy as np

from apportion.allocation.users import SampleLimit
from apportion.auditing.hidden_values import raw_steps
from apportion.data.users import Users
from apportion.engines import DiskEngine, LocalEngine, SparkEngine, TorchEngine
from apportion.federated import FederatedEngine, Trust
from apportion.privacy import SeededNoise
from apportion.privacy.contributions import Contribution
from apportion.regression import LabelPrivateRegression, UserERM
from apportion.statistics import UserCovariance, UserGroupBy, UserMean, UserQuantile
from apportion.statistics.paper_mean import PaperMean
from contribution_cases import CONTRIBUTIONS, parts_of_parties, users_of
from sail_server import sail_server, sail_session

from private_estimators import PRIVATE_ESTIMATORS, PRIVATE_REGRESSIONS, with_features
from strategies import random_interactions

N_USERS, N_TASKS = 41, 12

ENGINES = {
    "memory": lambda runs, dtype: LocalEngine(dtype, exact=True, runs=runs),
    "federated": lambda runs, dtype: FederatedEngine(Trust(3 if runs > 1 else 2, colluding=0, dropping=0), dtype=dtype),
    **({"torch": lambda runs, dtype: TorchEngine("cpu", dtype, exact=True, runs=runs)} if find_spec("torch") else {}),
}
"""Engines that conform, by name: made for so many runs of users and a precision. Add one here to have it tested."""


def disk_engine(runs, dtype):
    """The engine for users on disk, with runs so short that the users of a small world are in about so many."""
    engine = DiskEngine(dtype=dtype)
    engine.rows_of_a_run = 1 + 3 * N_USERS // runs
    return engine


@cache
def sail():
    """A Spark Connect server of this process, and a session on it."""
    server, master = sail_server()
    return server, sail_session(master)


def spark_engine(runs, dtype):
    """An engine on that server, with so many tasks in a pass."""
    return SparkEngine(sail()[1], dtype, partitions=runs)


FURTHER_ENGINES = {"disk": disk_engine, **({"Spark": spark_engine} if find_spec("pysail") else {})}
"""Engines that have tests of their own; the claim compares them with the others."""


@dataclass(frozen=True)
class Pass:
    """What an engine was given once, and what it returned.

    Attributes:
        users: the users.
        contributions: what they add.
        written: the contributions as bytes, at the time.
        sums: what came back.
    """

    users: Users
    contributions: tuple[Contribution, ...]
    written: bytes
    sums: tuple

    def __str__(self):
        return " and ".join(type(each).__name__ for each in self.contributions)


class RecordingEngine:
    """An engine that keeps every pass of another."""

    def __init__(self, engine):
        self._engine = engine
        self.exact, self.kernels = engine.exact, engine.kernels
        self.passes = []

    def add_up(self, users, contributions):
        written = pickle.dumps(tuple(contributions))
        sums = self._engine.add_up(users, contributions)
        self.passes.append(Pass(users, tuple(contributions), written, tuple(sums)))
        return sums


def forgetful(users):
    """The same users without what they remember: an engine must form everything itself."""
    return users.with_columns()


def without(users, user):
    """All users but one."""
    kept = np.arange(users.n_users) != user
    rows = np.repeat(kept, users.sizes)
    return Users(
        np.concatenate([[0], np.cumsum(users.sizes[kept])]),
        {name: column[rows] for name, column in users._columns.items()},
        user_columns={name: column[kept] for name, column in users._user_columns.items()},
        n_tasks=users.n_tasks,
        keys=None if users._keys is None else users.keys[kept],
    )


def unequal_numbers(one, two):
    """In how many whole numbers two sums differ; in all of them, where one has another shape or none."""
    here, there = raw_steps(one), raw_steps(two)
    if here.shape != there.shape or {here.dtype, there.dtype} != {np.dtype(np.int64)}:
        return here.size
    return int(np.count_nonzero(here != there))


def unequal_facts(one, two):
    """What else two sums differ in."""
    facts = ("shape", "step", "l2_sensitivity", "l1_sensitivity", "neighbours", "derivation")
    found = [name for name in facts if getattr(one, name) != getattr(two, name)]
    same_scales = np.array_equal(np.asarray(one.scales, float), np.asarray(two.scales, float), equal_nan=True)
    return found if same_scales else [*found, "scales"]


def differences(one, two):
    """What two sums disagree in, in words; nothing if they are the same in every bit."""
    unequal = unequal_numbers(one, two)
    return [*unequal_facts(one, two), *([f"{unequal} of {one.size} whole numbers"] if unequal else [])]


# -- what is fitted --


class SmallWorld:
    """The data that estimators are fitted to: so many users, most of them with few rows."""

    n_tasks = N_TASKS

    def __init__(self, n_users):
        self.n_users = n_users

    def interactions(self):
        return random_interactions(11, n_users=self.n_users, n_tasks=self.n_tasks)

    def sizes(self, rng):
        return 1 + rng.geometric(0.3, self.n_users)


def _fit_estimator(make, engine, world):
    return make(engine=engine, noise=SeededNoise(3)).fit(world.interactions())


def _fit_regression(make_for, engine, world):
    estimator = make_for(world.n_tasks)(engine=engine, noise=SeededNoise(3))
    logistic = estimator.get_params().get("loss") == "logistic"
    return estimator.fit_observations(with_features(world.interactions(), logistic=logistic))


def _fit_rows(make, engine, world):
    rng = np.random.default_rng(7)
    sizes = world.sizes(rng)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.standard_normal((len(groups), 3)) * 0.7
    y = np.where(x[:, 0] + rng.standard_normal(len(groups)) > 0, 1.0, 0.0)
    order = rng.permutation(len(groups))
    made = make(engine=engine, noise=SeededNoise(3))
    return made.fit(x[order, :1] if isinstance(made, UserQuantile) else x[order], y[order], users=groups[order])


def _fit_groups(make, engine, world):
    rng = np.random.default_rng(8)
    owners = np.repeat(np.arange(world.n_users), world.sizes(rng))
    groups = rng.choice(["east", "north", "west"], len(owners))
    return make(engine=engine, noise=SeededNoise(3)).fit(rng.uniform(0, 1, len(owners)), users=owners, by=groups)


def _fit_encoder(make, engine, world):
    from apportion.published.public_features.convex import ConvexMinimisation
    from private_torch import signed

    from encoder_cases import features_of

    made = make(features=features_of(world.n_tasks), engine=engine, noise=SeededNoise(3))
    data = world.interactions()
    return made.fit(signed(data) if isinstance(made, ConvexMinimisation) else data)


def _add_up_small_forms(engine, world):
    engine.add_up(users_of(world.interactions()), [make() for make in CONTRIBUTIONS.values()])


def _add_up_parties(engine, world):
    engine.add_up(users_of(world.interactions()), [parts_of_parties()])


BOX, PRIVATE = {"value_range": (-2.0, 2.0)}, {"sizes": "private"}
ROWS = {
    "mean": partial(UserMean, 2.0, 1e-5, **BOX),
    "covariance": partial(UserCovariance, 2.0, 1e-5, **BOX),
    "mean, at most 2 rows a user": partial(PaperMean, 2.0, 1e-5, bounding=SampleLimit(2), **BOX),
    "mean, Laplace": partial(UserMean, 2.0, 0.0, **BOX),
    "mean, private sizes": partial(PaperMean, 2.0, 1e-5, **PRIVATE, **BOX),
    "quantiles, private sizes": partial(UserQuantile, [0.25, 0.5], 2.0, **PRIVATE, **BOX),
    "median, middle rows": partial(UserQuantile, 0.5, 40.0, step=0.5, **BOX),
    "quantiles on a scale": partial(UserQuantile, [0.25, 0.5], 2.0, step=0.5, **BOX),
    "logistic loss": partial(UserERM, "logistic", 2.0, 1e-5, steps=3, sizes="public"),
    "logistic loss, private sizes": partial(UserERM, "logistic", 2.0, 1e-5, steps=3, **PRIVATE),
    "squared loss, intervals": partial(UserERM, "squared", 2.0, 1e-5, steps=3, interval_parts=4, sizes="public"),
    "private labels": partial(LabelPrivateRegression, 2.0, 1e-5, label_range=(0.0, 1.0)),
    "private labels, Laplace": partial(LabelPrivateRegression, 2.0, 0.0, label_range=(0.0, 1.0)),
}


STATISTICS = ("count", "sum", "mean", "variance", "histogram")
GROUPS = {
    "statistics by group": partial(
        UserGroupBy, STATISTICS, 2.0, 1e-5, value_range=(0, 1), keys=("east", "north", "west", "zoo")
    ),
    "statistics by group, Laplace": partial(
        UserGroupBy, STATISTICS, 2.0, value_range=(0, 1), keys=("east", "north", "west", "zoo"), law="laplace"
    ),
    "users by group, a box": partial(UserGroupBy, "users", 2.0, keys=("east", "north", "west", "zoo"), law="laplace"),
    "statistics by private groups": partial(UserGroupBy, ("users", "quantile"), 50.0, 1e-5, value_range=(0, 1)),
}


def _encoders():
    if find_spec("torch") is None:
        return {}
    from private_torch import PRIVATE_ENCODERS

    return {name: partial(_fit_encoder, make) for name, make in PRIVATE_ENCODERS.items()}


FITS: dict[str, Callable] = {
    "every kind of contribution": _add_up_small_forms,
    "parts of parties": _add_up_parties,
    **{name: partial(_fit_estimator, make) for name, make in PRIVATE_ESTIMATORS.items()},
    **{name: partial(_fit_regression, make) for name, make in PRIVATE_REGRESSIONS.items()},
    **{name: partial(_fit_rows, make) for name, make in ROWS.items()},
    **{name: partial(_fit_groups, make) for name, make in GROUPS.items()},
    **_encoders(),
}
"""Every estimator, by name: what fits it on an engine, to the data of a world."""


def passes_of(name, engine, n_users=N_USERS, world=None):
    """The passes of one fit on this engine."""
    recording = RecordingEngine(engine)
    FITS[name](recording, world or SmallWorld(n_users))
    return recording.passes


@cache
def reference_passes(name, dtype=np.float32, n_users=N_USERS):
    """The passes of one fit on the reference engine."""
    return passes_of(name, LocalEngine(dtype, exact=True), n_users)
