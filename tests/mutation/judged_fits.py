"""The estimators that the judge fits, from raw arrays, and their neighbours."""

from __future__ import annotations

from functools import partial

import numpy as np

from mutation.judge import DELTA, raw_ratings, without


def every():
    """(name, fit, data, neighbours, ε) of all scenarios."""
    return [*_recommenders(), *_tables(), *_rows(), *_groups(), *_parties(), *_trainings()]


def _session(epsilon, neighbours=None, *, exact=False, seed=1):
    from apportion.privacy import Budget, SeededNoise, Session

    given = {} if neighbours is None else {"neighbours": neighbours}
    return Session(Budget(epsilon, DELTA), noise=SeededNoise(seed, exact=exact), **given)


def _recommenders():
    data = raw_ratings()
    others = [without(data, user) for user in (0, 1, 7)]
    for name, kind, settings in (
        ("ratings", "ratings", {}),
        ("exact ratings", "ratings", {"exact": True}),
        ("clicks", "clicks", {}),
        ("statistics", "statistics", {}),
        ("gradient", "gradient", {}),
        ("federated ratings", "ratings", {"federated": True}),
    ):
        yield name, partial(_recommended, kind, **settings), data, others, 4.0


def _recommended(kind, arrays, *, exact=False, federated=False):
    from apportion.allocation import Adaptive
    from apportion.data import Interactions
    from apportion.engines import LocalEngine
    from apportion.federated import FederatedEngine, Trust
    from apportion.published.skew import AlternatingMinimisation, GradientDescent, SufficientStatistics
    from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender

    data = Interactions.from_arrays(*arrays, task_ids=np.arange(40))
    engine = FederatedEngine(Trust(4)) if federated else LocalEngine(np.float64, chunk=13, exact=exact)
    given = {"epsilon": 4.0, "delta": DELTA, "dimension": 3, "rounds": 2, "engine": engine}
    if kind in ("ratings", "clicks"):
        made = (PrivateRatingRecommender if kind == "ratings" else PrivateClickRecommender)(**given)
    else:
        update = SufficientStatistics() if kind == "statistics" else GradientDescent(clip=0.3)
        made = AlternatingMinimisation(kind="ratings", update=update, allocation=Adaptive(0.5), user_ridge=0.1, **given)
    model = made.fit(data, session=_session(4.0, exact=exact)).model_
    parts = {name: np.asarray(getattr(model.fold_in, name)) for name in model.fold_in.__dataclass_fields__}
    return {**parts, "vectors": model.vectors, "popularity": model.popularity, "statement": model.statement}


def _tables():
    data = raw_ratings()
    others = [without(data, user) for user in (0, 1, 7)]
    for name in ("ridge", "logistic"):
        yield f"{name} over items", partial(_table, name), data, others, 4.0


def _table(kind, arrays):
    from apportion.data import Interactions
    from apportion.engines import LocalEngine
    from apportion.regression import MultiTaskERM, MultiTaskRidge, Observations

    data = Interactions.from_arrays(*arrays, task_ids=np.arange(40))
    users = np.asarray(data.user_ids.ids_of(data.users), float)
    angle = 1.3 * users + 0.7 * data.tasks
    features = np.stack([np.cos(angle), np.sin(angle)], axis=1) * np.where(users == 0, 9.0, 0.8)[:, None]
    labels = np.where(data.values > 3, 1.0, -1.0) * (1.0 if kind == "logistic" else 5.0)
    engine = LocalEngine(np.float64, chunk=13)
    if kind == "ridge":
        made = MultiTaskRidge(epsilon=4.0, delta=DELTA, label_bound=2.0, engine=engine)
    else:
        made = MultiTaskERM("logistic", epsilon=4.0, delta=DELTA, gradient_bound=0.5, max_steps=3, engine=engine)
    made.fit_observations(Observations(data, features, labels), session=_session(4.0))
    return {"coefficients": made.coef_, "statement": made.statement_}


def _rows():
    from apportion.privacy import ADD_REMOVE, REPLACE_LABELS, REPLACE_VALUES

    rng = np.random.default_rng(4)
    owners = np.repeat(np.arange(40), np.append(25, rng.integers(1, 6, 39)))
    values = np.where(owners == 0, 3.0, rng.normal(0.2, 0.4, len(owners)))
    arrays = (owners, values)
    fewer = [without(arrays, user) for user in (0, 5)]
    turned = [(owners, np.where(owners == user, -9.0, values)) for user in (0, 5)]
    yield "mean, private sizes", partial(_mean, ADD_REMOVE, "private"), arrays, fewer, 2.0
    yield "mean, public sizes", partial(_mean, REPLACE_VALUES, "public"), arrays, turned, 2.0
    yield "logistic, private sizes", _logistic, arrays, fewer, 2.0
    yield "private labels", partial(_labels, REPLACE_LABELS), arrays, turned, 2.0


def _mean(relation, sizes, arrays):
    from apportion.statistics import UserMean

    weights = "paper" if sizes == "public" else "target"
    made = UserMean(2.0, DELTA, value_range=(-1.0, 1.0), sizes=sizes, weights=weights)
    made.fit(arrays[1], users=arrays[0], session=_session(2.0, relation))
    return {"mean": np.asarray(made.mean_), "interval": np.asarray(made.interval_), "statement": made.statement_}


def _logistic(arrays):
    from apportion.privacy import ADD_REMOVE
    from apportion.regression import UserERM

    features = np.stack([arrays[1], np.cos(arrays[0] + 0.0)], axis=1)
    made = UserERM("logistic", 2.0, DELTA, steps=3, sizes="private")
    made.fit(features, (arrays[1] > 0.2).astype(float), users=arrays[0], session=_session(2.0, ADD_REMOVE))
    return {"coefficients": np.asarray(made.coef_), "statement": made.statement_}


