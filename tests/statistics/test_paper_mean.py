"""The paper's weighted mean of users' values: right, bounded, and honest about its error."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from apportion.allocation.users import SampleLimit, Smooth, Unbounded, optimal_threshold, weight_objective
from apportion.auditing import AuditError, audit_likelihood, audit_neighbour
from apportion.errors import InputError
from apportion.privacy import ADD_REMOVE, REPLACE_VALUES, Budget, SeededNoise, Session
from apportion.statistics.paper_mean import PaperMean

SIZES = np.array([1, 1, 2, 3, 5, 8, 30])
GROUPS = np.repeat(np.arange(len(SIZES)), SIZES)
BUDGETS = {"pure": Budget(1.0, 0.0), "gaussian": Budget(2.0, 1e-6)}


def some_values(seed=0, columns=None):
    rng = np.random.default_rng(seed)
    return rng.normal(3.0, 2.0, len(GROUPS) if columns is None else (len(GROUPS), columns))


def a_mean(**arguments):
    return PaperMean(**{"value_range": (0.0, 5.0), "noise": SeededNoise(0), **arguments})


def test_without_noise_it_is_the_weighted_mean_of_clipped_values():
    values = some_values()
    found = a_mean(epsilon=1e7, variance=4.0, bounding=Smooth(threshold=4.0)).fit(values, users=GROUPS)
    totals = np.minimum(SIZES, 4)
    expected = (np.clip(values, 0, 5) * np.repeat(totals / SIZES / totals.sum(), SIZES)).sum()
    assert found.mean_ == pytest.approx(expected, abs=1e-5)
    private = a_mean(epsilon=1e7, variance=4.0, bounding=Smooth(threshold=4.0), sizes="private")
    assert private.fit(values, users=GROUPS).mean_ == pytest.approx(expected, abs=1e-5)


def test_the_order_of_rows_and_the_kind_of_ids_do_not_matter():
    values, order = some_values(), np.random.default_rng(1).permutation(len(GROUPS))
    names = np.array([f"user {g}" for g in GROUPS])
    found = [
        a_mean(epsilon=1e7, variance=1.0).fit(v, users=g).mean_
        for v, g in ((values, GROUPS), (values[order], GROUPS[order]), (values[order].tolist(), names[order].tolist()))
    ]
    assert found == pytest.approx([found[0]] * 3, abs=1e-6)


def test_every_fit_is_of_its_own_rows_and_makes_its_own_releases():
    first, second = np.full(len(GROUPS), 1.0), np.full(len(GROUPS), 4.0)
    found = [a_mean(epsilon=1e7, variance=1.0).fit(values, users=GROUPS) for values in (first, second)]
    assert [each.mean_ for each in found] == pytest.approx([1.0, 4.0], abs=1e-5)
    session = Session(Budget(1.0, 1e-6), neighbours=REPLACE_VALUES, noise=SeededNoise(3))
    a_mean(variance=1.0).fit(second, users=GROUPS, session=session)
    assert session.spent == pytest.approx(1.0)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_threshold_minimises_the_variance_that_the_noise_and_the_values_add_up_to(delta):
    found = a_mean(epsilon=1.0, delta=delta, variance=4.0).fit(some_values(), users=GROUPS)
    share = found.statement_.releases[0]
    per_unit = 2.0 if delta == 0 else 1 / share.mu**2  # of the noise, for a total weight of 1 and a range of 1
    trade_off = 4.0 / 25 / per_unit
    assert found.threshold_ == pytest.approx(optimal_threshold(SIZES, trade_off), rel=1e-6)
    others = [weight_objective(SIZES, h, trade_off) for h in (0.5, 2.0, 10.0, 30.0)]
    assert weight_objective(SIZES, found.threshold_, trade_off) <= min(others)


def test_smooth_bounding_has_less_noise_than_none():
    smooth, none = (
        a_mean(variance=4.0, bounding=bounding).fit(some_values(), users=GROUPS) for bounding in (Smooth(), Unbounded())
    )
    assert smooth.noise_stddev_ < none.noise_stddev_ / 3
    assert smooth.interval_[1] - smooth.interval_[0] < none.interval_[1] - none.interval_[0]


def neighbours(values, seed):
    """One user's values replaced: the heaviest one's, by both ends of the range, and another's at random."""
    rng = np.random.default_rng(seed)
    for user, by in ((6, 0.0), (6, 99.0), (rng.integers(7), rng.normal(3, 9))):
        other = values.copy()
        other[user == GROUPS] = by
        yield other


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize("columns", [None, 3])
@pytest.mark.parametrize("bounding", [Smooth(), SampleLimit(), Unbounded()], ids=lambda b: type(b).__name__)
@pytest.mark.parametrize("variance", [None, 1.0], ids=["variance paid for", "variance given"])
def test_replay_on_neighbours_stays_within_every_sensitivity(budget, columns, bounding, variance):
    def fit(values, session):
        found = a_mean(bounding=bounding, variance=variance).fit(values, users=GROUPS, session=session)
        return {name: getattr(found, name) for name in ("mean_", "interval_", "variance_", "threshold_", "statement_")}

    arguments = {"budget": budget, "noise": SeededNoise(1), "neighbours": REPLACE_VALUES}
    values = some_values(columns=columns)
    ratios = [audit_neighbour(fit, values, other, arguments) for other in neighbours(values, 2)]
    assert max(max(found.values()) for found in ratios) <= 1 + 1e-9
    lowest, highest = list(neighbours(values, 2))[:2]
    assert (
        audit_neighbour(fit, lowest, highest, arguments)["mean by the paper's weights"] >= 0.9
    )  # 1 if the heaviest user has the most weight


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize("variance", [None, 1.0], ids=["variance paid for", "variance given"])
@pytest.mark.parametrize("threshold", [None, 3.0], ids=["threshold paid for", "threshold given"])
@pytest.mark.parametrize("user", range(7))
def test_with_private_sizes_a_whole_user_may_come_or_go(budget, variance, threshold, user):
    def fit(rows, session):
        values, groups = rows
        estimator = a_mean(variance=variance, sizes="private", bounding=Smooth(threshold))
        found = estimator.fit(values, users=groups, session=session)
        return {name: getattr(found, name) for name in ("mean_", "interval_", "variance_", "threshold_", "statement_")}

    arguments = {"budget": budget, "noise": SeededNoise(1), "neighbours": ADD_REMOVE}
    values = some_values() * 9
    kept = user != GROUPS
    ratios = audit_neighbour(fit, (values, GROUPS), (values[kept], GROUPS[kept]), arguments)
    assert max(ratios.values()) <= 1 + 1e-9
    assert ("sizes" in ratios) == (threshold is None)


