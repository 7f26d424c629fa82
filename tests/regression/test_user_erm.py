"""Descent on users with many rows: what one user can move, manners, statements, and models that are any good."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import t as student
from sklearn.base import clone

from apportion.allocation.users import SampleLimit, Smooth, Unbounded, optimal_threshold
from apportion.auditing import RecordingSession, audit_neighbour
from apportion.errors import BudgetError, InputError
from apportion.losses import loss_of
from apportion.postprocessing.intervals import student_half_width
from apportion.privacy import ADD_REMOVE, REPLACE_VALUES, Budget, SeededNoise, Session
from apportion.regression.user_erm import UserERM

from statistics_helpers import assert_scale

SEEDS = st.integers(0, 2**32 - 1)
TRUTH, CONSTANT = np.array([2.0, -1.0, 0.5]), 0.5
SETTINGS = {
    "logistic": {},
    "logistic, clipped gradients": {"gradient_bound": 0.3, "ridge": 0.1, "average": False},
    "squared, no intercept": {"loss": "squared", "gradient_bound": 2.0, "fit_intercept": False},
    "huber, sample limit": {"loss": "huber", "bounding": SampleLimit(2)},
    "smoothed hinge, no bound": {"loss": "smoothed-hinge", "bounding": Unbounded()},
    "logistic, given threshold": {"bounding": Smooth(2.5), "trade_off": 1.0},
    "logistic, intervals": {"interval_parts": 3},
    "squared, intervals, long steps": {"loss": "squared", "interval_parts": 2, "step_size": 5.0, "domain_radius": 2.0},
}
EACH_SETTING = pytest.mark.parametrize("arguments", SETTINGS.values(), ids=SETTINGS)


@dataclass(frozen=True)
class Rows:
    """Data of one fit."""

    x: np.ndarray
    y: np.ndarray
    groups: np.ndarray

    def replaced(self, user, x, y):
        """The same with other contents in the rows of one user."""
        own = self.groups == user
        other_x, other_y = self.x.copy(), self.y.copy()
        other_x[own], other_y[own] = x, y
        return Rows(other_x, other_y, self.groups)

    def without(self, user):
        kept = self.groups != user
        return Rows(self.x[kept], self.y[kept], self.groups[kept])


def small_rows(rng, n_users=7):
    """A few users with 1 to 8 rows of all lengths, some far beyond any bound; labels fit every loss."""
    groups = rng.permutation(np.repeat(np.arange(n_users), rng.integers(1, 9, n_users)))
    x = rng.standard_normal((len(groups), 3)) * 10.0 ** rng.integers(-3, 4, (len(groups), 1))
    return Rows(x, rng.choice([-1.0, 0.0, 1.0], len(groups)), groups)


def logistic_rows(seed=0, n_users=800, largest=40):
    """Users with long-tailed numbers of rows, and labels from a logistic model."""
    rng = np.random.default_rng(seed)
    sizes = np.minimum(rng.zipf(1.6, n_users), largest)
    groups = rng.permutation(np.repeat(np.arange(n_users), sizes))
    x = rng.standard_normal((len(groups), 3))
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.0)
    chances = 1 / (1 + np.exp(-(x @ TRUTH + CONSTANT)))
    return Rows(x, (rng.random(len(groups)) < chances).astype(float), groups)


def fitted(rows, **arguments):
    session = arguments.pop("session", None)
    defaults = {"noise": SeededNoise(1), "sizes": "public", "floor": False}
    return UserERM(**{**defaults, **arguments}).fit(rows.x, rows.y, users=rows.groups, session=session)


def audited(one, other, *, epsilon=3.0, seed=0, **arguments):
    """How far each release moved between neighbours, in declared sensitivities."""

    def fit(rows, session):
        model = fitted(rows, session=session, **{"steps": 4, **arguments})
        names = ("coef_", "intercept_", "n_steps_", "threshold_", "statement_", "coef_intervals_")
        return {name: getattr(model, name, None) for name in names}

    neighbours = ADD_REMOVE if arguments.get("sizes") == "private" else REPLACE_VALUES
    about = {"budget": Budget(epsilon, 1e-5), "noise": SeededNoise(seed), "neighbours": neighbours}
    return audit_neighbour(fit, one, other, about)


# -- what one user can move --


@EACH_SETTING
@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, epsilon=st.sampled_from([0.3, 3.0, 300.0]))
def test_replacing_all_that_a_user_has_moves_no_release_by_more_than_its_sensitivity(arguments, seed, epsilon):
    rng = np.random.default_rng(seed)
    rows = small_rows(rng)
    user = rng.integers(7)
    n_own = int((rows.groups == user).sum())
    length = 10.0 ** rng.integers(-3, 6)
    neighbour = rows.replaced(user, rng.standard_normal((n_own, 3)) * length, rng.choice([-1.0, 1.0], n_own))
    ratios = audited(rows, neighbour, epsilon=epsilon, seed=seed % 1000, **arguments)
    assert len(ratios) == 4
    assert max(ratios.values()) <= 1 + 1e-9


@EACH_SETTING
def test_no_user_with_opposite_extremes_moves_a_release_by_more_than_its_sensitivity(arguments):
    rows = small_rows(np.random.default_rng(5))
    for user in range(7):
        there = rows.replaced(user, [1e9, 0.0, 0.0], 1.0)
        for back in ([1e9, 0.0, 0.0], [-1e9, 0.0, 0.0], [0.0, 0.0, 0.0], [1e308, 1e308, 1e308]):
            ratios = audited(there, rows.replaced(user, back, -1.0), epsilon=1.0, **arguments)
            assert max(ratios.values()) <= 1 + 1e-9


@pytest.mark.parametrize("bounding", [Smooth(), Smooth(3.0), SampleLimit(3), Unbounded()], ids=repr)
@pytest.mark.parametrize("groups", [0, 2])
def test_the_heaviest_user_with_clipped_gradients_moves_every_step_by_all_of_it(bounding, groups):
    rows = small_rows(np.random.default_rng(2))
    user = np.bincount(rows.groups).argmax()
    yes, no = (rows.replaced(user, [1.0, 0.0, 0.0], label) for label in (1.0, 0.0))
    ratios = audited(yes, no, epsilon=300.0, gradient_bound=0.1, bounding=bounding, interval_parts=groups)
    assert min(ratios.values()) >= 0.99
    assert max(ratios.values()) <= 1 + 1e-9


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, epsilon=st.sampled_from([0.3, 3.0, 300.0]), threshold=st.sampled_from([None, 1.0, 3.5]))
def test_with_private_sizes_no_user_who_leaves_moves_a_release_by_more_than_its_sensitivity(seed, epsilon, threshold):
    rng = np.random.default_rng(seed)
    rows = small_rows(rng)
    arguments = {"sizes": "private", "bounding": Smooth(threshold), "max_size": 16, "ridge": 0.1}
    ratios = audited(rows, rows.without(rng.integers(7)), epsilon=epsilon, seed=seed % 1000, **arguments)
    assert list(ratios)[: len(ratios) - 4] == (["sizes"] if threshold is None else []) + ["total weight"]
    assert max(ratios.values()) <= 1 + 1e-9


def test_with_private_sizes_a_heavy_user_moves_every_release_by_all_of_it():
    rows = small_rows(np.random.default_rng(2))
    user = np.bincount(rows.groups).argmax()
    aligned = rows.replaced(user, [1.0, 0.0, 0.0], 1.0)
    arguments = {"sizes": "private", "gradient_bound": 0.1, "max_size": 4}
    ratios = audited(aligned, aligned.without(user), epsilon=300.0, **arguments)
    assert list(ratios) == ["sizes", "total weight", *(f"step {k}: gradient" for k in range(1, 5))]
    assert min(ratios.values()) >= 0.99
    assert max(ratios.values()) <= 1 + 1e-9


def test_noise_has_the_scale_that_the_statement_says():
    """False-alarm rate 1e-9; a factor of 1.1 would be seen."""
    session = RecordingSession(Budget(2.0, 1e-5), noise=SeededNoise(3), neighbours=REPLACE_VALUES)
    fitted(logistic_rows(n_users=60), steps=2800, session=session)
    stated = session.statement().releases
    assert len({release.stddev for release in stated}) == 1
    assert stated[0].stddev == pytest.approx(stated[0].sensitivity / stated[0].mu)
    noise = np.array([record.released - record.hidden for record in session.records])
    assert_scale(noise, stddev=stated[0].stddev, detect=1.1)


# -- manners --


def test_the_constructor_stores_and_clone_copies():
    estimator = UserERM("huber", 3.0, bounding=SampleLimit(4), window="2025")
    copy = clone(estimator)
    assert copy.get_params() == estimator.get_params()
    assert copy.set_params(epsilon=4.0).epsilon == 4.0
    assert estimator.epsilon == 3.0
    assert "epsilon=3.0" in repr(estimator)


@pytest.mark.parametrize("arguments", [{}, {"interval_parts": 4}, {"sizes": "private"}])
def test_the_order_of_users_rows_and_the_kind_of_ids_do_not_matter(arguments):
    rows = logistic_rows(n_users=200)
    one = fitted(rows, **arguments)
    order = np.argsort(rows.groups, kind="stable")
    named = np.array([f"user {user:04d}" for user in rows.groups[order]])
    other = fitted(Rows(rows.x[order], rows.y[order], named), **arguments)
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-9)
    assert one.intercept_ == pytest.approx(other.intercept_, rel=1e-9)


def test_inputs_are_left_untouched_and_the_same_seed_gives_the_same_model():
    rows = logistic_rows(n_users=200)
    before = [column.copy() for column in (rows.x, rows.y, rows.groups)]
    one, same, other = (fitted(rows, noise=SeededNoise(seed)) for seed in (1, 1, 2))
    for column, kept in zip((rows.x, rows.y, rows.groups), before, strict=True):
        np.testing.assert_array_equal(column, kept)
    np.testing.assert_array_equal(one.coef_, same.coef_)
    assert not np.array_equal(one.coef_, other.coef_)


def test_units_of_features_do_not_matter():
    rows = logistic_rows(n_users=200)
    one = fitted(rows, ridge=0.01)
    scaled = Rows(64 * rows.x, rows.y, rows.groups)
    other = fitted(scaled, feature_norm=64.0, domain_radius=10.0 / 64, ridge=0.01 * 64**2)
    np.testing.assert_allclose(64 * other.coef_, one.coef_, rtol=1e-9)
    assert other.intercept_ == pytest.approx(one.intercept_, rel=1e-9)


def test_labels_of_either_coding_give_the_same_model():
    rows = logistic_rows(n_users=200)
    one, other = fitted(rows), fitted(Rows(rows.x, 2 * rows.y - 1, rows.groups))
    np.testing.assert_array_equal(one.coef_, other.coef_)


def test_predictions_follow_from_the_model():
    rows = logistic_rows()
    model = fitted(rows, epsilon=5.0)
    scores = model.decision_function(rows.x)
    np.testing.assert_allclose(scores, rows.x @ model.coef_ + model.intercept_)
    np.testing.assert_array_equal(model.predict(rows.x), scores > 0)
    chances = model.predict_proba(rows.x)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    np.testing.assert_allclose(chances[:, 1], 1 / (1 + np.exp(-scores)))
    line = fitted(rows, loss="squared", gradient_bound=2.0)
    np.testing.assert_array_equal(line.predict(rows.x), line.decision_function(rows.x))
    with pytest.raises(InputError, match="loss with probabilities, such as 'logistic', got 'squared'"):
        line.predict_proba(rows.x)
    with pytest.raises(InputError, match="X with 3 columns, as in the fit, got 2"):
        model.predict(rows.x[:, :2])


# -- what is stated --


def test_the_statement_says_replace_one_user_and_sizes_public():
    rows = logistic_rows()
    model = fitted(rows, epsilon=2.0, delta=1e-6, window="May 2025", noise=None)
    statement = model.statement_
    assert statement.neighbours is REPLACE_VALUES
    assert "how many rows each user has" in statement.public
    assert any("1.41421 to which the gradient of every row is clipped" in line for line in statement.public)
    assert sum(release.share for release in statement.releases) == pytest.approx(1.0)
    assert statement.spent_epsilon <= 2.0
    assert statement.window == "May 2025"
    assert statement.releasable
    assert [release.name for release in statement.releases] == [
        f"step {step}: gradient" for step in range(1, model.n_steps_ + 1)
    ]
    assert "developed on Exam" in statement.tuning
    assert "generated data" in statement.tuning


def test_every_step_has_the_sensitivity_of_the_heaviest_user():
    rows = logistic_rows()
    sizes = np.bincount(rows.groups)
    model = fitted(rows, bounding=Smooth(3.0), gradient_bound=0.5, steps=3)
    expected = 2 * 0.5 * 3 / np.minimum(sizes, 3).sum()
    assert [release.sensitivity for release in model.statement_.releases] == pytest.approx([expected] * 3, rel=1e-6)
    assert model.threshold_ == 3.0


def test_with_private_sizes_the_statement_says_add_or_remove_and_pays_for_sizes():
    statement = fitted(logistic_rows(), sizes="private", sizes_share=0.1).statement_
    assert statement.neighbours is ADD_REMOVE
    assert not any("how many rows" in line for line in statement.public)
    shares = {release.name: release.share for release in statement.releases}
    assert shares["sizes"] == pytest.approx(0.1)
    assert shares["total weight"] == pytest.approx(0.02)
    assert sum(shares.values()) == pytest.approx(1.0)
    given_threshold = fitted(logistic_rows(), sizes="private", bounding=Smooth(2.0)).statement_
    assert "sizes" not in {release.name for release in given_threshold.releases}


@pytest.mark.parametrize(("groups", "sizes"), [(0, "public"), (5, "public"), (0, "private")])
def test_the_threshold_is_the_best_for_the_stated_trade_off(groups, sizes):
    rows = logistic_rows()
    model = fitted(rows, epsilon=4.0, delta=1e-6, interval_parts=groups, sizes=sizes)
    if sizes == "public":
        trade_off = Budget(4.0, 1e-6).mu ** 2 / (32 * 4 * max(groups, 1))
        assert model.threshold_ == pytest.approx(optimal_threshold(np.bincount(rows.groups), trade_off))
    else:  # from a noisy histogram
        trade_off = 0.93 * Budget(4.0, 1e-6).mu ** 2 / (8 * 4)
        assert model.threshold_ == pytest.approx(optimal_threshold(np.bincount(rows.groups), trade_off), rel=0.3)
    given_one = fitted(rows, trade_off=0.01)
    assert given_one.threshold_ == pytest.approx(optimal_threshold(np.bincount(rows.groups), 0.01))


def test_a_session_must_promise_the_same_neighbours_and_have_budget_left():
    rows = logistic_rows(n_users=100)
    with pytest.raises(InputError, match=r"those of this estimator .replace the contents"):
        fitted(rows, session=Session(Budget(1.0, 1e-5), noise=SeededNoise(0)))
    session = Session(Budget(1.0, 1e-5), noise=SeededNoise(0), neighbours=REPLACE_VALUES)
    fitted(rows, session=session)
    with pytest.raises(BudgetError, match="is left"):
        fitted(rows, session=session)


# -- accuracy --


def weighted_optimum(rows, weights, loss, ridge, *, intercept):
    """What an independent solver finds for Σ c ℓ + ridge ‖θ‖², rows within the unit ball."""
    x = np.column_stack([rows.x, np.ones(len(rows.y))]) if intercept else rows.x
    labels = loss.coded(rows.y) if hasattr(loss, "coded") else rows.y

    def objective(theta):
        scores = x @ theta
        value = weights @ loss.value(scores, labels) + ridge * theta @ theta
        return value, x.T @ (weights * loss.derivative(scores, labels)) + 2 * ridge * theta

    return minimize(objective, np.zeros(x.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-9}).x


@pytest.mark.parametrize("name", ["logistic", "squared", "huber", "smoothed-hinge"])
@pytest.mark.parametrize("bounding", [Smooth(3.0), SampleLimit(2), Unbounded()], ids=repr)
@pytest.mark.parametrize("intercept", [True, False])
def test_without_noise_the_model_is_the_weighted_optimum(name, bounding, intercept):
    rows = logistic_rows(n_users=150)
    arranged = np.argsort(rows.groups, kind="stable")
    in_order = Rows(rows.x[arranged], rows.y[arranged], rows.groups[arranged])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows.groups))])
    weights = bounding.row_weights(indptr, 1.0).rows
    best = weighted_optimum(in_order, weights, loss_of(name), 0.01, intercept=intercept)
    arguments = {"loss": name, "bounding": bounding, "fit_intercept": intercept, "ridge": 0.01}
    model = fitted(rows, epsilon=1e13, steps=250, average=False, **arguments)
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_)[: len(best)], best, atol=1e-3)
    assert intercept or model.intercept_ == 0.0


def test_without_noise_private_sizes_give_the_optimum_of_capped_weights():
    rows = logistic_rows(n_users=150)
    sizes = np.bincount(rows.groups)
    weights = (np.minimum(sizes, 2.0) / sizes)[rows.groups]
    best = weighted_optimum(rows, weights / weights.sum(), loss_of("logistic"), 0.01, intercept=True)
    arguments = {"sizes": "private", "bounding": Smooth(2.0), "ridge": 0.01, "steps": 250, "average": False}
    model = fitted(rows, epsilon=1e13, **arguments)
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), best, atol=1e-3)


@pytest.mark.parametrize("loss", ["logistic", "smoothed-hinge"])
@pytest.mark.parametrize("sizes", ["public", "private"])
def test_at_a_moderate_budget_it_beats_the_best_constant(loss, sizes):
    train, test = logistic_rows(0), logistic_rows(1)
    rates = [
        (fitted(train, loss=loss, epsilon=2.0, sizes=sizes, noise=SeededNoise(s)).predict(test.x) == test.y).mean()
        for s in range(5)
    ]
    constant = max(test.y.mean(), 1 - test.y.mean())
    reachable = ((test.x @ TRUTH + CONSTANT > 0) == test.y).mean()
    assert np.mean(rates) > (constant + reachable) / 2


def test_smooth_weights_predict_better_than_no_bound_at_a_moderate_budget():
    train, test = logistic_rows(0), logistic_rows(1)

    def loss(bounding):
        models = [fitted(train, epsilon=1.0, bounding=bounding, noise=SeededNoise(seed)) for seed in range(10)]
        return np.mean([np.logaddexp(0, (1 - 2 * test.y) * m.decision_function(test.x)).mean() for m in models])

    assert loss(Smooth()) < loss(Unbounded()) - 0.02


def test_coefficients_stay_within_the_domain_and_are_finite_at_a_tiny_budget():
    model = fitted(logistic_rows(n_users=50), epsilon=0.01, domain_radius=3.0, step_size=10.0, average=False)
    assert np.linalg.norm(np.append(model.coef_, model.intercept_)) == pytest.approx(3.0)


def test_more_noise_means_fewer_and_never_longer_steps():
    rows = logistic_rows()
    steps = [fitted(rows, epsilon=epsilon).n_steps_ for epsilon in (0.1, 1.0, 10.0, 1000.0, 1e7)]
    assert steps == sorted(steps)
    assert (steps[0], steps[-1]) == (20, 200)


def test_a_loss_of_ones_own_needs_a_gradient_bound_and_a_step_size():
    class Absolute:
        def value(self, scores, labels):
            return np.abs(scores - labels)

        def derivative(self, scores, labels):
            return np.sign(scores - labels)

    rows = logistic_rows(n_users=100)
    with pytest.raises(InputError, match="Expected a gradient_bound for a loss without `steepest`, got None"):
        fitted(rows, loss=Absolute())
    with pytest.raises(InputError, match="Expected a step_size for a loss without `curvature`, got None"):
        fitted(rows, loss=Absolute(), gradient_bound=1.5)
    model = fitted(rows, loss=Absolute(), gradient_bound=1.5, step_size=0.1, epsilon=1e6)
    assert np.abs(model.predict(rows.x) - rows.y).mean() < np.abs(rows.y - 0.5).mean()


# -- intervals --


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 9, 10, 29, 30, 499, 500])
@pytest.mark.parametrize("level", [0.01, 0.5, 0.95, 0.999, 1 - 1e-7])
def test_half_widths_are_those_of_students_t(degrees, level):
    assert student_half_width(level, degrees) == pytest.approx(student.isf((1 - level) / 2, degrees), rel=1e-7)


def test_an_interval_is_that_of_the_mean_of_the_parts():
    model = fitted(logistic_rows(), epsilon=20.0, interval_parts=4, level=0.9)
    assert model.coef_intervals_.shape == (3, 2)
    np.testing.assert_allclose(model.coef_intervals_.mean(axis=1), model.coef_)
    assert model.intercept_interval_.mean() == pytest.approx(model.intercept_)
    assert (np.diff(model.coef_intervals_) > 0).all()
    wider = fitted(logistic_rows(), epsilon=20.0, interval_parts=4, level=0.99)
    ratio = np.diff(wider.coef_intervals_) / np.diff(model.coef_intervals_)
    np.testing.assert_allclose(ratio, student.isf(0.005, 3) / student.isf(0.05, 3))
    assert model.statement_.releases[0].shape == (4, 4)
    assert any("which of 4 parts each user is in" in line for line in model.statement_.public)
    assert fitted(logistic_rows(n_users=50)).coef_intervals_ is None


def test_intervals_cover_the_truth_where_the_budget_lets_descents_arrive():
    """160 independent fits at level 0.9; with coverage 0.88 the false-alarm rate is below 1e-3 for each coefficient."""
    hits = np.zeros(4)
    for seed in range(160):
        model = fitted(logistic_rows(seed, 600), epsilon=20.0, interval_parts=5, level=0.9, noise=SeededNoise(seed))
        ends = np.vstack([model.coef_intervals_, model.intercept_interval_])
        truth = np.append(TRUTH, CONSTANT)
        hits += (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    assert (hits >= 0.79 * 160).all()
    assert hits.mean() <= 0.97 * 160  # not so wide that they say nothing


# -- refusals --


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"delta": 0.0}, "Expected a delta above 0, because noise on many gradients needs one, got 0"),
        ({"epsilon": -1.0}, "epsilon > 0, got -1"),
        ({"feature_norm": 0.0}, "finite feature_norm > 0, got 0"),
        ({"gradient_bound": np.inf}, "finite gradient_bound > 0, got inf"),
        ({"domain_radius": -2.0}, "finite domain_radius > 0, got -2"),
        ({"ridge": -1.0}, "finite ridge >= 0, got -1"),
        ({"trade_off": 0.0}, "finite trade_off > 0, got 0"),
        ({"step_size": 0.0}, "finite step_size > 0, got 0"),
        ({"steps": 0}, "steps of at least 1, got 0"),
        ({"interval_parts": 1}, "interval_parts of 0, or at least 2, got 1"),
        ({"interval_parts": 1000}, "at least 1000 users, one for each part"),
        ({"interval_parts": 3, "sizes": "private"}, "public sizes for intervals"),
        ({"level": 1.0}, "level strictly between 0 and 1, got 1"),
        ({"sizes": "secret"}, "sizes to be 'public' or 'private', got 'secret'"),
        ({"sizes": "private", "bounding": SampleLimit(2)}, "Smooth weights if sizes are private, got SampleLimit"),
        ({"sizes": "private", "sizes_share": 0.99}, "sizes_share below 0.98, got 0.99"),
        ({"loss": "hinge"}, "Expected a loss among"),
    ],
    ids=str,
)
def test_bad_arguments_get_one_sentence(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        fitted(logistic_rows(n_users=30), **arguments)


def test_bad_data_get_one_sentence():
    rows = logistic_rows(n_users=30)
    with pytest.raises(InputError, match=r"labels 0 and 1, or -1 and 1, for the logistic loss, got 0\.5"):
        fitted(Rows(rows.x, np.full(len(rows.y), 0.5), rows.groups))
    session = Session(Budget(1.0, 1e-5), noise=SeededNoise(0), neighbours=ADD_REMOVE)
    with pytest.raises(InputError, match=r"labels 0 and 1, or -1 and 1, for the logistic loss, got 0\.5"):
        fitted(Rows(rows.x, np.full(len(rows.y), 0.5), rows.groups), sizes="private", session=session)
    assert session.spent == 0.0
    with pytest.raises(InputError, match="finite numbers in X, got nan in row 1, column 1"):
        fitted(Rows(np.full_like(rows.x, np.nan), rows.y, rows.groups))
    with pytest.raises(InputError, match=r"y to have .* rows, one per row of X"):
        fitted(Rows(rows.x, rows.y[:5], rows.groups))
    with pytest.raises(InputError, match=r"users to have .* rows"):
        fitted(Rows(rows.x, rows.y, rows.groups[:5]))
    with pytest.raises(InputError, match="same user"):
        fitted(Rows(rows.x, rows.y, np.zeros(len(rows.y), int)))
