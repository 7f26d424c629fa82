"""Other settings of the estimators that the judge fits, so that more of the library is run by some scenario."""

from __future__ import annotations

from functools import partial

import numpy as np

from mutation.judge import DELTA, raw_ratings, without
from mutation.judged_fits import _noise, _session, _squared

PRIVATE_ITEMS = "ratings of private items"


def every():
    """(name, fit, data, neighbours, ε) of all scenarios."""
    return [*_recommenders(), *_tables(), *_rows(), *_parties(), *_trainings()]


# -- recommenders --


def _recommenders():
    data = raw_ratings()
    others = [without(data, user) for user in (0, 7)]
    for name in ("ratings with features", PRIVATE_ITEMS, "ratings by choice", "clicks with features",
                 "clicks and votes", "ratings by torch", "tail samples", "closed form"):  # fmt: skip
        yield name, partial(_recommended, name), data, others, 12.0 if name == PRIVATE_ITEMS else 4.0


def _recommended(name, arrays):
    from apportion.data import Interactions

    private = name == PRIVATE_ITEMS
    data = Interactions.from_arrays(*arrays, **({} if private else {"task_ids": np.arange(40)}))
    model = _recommender(name).fit(data, **({} if private else {"session": _session(4.0)})).model_
    parts = {name: np.asarray(getattr(model.fold_in, name)) for name in model.fold_in.__dataclass_fields__}
    return {**parts, "vectors": model.vectors, "popularity": model.popularity, "statement": model.statement}


def _recommender(name):
    from apportion.allocation import ClosedForm, TailSample
    from apportion.engines import LocalEngine, TorchEngine
    from apportion.published.skew import AlternatingMinimisation, GradientDescent, SufficientStatistics
    from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender

    engine = TorchEngine("cpu", np.float64) if name == "ratings by torch" else LocalEngine(np.float64, chunk=13)
    given = {"epsilon": 4.0, "delta": DELTA, "dimension": 3, "rounds": 2, "engine": engine}
    if name == "tail samples":
        return AlternatingMinimisation(
            kind="ratings", update=GradientDescent(clip=0.3), allocation=TailSample(5), user_ridge=0.1, **given
        )
    if name == "closed form":
        update, policy = SufficientStatistics(), ClosedForm(0.5, slack=1.0)
        return AlternatingMinimisation(kind="clicks", update=update, allocation=policy, user_ridge=0.1, **given)
    further = {
        "ratings with features": {"features": _features()},
        "clicks with features": {"features": _features()},
        PRIVATE_ITEMS: {"items": "private", "epsilon": 12.0, "noise": _noise()},
        "ratings by choice": {"rank_by": "choice", "n_users": 1000},
        "clicks and votes": {"dimension": None, "rounds": None, "n_users": 1000},
    }.get(name, {})
    made = PrivateClickRecommender if name.startswith("clicks") else PrivateRatingRecommender
    return made(**{**given, **further})


def _features():
    import pyarrow as pa

    from apportion.data import ItemFeatures

    kinds = [f"g{item % 4}" for item in range(40)]
    return ItemFeatures.from_frame(pa.table({"item": list(range(40)), "genres": kinds, "year": list(range(40))}))


# -- regressions with many tasks --


def _tables():
    data = raw_ratings()
    others = [without(data, user) for user in (0, 7)]
    for name in ("ridge of the paper", "strongly convex", "huber with a floor"):
        yield f"{name}, over items", partial(_table, name), data, others, 4.0


def _table(name, arrays):
    from apportion.allocation import ClosedForm, EqualSplit
    from apportion.data import Interactions
    from apportion.engines import LocalEngine
    from apportion.regression import MultiTaskERM, MultiTaskRidge, Observations

    data = Interactions.from_arrays(*arrays, task_ids=np.arange(40))
    users = np.asarray(data.user_ids.ids_of(data.users), float)
    angle = 1.3 * users + 0.7 * data.tasks
    features = np.stack([np.cos(angle), np.sin(angle)], axis=1) * np.where(users == 0, 9.0, 0.8)[:, None]
    labels = np.where(data.values > 3, 1.0, -1.0)
    given = {"epsilon": 4.0, "delta": DELTA, "engine": LocalEngine(np.float64, chunk=13)}
    made = {
        "ridge of the paper": lambda: MultiTaskRidge(
            solve="psd", allocation=ClosedForm(0.5), ridge=0.1, coefficient_bound=1.0, n_users=60, **given
        ),
        "strongly convex": lambda: MultiTaskERM(
            "logistic", rule="strongly convex", ridge=0.1, max_steps=3, floor=False, average=False, **given
        ),
        "huber with a floor": lambda: MultiTaskERM(
            "huber", allocation=EqualSplit(), gradient_bound=0.5, max_steps=3, **given
        ),
    }[name]()
    made.fit_observations(Observations(data, features, labels), session=_session(4.0))
    return {"coefficients": made.coef_, "statement": made.statement_}


# -- means, regressions --