def test_the_audit_sees_sizes_that_are_used_without_being_paid_for():
    def fit(rows, session):
        found = a_mean(variance=1.0, sizes="private", bounding=Smooth(float(np.bincount(rows[1]).max())))
        return {"mean": found.fit(rows[0], users=rows[1], session=session).mean_}

    values, kept = some_values(), GROUPS != 6
    arguments = {"budget": BUDGETS["pure"], "noise": SeededNoise(1), "neighbours": ADD_REMOVE}
    with pytest.raises(AuditError, match="where the first released"):
        audit_neighbour(fit, (values, GROUPS), (values[kept], GROUPS[kept]), arguments)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_the_best_attacker_learns_about_epsilon_and_no_more(delta):
    groups = np.repeat([0, 1, 2], [3, 1, 1])

    def fit(values, session):
        found = a_mean(epsilon=4.0, delta=delta, value_range=(0, 1), variance=0.0).fit(
            values, users=groups, session=session
        )
        return {"mean": found.mean_}

    ends = (np.array([end] * 3 + [0.5, 0.5]) for end in (0.0, 1.0))
    found = audit_likelihood(
        fit, *ends, {"budget": Budget(4.0, delta), "neighbours": REPLACE_VALUES}, noise=SeededNoise, draws=600
    )
    assert 0.5 * 4.0 <= found.lower_bound <= 4.0  # above 4 only with probability 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"variance": 1 / 12},
        {"variance": 1 / 12, "bounding": SampleLimit()},
        {"variance": 1 / 12, "delta": 1e-6},
        {},
        {"bounding": SampleLimit()},
        {"sizes": "private"},
        {"sizes": "private", "delta": 1e-6},
    ],
    ids=str,
)
def test_intervals_hold_the_truth_about_as_often_as_they_say(settings):
    rng = np.random.default_rng(5)
    groups = np.repeat(np.arange(60), rng.zipf(1.8, 60).clip(max=40))
    held, runs = 0, 400
    for run in range(runs):
        estimator = a_mean(epsilon=2.0, value_range=(0, 1), noise=SeededNoise(run), **settings)
        low, high = estimator.fit(rng.random(len(groups)), users=groups).interval_
        held += low <= 0.5 <= high
    from scipy.stats import binom

    assert held >= binom.ppf(1e-6, runs, 0.95)  # false alarms: 1e-6
    if "variance" in settings:
        assert held <= binom.ppf(1 - 1e-6, runs, 0.95)


