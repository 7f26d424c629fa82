"""Small items with features, and audits of encoder updates, for the tests of this folder."""

from __future__ import annotations

import numpy as np
import torch

from apportion.auditing import audit
from apportion.data import Interactions
from apportion.data.sparse_rows import ColumnRange, SparseRows
from apportion.engines import LocalEngine
from apportion.privacy import Budget, SeededNoise
from apportion.published.public_features import LinearEncoder, TwoLayerEncoder
from apportion.published.public_features.minimisation import EncoderMinimisation

from private_estimators import published

torch.set_num_threads(1)  # small batches on a shared machine
GROUPS = (ColumnRange("genre", 0, 4), ColumnRange("year", 4, 9))


def features_of(n_items, seed=0):
    """One or two genres and a year for each item."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(np.arange(n_items), 3)
    columns = np.stack(
        [rng.integers(0, 4, n_items), rng.integers(0, 4, n_items), rng.integers(4, 9, n_items)], axis=1
    ).ravel()
    return SparseRows.from_entries(rows, columns, np.ones(3 * n_items), n_items, GROUPS)


def linear(width, seed=0, **arguments):
    torch.manual_seed(seed)
    return LinearEncoder(9, width, bias=True, **arguments)


def two_layers(width, seed=0, **arguments):
    torch.manual_seed(seed)
    return TwoLayerEncoder(GROUPS, width, **arguments)


def estimator(update, cls=EncoderMinimisation, **arguments):
    """A small fit with this update."""
    defaults = {"epsilon": 2.0, "delta": 1e-5, "dimension": 2, "rounds": 2, "user_ridge": 0.1, "user_norm": 0.2}
    defaults["engine"] = LocalEngine(np.float64, chunk=17)
    return cls(update=update, **{**defaults, **arguments})


def audit_update(make, data, user, *, epsilon, seed):
    """Record and replay a fit; what it publishes includes the trained encoder."""

    def fit(some, session):
        fitted = make(features=features_of(some.n_tasks)).fit(some, session=session)
        state = {} if fitted.encoder_ is None else fitted.encoder_.state_dict()
        return {**published(fitted.model_), **{name: held.numpy() for name, held in state.items()}}

    return audit(fit, data, user, {"budget": Budget(epsilon, 1e-5), "noise": SeededNoise(seed)})


def assert_audited(make, data, user, *, epsilon, seed, least):
    findings = audit_update(make, data, user, epsilon=epsilon, seed=seed)
    assert len(findings) >= least
    for finding in findings:
        assert finding.ratio <= 1 + 1e-9, finding
        assert finding.gap <= 1e-7, finding


def best_ratios(make, data, users, seeds, epsilon=50.0):
    best = {}
    for seed in seeds:
        for user in users:
            for finding in audit_update(make, data, user, epsilon=epsilon, seed=seed):
                best[finding.name] = max(finding.ratio, best.get(finding.name, 0.0))
    return best


def feature_driven_ratings(n_users=1500, n_items=120, per_user=20, seed=0):
    """Ratings whose items are what their features say, more or less; returns data and features."""
    rng = np.random.default_rng(seed)
    rows = features_of(n_items, seed)
    shown = rows.averaged().to_scipy().toarray()
    items = shown @ rng.standard_normal((9, 3)) + 0.1 * rng.standard_normal((n_items, 3))
    tastes = rng.standard_normal((n_users, 3)) * 0.7
    tastes[:, 0] = 1.0
    appeal = (np.arange(n_items) + 3.0) ** -0.8
    chosen = np.stack([rng.choice(n_items, per_user, replace=False, p=appeal / appeal.sum()) for _ in range(n_users)])
    users, tasks = np.repeat(np.arange(n_users), per_user), chosen.ravel()
    scores = 3 + 0.7 * np.einsum("nd,nd->n", tastes[users], items[tasks])
    values = np.clip(np.round(scores + 0.5 * rng.standard_normal(len(users))), 1, 5)
    return Interactions.from_arrays(users, tasks, values.astype(np.float32), task_ids=np.arange(n_items)), rows