def _rows():
    from apportion.privacy import ADD_REMOVE, REPLACE_LABELS, REPLACE_VALUES

    rng = np.random.default_rng(4)
    owners = np.repeat(np.arange(40), np.append(25, rng.integers(1, 6, 39)))
    values = np.where(owners == 0, 3.0, rng.normal(0.2, 0.4, len(owners)))
    arrays = (owners, values)
    fewer = [without(arrays, user) for user in (0, 5)]
    turned = [(owners, np.where(owners == user, -9.0, values)) for user in (0, 5)]
    for name, given in {
        "mean of users": {"of": "users"},
        "mean, the paper's weights": {"weights": "paper"},
        "mean, Laplace": {"delta": 0.0},
        "mean for a population": {"interval_for": "population"},
        "mean of pairs": {"value_range": (np.array([-1.0, 0.0]), np.array([1.0, 1.0]))},
    }.items():
        yield name, partial(_mean, ADD_REMOVE, given), arrays, fewer, 2.0
    public = {"sizes": "public", "weights": "paper", "variance": 0.2, "correlation": 0.1}
    yield "mean, public sizes and variance", partial(_mean, REPLACE_VALUES, public), arrays, turned, 2.0
    parts = {"sizes": "public", "interval_parts": 3}
    yield "squared loss", partial(_regression, "squared", ADD_REMOVE, {"floor": False}), arrays, fewer, 2.0
    yield "logistic in parts", partial(_regression, "logistic", REPLACE_VALUES, parts), arrays, turned, 2.0
    for name, given in {
        "private labels, the paper's weights": {"bounding": "paper", "target": "coefficients"},
        "private labels, Laplace": {"delta": 0.0, "interval_for": "population", "noise_variance": 0.3},
    }.items():
        yield name, partial(_labels, REPLACE_LABELS, given), arrays, turned, 2.0


def _mean(relation, given, arrays):
    from apportion.statistics import UserMean

    made = UserMean(**{"epsilon": 2.0, "delta": DELTA, "value_range": (-1.0, 1.0), **given})
    wide = np.ndim(made.value_range[0]) > 0
    values = np.stack([arrays[1], arrays[1] ** 2], axis=1) if wide else arrays[1]
    made.fit(values, users=arrays[0], session=_session(2.0, relation))
    return {"mean": np.asarray(made.mean_), "interval": np.asarray(made.interval_), "statement": made.statement_}


def _regression(loss, relation, given, arrays):
    from apportion.regression import UserERM

    features = np.stack([arrays[1], np.cos(arrays[0] + 0.0)], axis=1)
    labels = (arrays[1] > 0.2).astype(float) if loss == "logistic" else arrays[1]
    made = UserERM(loss, 2.0, DELTA, steps=3, **given)
    made.fit(features, labels, users=arrays[0], session=_session(2.0, relation))
    return {"coefficients": np.asarray(made.coef_), "statement": made.statement_}


def _labels(relation, given, arrays):
    from apportion.regression import LabelPrivateRegression

    features = np.cos(np.arange(len(arrays[0])) + 0.0)[:, None]
    made = LabelPrivateRegression(**{"epsilon": 2.0, "delta": DELTA, "label_range": (-1.0, 1.0), **given})
    made.fit(features, arrays[1], users=arrays[0], session=_session(2.0, relation))
    return {"coefficients": made.coef_, "intervals": made.coef_intervals_, "statement": made.statement_}


# -- parties --


def _parties():
    rng = np.random.default_rng(2)
    owners = np.repeat(np.arange(30), rng.integers(2, 12, 30))
    features = rng.standard_normal((len(owners), 4))
    labels = features @ np.array([2.0, -1.0, 0.5, 0.0]) + rng.standard_normal(len(owners))
    arrays = (owners, features, labels)
    others = [without(arrays, party) for party in (3, 9)]
    for structure, further in {
        "low-rank": {}, "group-sparse": {"loss": "logistic"}, "low-rank+sparse": {}, "relations": {},
        "em": {"contribution": "posterior"},
    }.items():  # fmt: skip
        yield f"parties, {structure}", partial(_protected, structure, further), arrays, others, 2.0


def _protected(structure, further, arrays):
    from apportion.parties import ProtectedMultiTask
    from apportion.privacy.neighbours import ADD_REMOVE_TASK

    given = {"neighbours": ADD_REMOVE_TASK, "n_tasks": 30, "rounds": 2, **further}
    made = ProtectedMultiTask(epsilon=2.0, delta=DELTA, structure=structure, **given)
    labels = np.sign(arrays[2]) if further.get("loss") == "logistic" else arrays[2]
    made.fit(arrays[1], labels, arrays[0], session=_session(2.0, ADD_REMOVE_TASK))
    return {"matrix": made.released_[-1].matrix, "statement": made.statement_}


# -- training --


def _trainings():
    data = raw_ratings()
    others = [without(data, 0)]
    for name in ("a quantile for a clip", "scales and losses", "per row"):
        yield f"training, {name}", partial(_trained, name), data, others, 2.0


def _trained(name, arrays):
    import torch
    from torch import nn

    from apportion.training import DPAdam, PrivateTrainer, QuantileClip, ReleasedLoss, SecondMomentScales, UserRows

    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    inputs = torch.as_tensor(np.stack([np.cos(arrays[1] + 0.0), arrays[2] - 3], axis=1))
    further = {
        "a quantile for a clip": {"clip": QuantileClip()},
        "scales and losses": {"scaling": SecondMomentScales(after=1), "losses": ReleasedLoss(10.0)},
        "per row": {"mean_of_rows": True},
    }[name]
    made = PrivateTrainer(
        module, DPAdam(module.parameters(), lr=0.05), _squared, epsilon=2.0, delta=DELTA, steps=2, rows_at_once=40,
        **further,
    )  # fmt: skip
    made.fit(UserRows(inputs, torch.as_tensor(arrays[2]), arrays[0]), session=_session(2.0))
    state = {name: held.numpy().copy() for name, held in module.state_dict().items()}
    return {**state, "statement": made.statement_}