def _labels(relation, arrays):
    from apportion.regression import LabelPrivateRegression

    features = np.cos(np.arange(len(arrays[0])) + 0.0)[:, None]
    made = LabelPrivateRegression(2.0, DELTA, label_range=(-1.0, 1.0))
    made.fit(features, arrays[1], users=arrays[0], session=_session(2.0, relation))
    return {"coefficients": made.coef_, "intervals": made.coef_intervals_, "statement": made.statement_}


def _groups():
    data = raw_ratings()
    others = [without(data, user) for user in (0, 1, 7)]
    listed = {"keys": list(range(40))}
    for name, given in {
        "counts and means by group": {"statistics": ("count", "mean"), **listed},
        "sums by group, Laplace": {"statistics": ("count", "sum"), "law": "laplace", "delta": 0.0, **listed},
        "variances by group": {"statistics": "variance", "of": "users", **listed},
        "histograms by group": {"statistics": ("histogram", "quantile"), "bins": 4, **listed},
        "a private list of groups": {"statistics": ("users", "mean"), "epsilon": 12.0},
        "a private list of groups, Laplace": {"statistics": ("users", "sum"), "law": "laplace", "epsilon": 12.0},
    }.items():
        yield name, partial(_grouped, given), data, others, given.get("epsilon", 4.0)
    for name in ("covariance", "components"):
        yield name, partial(_covaried, name), data, others, 4.0
    for name, given in {
        "quantiles": {"quantiles": [0.25, 0.5], "value_range": (0.0, 6.0)},
        "quantiles of a list": {"quantiles": 0.5, "candidates": [1.0, 2.0, 3.0, 4.0, 5.0], "of": "users"},
    }.items():
        yield name, partial(_quantiles, given), data, others, 4.0


def _grouped(given, arrays):
    from apportion.statistics import UserGroupBy

    made = UserGroupBy(**{"epsilon": 4.0, "delta": DELTA, "value_range": (1.0, 4.0), "noise": _noise(), **given})
    wide = np.where((arrays[0] == 0) & (arrays[1] == 0), 99, arrays[1] % 2)  # user 0 alone is in a group of its own
    made.fit(arrays[2], users=arrays[0], by=arrays[1] if "keys" in given else wide)
    if not made.groups_:
        raise RuntimeError("no group is listed")
    numbers = {f"{kind} {name}": np.asarray(held) for kind in ("estimates_", "intervals_", "simultaneous_")
               for name, held in getattr(made, kind).items()}  # fmt: skip
    return {**numbers, "groups": made.groups_, "threshold": made.threshold_, "statement": made.statement_}


def _covaried(name, arrays):
    from apportion.statistics import UserCovariance, UserPCA

    given = {"epsilon": 4.0, "delta": DELTA, "value_range": (-1.0, 1.0)}
    made = UserCovariance(**given) if name == "covariance" else UserPCA(2, **given)
    rows = np.stack([np.cos(arrays[1] + 0.0), (arrays[2] - 3) / 2, np.sin(1.3 * arrays[0] + 0.0)], axis=1)
    made.fit(rows * np.where(arrays[0] == 0, 5.0, 1.0)[:, None], users=arrays[0], session=_session(4.0))
    found = {"matrix": made.covariance_, "mean": made.mean_, "interval": made.interval_, "statement": made.statement_}
    return found if name == "covariance" else {**found, "components": made.components_}


def _quantiles(given, arrays):
    from apportion.statistics import UserQuantile

    made = UserQuantile(epsilon=4.0, noise=_noise(), **given).fit(arrays[2], users=arrays[0])
    found = {"quantiles": np.asarray(made.quantiles_), "error": made.rank_error_, "threshold": made.threshold_}
    return {**found, "statement": made.statement_}


def _noise():
    from apportion.privacy import SeededNoise

    return SeededNoise(1)


def _parties():
    rng = np.random.default_rng(2)
    owners = np.repeat(np.arange(30), rng.integers(2, 12, 30))
    features = rng.standard_normal((len(owners), 4))
    labels = features @ np.array([2.0, -1.0, 0.5, 0.0]) + rng.standard_normal(len(owners))
    arrays = (owners, features, labels)
    yield "parties", _protected, arrays, [without(arrays, party) for party in (3, 9)], 2.0


def _protected(arrays):
    from apportion.parties import ProtectedMultiTask
    from apportion.privacy.neighbours import ADD_REMOVE_TASK

    made = ProtectedMultiTask(epsilon=2.0, delta=DELTA, neighbours=ADD_REMOVE_TASK, n_tasks=30)
    made.fit(arrays[1], arrays[2], arrays[0], session=_session(2.0, ADD_REMOVE_TASK))
    return {"matrix": made.released_[-1].matrix, "shared": made.released_[-1].shared, "statement": made.statement_}


def _trainings():
    data = raw_ratings()
    others = [without(data, user) for user in (0, 1, 7)]
    yield "training", _trained, data, others, 2.0


def _trained(arrays):
    import torch
    from torch import nn

    from apportion.training import DPSGD, PrivateTrainer, UserRows

    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    inputs = torch.as_tensor(np.stack([np.cos(arrays[1] + 0.0), arrays[2] - 3], axis=1))
    made = PrivateTrainer(
        module, DPSGD(module.parameters(), lr=0.05), _squared, epsilon=2.0, delta=DELTA, steps=3, rows_at_once=40
    )
    made.fit(UserRows(inputs, torch.as_tensor(arrays[2]), arrays[0]), session=_session(2.0))
    state = {name: held.numpy().copy() for name, held in module.state_dict().items()}
    return {**state, "statement": made.statement_}


def _squared(outputs, targets):
    return (outputs[:, 0] - targets).square()
