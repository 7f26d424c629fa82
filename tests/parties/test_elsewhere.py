"""Parties that keep their rows: an engine adds up what they send, and the releases are those of a fit in one place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.auditing.hidden_values import raw_value
from apportion.engines import LocalEngine, add_up_one
from apportion.errors import InputError
from apportion.federated import FederatedEngine, NoisyClientsEngine, RefusedError, SimulatedClients, Stage, Trust
from apportion.parties import ProtectedMultiTask, learn_elsewhere, parties_of
from apportion.privacy import SeededNoise
from apportion.privacy.neighbours import ADD_REMOVE_TASK, REPLACE_TASK
from apportion.privacy.party_sums import PartForm
from apportion.privacy.task_sums import MomentWeights, SizedModels, TaskModels

from party_cases import low_rank_tasks

N = 12
SETTINGS = {
    "em": {"rounds": 2},
    "whole posteriors": {"rounds": 2, "contribution": "posterior"},
    "whole posteriors, clipped": {"rounds": 2, "contribution": "posterior", "clip_norm": 0.5},
    "with intercepts": {"rounds": 2, "fit_intercept": True},
    "clipped": {"clip_norm": 2.0, "structure": "low-rank", "rounds": 3},
    "group-sparse": {"structure": "group-sparse", "rounds": 2},
    "sparse": {"structure": "low-rank+sparse", "rounds": 2},
    "logistic": {"loss": "logistic", "structure": "low-rank", "rounds": 2},
}


def wanted(**given):
    settings = {"epsilon": 20.0, "delta": 1e-5, "n_tasks": N, "neighbours": ADD_REMOVE_TASK, "noise": SeededNoise(1)}
    return ProtectedMultiTask(**{**settings, **given})


@pytest.mark.parametrize("given_settings", SETTINGS.values(), ids=SETTINGS)
def test_releases_and_models_are_those_of_a_fit_in_one_place(given_settings):
    x, y = low_rank_tasks(3, N, logistic=given_settings.get("loss") == "logistic")
    together = wanted(**given_settings).fit(x, y)
    apart = learn_elsewhere(wanted(**given_settings), FederatedEngine(Trust(N)), parties_of(x, y))
    for one, other in zip(together.released_, apart.released, strict=True):
        assert np.array_equal(one.matrix, other.matrix)
        assert np.array_equal(one.shared, other.shared)
    for task in (0, 7):
        own, mine = apart.learned(x[task], y[task], task), together.party(task)
        assert np.array_equal(own.model, mine.model)
        assert np.array_equal(own.alone, mine.alone)
        assert (own.intercept, own.own_weight) == pytest.approx((mine.intercept, mine.own_weight), rel=1e-12)
    assert "exact sums over at least 11 of 12 clients" in apart.statement.to_text()


def test_parties_who_draw_the_noise_leave_the_server_without_a_sum():
    x, y = low_rank_tasks(3, N)
    engine = NoisyClientsEngine(Trust(N, colluding=2, dropping=3))
    apart = learn_elsewhere(wanted(), engine, parties_of(x, y))
    exact = learn_elsewhere(wanted(epsilon=1e6), LocalEngine(np.float64), parties_of(x, y))
    gap = apart.released[0].matrix - exact.released[0].matrix
    assert 0.3 < np.abs(np.diag(gap)).mean() / apart.released[0].stddev < 3
    assert "clients draw the noise" in apart.statement.to_text()


def test_a_party_that_leaves_is_not_in_the_sum_and_too_many_end_the_pass():
    x, y = low_rank_tasks(3, N)
    one_gone = FederatedEngine(Trust(N, dropping=1), SimulatedClients({5: Stage.MASK}))
    found = learn_elsewhere(wanted(), one_gone, parties_of(x, y))
    without = parties_of(x[:5] + x[6:], y[:5] + y[6:])
    expected = learn_elsewhere(wanted(), LocalEngine(np.float64), without)
    assert np.array_equal(found.released[0].matrix, expected.released[0].matrix)
    two_gone = FederatedEngine(Trust(N, dropping=1), SimulatedClients({5: Stage.MASK, 6: Stage.MASK}))
    with pytest.raises(RefusedError):
        learn_elsewhere(wanted(), two_gone, parties_of(x, y))


def test_what_has_no_form_elsewhere_is_refused_before_anything_is_spent():
    x, y = low_rank_tasks(3, N)
    for given_settings in ({"instance_epsilon": 1.0}, {"n_tasks": None}):
        with pytest.raises(InputError, match="where parties are somewhere else"):
            learn_elsewhere(wanted(**given_settings), LocalEngine(np.float64), parties_of(x, y))


def test_exact_noise_is_added_to_the_whole_numbers_of_parties():
    x, y = low_rank_tasks(3, N)
    model = wanted(noise=SeededNoise(1, exact=True)).fit(x, y)
    assert "whole numbers of public steps" in model.statement_.to_text()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6), norm=st.floats(1e-3, 1e3), replaced=st.booleans(),
    weights=st.none() | st.builds(MomentWeights, st.floats(0.01, 2.0), st.floats(0.01, 1.0)),
)  # fmt: skip
def test_any_grouping_of_parties_gives_the_same_whole_numbers_within_the_bound(seed, norm, replaced, weights):
    rng = np.random.default_rng(seed)
    models, sizes = rng.standard_normal((7, 3)) * 10 ** rng.uniform(-3, 3), rng.random(7)
    form = PartForm(3, norm, REPLACE_TASK if replaced else ADD_REMOVE_TASK, weights=weights, equal_lengths=True)

    def total(chosen):
        if weights is None:
            return form.whole(TaskModels.scaled(models[chosen], norm))
        return form.whole(SizedModels.of(models[chosen], sizes[chosen], norm, scaled=True))

    whole = total(slice(0, 7))
    assert np.array_equal(whole, total(slice(0, 2)) + total(slice(2, 7)))
    moved = (whole - total(slice(1, 7))) * form.step
    scales = form.sealed(whole).scales
    assert np.linalg.norm(moved / scales) <= form.sealed(whole).l2_sensitivity


def test_a_party_without_rows_adds_nothing():
    x, y = low_rank_tasks(3, N)
    estimator = wanted()
    session = estimator.opened(None, 6, N)
    curator = estimator.curator(session, 6, N)
    parts = estimator.side(curator.form.weights).parts((), curator.form)
    nobody = parties_of([x[0][:0]], [y[0][:0]])
    assert not raw_value(add_up_one(LocalEngine(np.float64), nobody, parts)).any()
