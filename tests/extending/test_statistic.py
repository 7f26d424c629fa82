"""A new statistic: what one user contributes is a function; clipping, noise, statement and audit come with it."""

from __future__ import annotations

import numpy as np

from apportion.auditing import audit
from apportion.data import Interactions
from apportion.privacy import Budget, SeededNoise, Session
from extending.statistic.share_of_rows import mean_share_above


def ratings(n_users=400):
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(n_users), 5)
    return Interactions.from_arrays(users, np.tile(np.arange(5), n_users), rng.integers(1, 6, 5 * n_users))


def test_the_statistic_is_near_the_truth_and_its_statement_complete():
    data = ratings()
    session = Session(Budget(2.0, 1e-6), noise=SeededNoise(0))
    found, statement = mean_share_above(data.as_users, 3.0, 2.0, 1e-6, session=session)
    truth = np.mean(data.values.reshape(-1, 5) > 3)
    assert abs(found - truth) < 0.1
    assert [release.name for release in statement.releases] == ["shares"]
    assert statement.spent_epsilon <= 2.0


def test_record_and_replay_finds_its_sensitivity_right():
    def fit(data, session):
        return {"share": mean_share_above(data.as_users, 3.0, 1.0, 1e-6, session=session)[0]}

    (finding,) = audit(fit, ratings(20), 3, {"budget": Budget(1.0, 1e-6), "noise": SeededNoise(0)})
    assert finding.ratio <= 1 + 1e-9
    assert finding.gap < 1e-9
