"""Record and replay of what needs torch: encoders of public features and trained modules, each in a small form."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from apportion.privacy import Budget, SeededNoise, Session
from private_torch import PRIVATE_ENCODERS, PRIVATE_TRAINERS, published_module, trainer, units_of

from private_estimators import audits_with_torch
from strategies import random_interactions

AUDITS = audits_with_torch()


@pytest.mark.parametrize("audit", AUDITS.values(), ids=AUDITS)
def test_no_release_moves_by_more_than_its_sensitivity_when_any_user_leaves(audit):
    reached = 0.0
    for seed in range(2):
        findings = audit(random_interactions(seed), 3 * seed, epsilon=5.0, seed=seed)
        assert len(findings) >= 3
        for finding in findings:
            assert finding.ratio <= 1 + 1e-9, finding
            assert finding.gap <= 1e-7, finding
        reached = max(reached, *(finding.ratio for finding in findings))
    assert reached > 0.5


def test_every_estimator_that_needs_torch_is_audited():
    assert len(AUDITS) == len(PRIVATE_ENCODERS) + len(PRIVATE_TRAINERS)
    made = {type(make(features=None)).__name__ for make in PRIVATE_ENCODERS.values()}
    assert made == {"EncoderMinimisation", "ConvexMinimisation", "JointGradient"}
    updates = {type(make(features=None).update).__name__ for make in PRIVATE_ENCODERS.values()}
    assert updates == {"EncoderStatistics", "EncoderGradient", "EncoderConvex", "CollectiveFactorisation"}


def test_a_training_on_nobody_is_noise_and_spends_the_budget():
    data = random_interactions(0)
    nobody = data.where(np.zeros(data.n_observations, bool))
    session = Session(Budget(2.0, 1e-5), noise=SeededNoise(1))
    found = published_module(trainer()().fit(units_of(nobody), session=session))
    assert all(np.isfinite(value).all() for value in found.values() if isinstance(value, np.ndarray))
    assert 1 - 1e-9 <= session.spent <= 1.0
