"""Every private estimator, in a small form, for the tests that all of them must pass."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from apportion.allocation import Adaptive, ClosedForm, EqualSplit, KnownCounts, TailSample, UniformSample
from apportion.auditing import audit
from apportion.data import Interactions
from apportion.engines import LocalEngine
from apportion.privacy import Budget, SeededNoise
from apportion.published.skew import AlternatingMinimisation, GradientDescent, Joint, SufficientStatistics
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender, RatingSettings
from apportion.regression import MultiTaskERM, MultiTaskRidge, Observations


def ratings(**arguments):
    engine = LocalEngine(np.float64, chunk=17)
    defaults = {"epsilon": 2.0, "delta": 1e-5, "dimension": 3, "rounds": 3, "engine": engine}
    return PrivateRatingRecommender(**{**defaults, **arguments})


def ratings_without_vectors(**arguments):
    """As where items do not stand out of the noise: several rounds for biases alone."""
    settings = RatingSettings(dimension=0, rounds=3)
    return ratings(**{"dimension": None, "rounds": None, "settings": settings, **arguments})


def clicks(**arguments):
    """With so few users in the data of tests that popularity gets the whole budget."""
    engine = LocalEngine(np.float64, chunk=17)
    defaults = {"epsilon": 2.0, "delta": 1e-5, "dimension": 3, "rounds": 3, "engine": engine}
    return PrivateClickRecommender(**{**defaults, **arguments})


def clicks_of_default_size(**arguments):
    """With so many users declared that they are always asked to vote."""
    return clicks(**{"dimension": None, "rounds": None, "n_users": 1000, **arguments})


def ratings_by_choice(**arguments):
    """With so many users declared that they are always asked to vote on choices."""
    return ratings(**{"rank_by": "choice", "n_users": 1000, **arguments})


def ratings_with_choices(**arguments):
    """The default with many users of many rows declared or released, so that choices are learned for predictions."""
    return ratings(**{"n_users": 1000, **arguments})


def alternating(kind, update, policy):
    """Alternating minimisation with these parts, in a small form."""

    def make(**arguments):
        engine = LocalEngine(np.float64, chunk=17)
        defaults = {"epsilon": 2.0, "delta": 1e-5, "dimension": 3, "rounds": 2, "engine": engine}
        return AlternatingMinimisation(
            **{**defaults, "kind": kind, "update": update, "allocation": policy, "user_ridge": 0.1, **arguments}
        )

    return make


PRIVATE_ESTIMATORS = {
    "ratings": ratings,
    "clicks": clicks,
    "clicks of default size": clicks_of_default_size,
    "ratings, statistics, uniform sample": alternating("ratings", SufficientStatistics(), UniformSample(5)),
    "ratings, statistics, tail sample": alternating("ratings", SufficientStatistics(), TailSample(5)),
    "ratings, statistics, adaptive": alternating("ratings", SufficientStatistics(), Adaptive(0.5)),
    "ratings, gradient, uniform sample": alternating("ratings", GradientDescent(clip=0.3), UniformSample(5)),
    "ratings, gradient, tail sample": alternating("ratings", GradientDescent(clip=0.3), TailSample(5)),
    "ratings, gradient, adaptive": alternating("ratings", GradientDescent(clip=0.3), Adaptive(0.25)),
    "ratings, gradient, joint": alternating("ratings", GradientDescent(clip=0.3), Joint(1.0)),
    "clicks, statistics, closed form": alternating("clicks", SufficientStatistics(), ClosedForm(0.5, slack=1.0)),
    "ratings, sampled gradient, adaptive": alternating(
        "ratings", GradientDescent(clip=0.3, sampling=0.9, steps=1), Adaptive(0.25)
    ),
    "clicks, gradient, equal split": alternating("clicks", GradientDescent(clip=0.05, even=True), EqualSplit()),
    "ratings without vectors": ratings_without_vectors,
}


def published(model):
    """Everything of a model that leaves with it."""
    arrays = {name: getattr(model.fold_in, name) for name in model.fold_in.__dataclass_fields__}
    arrays |= {name: getattr(model, name) for name in ("vectors", "popularity", "reliability", "offset", "value_range")}
    return {**arrays, "settings": model.settings, "tasks": model.task_ids.ids, "statement": model.statement}


def audit_estimator(make, data, user, *, epsilon, seed, exact=False):
    """Record and replay one estimator; returns one finding per release."""
    given = {"engine": LocalEngine(np.float64, chunk=17, exact=True)} if exact else {}

    def fit(some, session):
        return published(make(**given).fit(some, session=session).model_)

    return audit(fit, data, user, {"budget": Budget(epsilon, 1e-5), "noise": SeededNoise(seed, exact=exact)})


def at_the_bound():
    """Data in which users 0 and 1 contribute as much as anybody may.

    User 0 has many tasks with extreme and contrary values, so that residuals are large; user 1's values are all the
    highest, so that the mean is.
    """
    rng = np.random.default_rng(0)
    n_users, n_tasks = 40, 150
    rows = [(0, task, 5.0 if task % 2 else 1.0) for task in range(n_tasks)]
    rows += [(1, task, 5.0) for task in range(60)]
    for user in range(2, n_users):
        chosen = rng.choice(n_tasks, 30, replace=False)
        rows += [(user, int(task), float(rng.integers(1, 6))) for task in chosen]
    users, tasks, values = zip(*rows, strict=True)
    return Interactions.from_arrays(users, tasks, values, task_ids=np.arange(n_tasks)), (0, 1)


# -- regressions with many tasks --


def ridge(**settings):
    """A small ridge regression, with some arguments fixed."""

    def make(**arguments):
        engine = LocalEngine(np.float64, chunk=17)
        defaults = {"epsilon": 2.0, "delta": 1e-5, "label_bound": 2.0, "engine": engine}
        return MultiTaskRidge(**{**defaults, **settings, **arguments})

    return make


def erm(loss="squared", **settings):
    """A short noisy gradient descent, with some arguments fixed."""

    def make(**arguments):
        engine = LocalEngine(np.float64, chunk=17)
        defaults = {
            "epsilon": 2.0,
            "delta": 1e-5,
            "gradient_bound": 0.5,
            "max_steps": 3,
            "engine": engine,
            "floor": False,
        }
        return MultiTaskERM(loss, **{**defaults, **settings, **arguments})

    return make


def _known(policy, n_tasks):
    return KnownCounts(policy, np.linspace(1.0, 5.0, n_tasks), 12)


PRIVATE_REGRESSIONS = {
    "ridge, adaptive": lambda n_tasks: ridge(),
    "ridge, the paper's solve, closed form": lambda n_tasks: ridge(
        solve="psd", allocation=ClosedForm(0.5, slack=1.0), ridge=0.1, coefficient_bound=1.0
    ),
    "ridge, equal split": lambda n_tasks: ridge(allocation=EqualSplit()),
    "ridge, uniform sample": lambda n_tasks: ridge(allocation=UniformSample(3), solve="psd"),
    "ridge, tail sample": lambda n_tasks: ridge(allocation=TailSample(3)),
    "ridge, public counts": lambda n_tasks: ridge(allocation=_known(Adaptive(0.5), n_tasks)),
    "squared loss, adaptive": lambda n_tasks: erm(),
    "logistic loss, strongly convex, closed form": lambda n_tasks: erm(
        "logistic", rule="strongly convex", ridge=0.1, allocation=ClosedForm(0.5), average=False
    ),
    "huber loss, equal split": lambda n_tasks: erm("huber", allocation=EqualSplit()),
    "squared loss, uniform sample": lambda n_tasks: erm(allocation=UniformSample(3), steps=4),
    "logistic loss, tail sample": lambda n_tasks: erm("logistic", allocation=TailSample(3)),
    "squared loss, with a floor": lambda n_tasks: erm(floor=True),
    "logistic loss, with a floor": lambda n_tasks: erm("logistic", floor=True, allocation=EqualSplit()),
    "squared loss, strongly convex, public counts": lambda n_tasks: erm(
        ridge=0.5, rule="strongly convex", allocation=_known(ClosedForm(0.5), n_tasks)
    ),
}


def with_features(data, *, logistic):
    """Features and a label for every pair, from the ids of its user and task alone.

    Rows of every length, some of them beyond the bound of 1 and one of them zero; even users' features are at the
    bound or beyond, and their labels far beyond theirs.
    """
    users, tasks = np.asarray(data.user_ids.ids_of(data.users)), np.asarray(data.task_ids.ids_of(data.tasks))
    angle = 1.7 * users + 0.9 * tasks
    length = np.where(users % 2 == 0, 1.0 + 0.1 * (tasks % 3), 0.3 * ((users + tasks) % 5))
    features = length[:, None] * np.stack([np.cos(angle), np.sin(angle) * 0.6, np.sin(angle) * 0.8], axis=1)
    labels = np.where(data.values > 3, 1.0, -1.0)
    if not logistic:
        labels = labels * np.where(users % 2 == 0, 9.0, 0.7)
    return Observations(data, features, labels)


def audit_regression(make, data, user, *, epsilon, seed, exact=False):
    """Record and replay one regression; returns one finding per release."""
    given = {"engine": LocalEngine(np.float64, chunk=17, exact=True)} if exact else {}

    def fit(some, session):
        estimator = make(**given)
        rows = with_features(some, logistic=estimator.get_params().get("loss") == "logistic")
        estimator.fit_observations(rows, session=session)
        found = {"coef": estimator.coef_, "tasks": estimator.task_ids_.ids, "statement": estimator.statement_}
        return {**found, "steps": getattr(estimator, "n_steps_", None)}

    return audit(fit, data, user, {"budget": Budget(epsilon, 1e-5), "noise": SeededNoise(seed, exact=exact)})


# -- estimators that need torch --


def audits_with_torch():
    """For every private estimator that needs torch, by name, what records and replays it; none without torch."""
    if find_spec("torch") is None:
        return {}
    from private_torch import AUDITS

    return AUDITS