def test_correlated_values_of_a_user_widen_the_interval_and_lower_the_threshold():
    alone, together = (
        a_mean(variance=4.0, epsilon=20.0, correlation=rho).fit(some_values(), users=GROUPS) for rho in (0.0, 0.8)
    )
    assert together.threshold_ < alone.threshold_
    assert np.ptp(together.interval_) > np.ptp(alone.interval_)
    assert "correlation" in together.statement_.to_text()


def test_columns_have_their_own_ranges():
    values = np.column_stack([some_values(0), 1000 * some_values(1)])
    found = a_mean(epsilon=1e7, value_range=([0, 0], [5, 5000]), variance=[4.0, 4e6]).fit(values, users=GROUPS)
    single = a_mean(epsilon=1e7, value_range=(0, 5000), variance=4e6).fit(values[:, 1], users=GROUPS)
    assert found.mean_.shape == (2,)
    assert found.interval_.shape == (2, 2)
    assert found.mean_[1] == pytest.approx(single.mean_, rel=1e-4)


def test_manners():
    estimator = PaperMean(epsilon=0.5, value_range=(0, 1), bounding=Smooth(3.0))
    copy = clone(estimator)
    assert copy.get_params()["bounding"] == Smooth(3.0)
    assert copy.get_params()["value_range"] == (0, 1)
    text = estimator.fit(np.full(len(GROUPS), 0.5), users=GROUPS).statement_.to_text()
    for phrase in ("how many rows each user has", "the range of values, 0 to 1", "given by hand", "0.5-differential"):
        assert phrase in text
    given = (
        PaperMean(value_range=(0, 1), variance=0.1).fit(np.full(len(GROUPS), 0.5), users=GROUPS).statement_.to_text()
    )
    assert "declared as 0.1" in given
    assert "not chosen on any data" in given


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"value_range": (1, 1)}, "low < high"),
        ({"value_range": (0, np.inf)}, "low < high"),
        ({"value_range": 3}, "value range"),
        ({"epsilon": 0}, "epsilon > 0"),
        ({"delta": 2}, "delta"),
        ({"variance": -1}, "variance of at least 0"),
        ({"level": 1.0}, "level between 0 and 1"),
        ({"variance_share": 1.0}, "below 1"),
        ({"sizes": "secret"}, "'public' or 'private'"),
        ({"sizes": "private", "bounding": Unbounded()}, "Smooth"),
        ({"correlation": 2.0}, "correlation"),
        ({"session": Session(Budget(1.0, 0.0))}, "open a session for the same neighbours"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(arguments, sentence):
    session = arguments.pop("session", None)
    with pytest.raises(InputError, match=sentence):
        a_mean(**arguments).fit(some_values(), users=GROUPS, session=session)


@pytest.mark.parametrize(
    ("values", "groups", "sentence"),
    [
        (np.append(some_values()[1:], np.nan), GROUPS, "got nan in row"),
        (some_values(), GROUPS[1:], "users to have 50 rows"),
        (["a"] * 50, GROUPS, "Expected numbers in X"),
        (some_values(), np.zeros(50, int), "user"),
    ],
)
def test_bad_data_is_refused_in_one_sentence(values, groups, sentence):
    with pytest.raises(InputError, match=sentence):
        a_mean().fit(values, users=groups)
