"""What both regressions promise: manners, statements, refusals, accuracy where noise is small."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from apportion.allocation import Adaptive, ClosedForm, EqualSplit, KnownCounts, TailSample, UniformSample
from apportion.auditing import RecordingSession
from apportion.errors import BudgetError, InputError
from apportion.privacy import Budget, Purpose, SeededNoise, Session
from apportion.regression import MultiTaskERM, MultiTaskRidge, Observations

from statistics_helpers import assert_scale

BOTH = pytest.mark.parametrize("make", [MultiTaskRidge, MultiTaskERM])
ALLOCATIONS = pytest.mark.parametrize(
    "allocation",
    [EqualSplit(), Adaptive(0.5), ClosedForm(0.5), UniformSample(3), TailSample(3)],
    ids=lambda policy: type(policy).__name__,
)


def linear_tasks(seed=0, n_users=300, n_tasks=6, dimension=3, tasks_per_user=4):
    """Rows of linear tasks in the unit ball, in random order: X, y, tasks, groups, and the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((n_tasks, dimension))
    truth *= 0.8 / np.linalg.norm(truth, axis=1, keepdims=True)
    users = np.repeat(np.arange(n_users), tasks_per_user)
    tasks = np.concatenate([rng.choice(n_tasks, tasks_per_user, replace=False) for _ in range(n_users)])
    x = rng.uniform(-0.5, 0.5, (len(users), dimension))
    y = np.einsum("nd,nd->n", x, truth[tasks])
    order = rng.permutation(len(users))
    return x[order], y[order], tasks[order], users[order], truth


def fitted(estimator, data, **arguments):
    x, y, tasks, users, _ = data
    return estimator.fit(x, y, tasks=tasks, users=users, **arguments)


# -- scikit-learn's manners --


@BOTH
def test_the_constructor_stores_and_clone_copies(make):
    estimator = make(epsilon=3.0, allocation=EqualSplit(), window="2025")
    copy = clone(estimator)
    assert copy.get_params() == estimator.get_params()
    assert copy.set_params(epsilon=4.0).epsilon == 4.0
    assert estimator.epsilon == 3.0
    assert "epsilon=3.0" in repr(estimator)
    with pytest.raises(ValueError, match="'nonsense'"):
        copy.set_params(nonsense=1)


@BOTH
def test_the_same_seed_gives_the_same_model_and_another_seed_another(make):
    data = linear_tasks()
    models = [fitted(make(noise=SeededNoise(s)), data) for s in (1, 1, 2)]
    one, same, other = (np.append(model.coef_, getattr(model, "intercept_", 0.0)) for model in models)
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


@BOTH
def test_the_order_of_rows_and_the_kind_of_ids_do_not_matter(make):
    x, y, tasks, users, _ = linear_tasks(n_tasks=6)
    one = make(noise=SeededNoise(1)).fit(x, y, tasks=tasks, users=users)
    back = np.arange(len(y))[::-1]
    names = np.array([f"user {user:04d}" for user in users])
    titles = np.array([f"task {task}" for task in tasks])
    other = make(noise=SeededNoise(1)).fit(x[back], y[back], tasks=titles[back], users=names[back])
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-9, atol=1e-9)
    assert list(other.task_ids_) == [f"task {task}" for task in range(6)]
    np.testing.assert_allclose(one.predict(x, tasks=tasks), other.predict(x, tasks=titles), rtol=1e-9, atol=1e-9)


@BOTH
def test_inputs_are_left_untouched(make):
    data = linear_tasks()
    before = [np.array(column) for column in data]
    fitted(make(noise=SeededNoise(0)), data)
    for column, kept in zip(data, before, strict=True):
        np.testing.assert_array_equal(column, kept)


@BOTH
def test_a_tiny_budget_gives_finite_coefficients(make):
    assert np.isfinite(fitted(make(epsilon=0.01, noise=SeededNoise(0)), linear_tasks()).coef_).all()


# -- what is released and stated --


@BOTH
@ALLOCATIONS
def test_the_whole_budget_is_spent_and_the_statement_says_on_what(make, allocation):
    estimator = fitted(make(allocation=allocation, epsilon=2.0, window="May 2025"), linear_tasks(), task_ids=range(6))
    statement = estimator.statement_
    assert sum(release.share for release in statement.releases) == pytest.approx(1.0)
    assert statement.spent_epsilon <= 2.0
    assert statement.window == "May 2025"
    assert statement.releasable
    assert statement.releases[0].name == "number of users"
    names = [release.name for release in statement.releases]
    assert ("popularity" in names) == (allocation.releases > 0)
    assert ("exposure" in names) == isinstance(allocation, EqualSplit | UniformSample | TailSample)
    assert any("6 tasks, as given" in line for line in statement.public)
    assert any("to which features are clipped" in line for line in statement.public)


def test_each_statistic_is_released_once_for_all_tasks_with_its_own_bound():
    settings = {"feature_norm": 2.0, "label_bound": 3.0, "n_users": 300, "allocation": EqualSplit()}
    statement = fitted(MultiTaskRidge(exposure_share=0, **settings), linear_tasks()).statement_
    assert [(r.name, r.shape, r.sensitivity) for r in statement.releases] == [
        ("Gram matrices", (6, 6), 4.0),
        ("moments", (6, 3), 6.0),
    ]
    assert any("declared as 300" in line for line in statement.public)
    assert any("bound 3 to which labels" in line for line in statement.public)
    assert "by hand" in statement.tuning


def test_every_step_is_released_with_the_gradient_bound_as_sensitivity():
    estimator = fitted(MultiTaskERM(floor=False, steps=5, gradient_bound=0.3), linear_tasks())
    steps = [r for r in estimator.statement_.releases if r.purpose is Purpose.GRADIENT]
    assert [r.name for r in steps] == [f"step {k}: gradient" for k in range(1, 6)]
    assert [r.sensitivity for r in steps] == pytest.approx([0.3] * 5)
    assert len({r.stddev for r in steps}) == 1
    assert any("0.3 to which each gradient" in line for line in estimator.statement_.public)


@BOTH
def test_public_counts_are_declared_and_nothing_is_released_for_them(make):
    allocation = KnownCounts(Adaptive(0.5), np.full(6, 200.0), 300)
    statement = fitted(make(allocation=allocation), linear_tasks()).statement_
    assert not {"number of users", "popularity", "exposure"} & {release.name for release in statement.releases}
    assert any("as given" in line and "users" in line for line in statement.public)


@BOTH
def test_tasks_taken_from_the_data_are_said_to_be_revealed(make):
    statement = fitted(make(), linear_tasks()).statement_
    assert any("taken from the data itself" in line for line in statement.public)


@BOTH
def test_a_session_that_cannot_pay_refuses_before_anything_is_learned(make):
    session = Session(Budget(1.0, 1e-5), noise=SeededNoise(0))
    fitted(make(), linear_tasks(), session=session)
    again = make()
    with pytest.raises(BudgetError, match="is left"):
        fitted(again, linear_tasks(), session=session)
    assert not hasattr(again, "coef_")


@BOTH
def test_noise_has_the_scale_that_the_statement_says(make):
    """False-alarm rate 1e-9 for each release; a factor of 1.1 would be seen."""
    data = linear_tasks(n_users=400, n_tasks=3000, dimension=4, tasks_per_user=5)
    session = RecordingSession(Budget(2.0, 1e-5), noise=SeededNoise(3))
    settings = {"steps": 2} if make is MultiTaskERM else {}
    fitted(make(**settings), data, session=session, task_ids=range(3000))
    seen = 0
    for record, stated in zip(session.records, session.statement().releases, strict=True):
        if record.hidden.size < 12000:
            continue
        scales = 1.0 if record.scales is None else record.scales
        assert_scale((record.released - record.hidden) / scales, stddev=stated.stddev, detect=1.1)
        assert stated.stddev == pytest.approx(stated.sensitivity / stated.mu)
        seen += 1
    assert seen == 2


# -- accuracy --


@pytest.mark.parametrize("solve", ["psd", "shrunk"])
@pytest.mark.parametrize("allocation", [EqualSplit(), Adaptive(0.5), ClosedForm(0.5), UniformSample(3)])
def test_a_ridge_with_a_huge_budget_recovers_the_truth(solve, allocation):
    data = linear_tasks()
    estimator = MultiTaskRidge(1e6, solve=solve, allocation=allocation, ridge=0.0, noise=SeededNoise(0))
    np.testing.assert_allclose(fitted(estimator, data).coef_, data[-1], atol=2e-3)
    x, y, tasks = data[:3]
    np.testing.assert_allclose(estimator.predict(x, tasks=tasks), y, atol=2e-3)


@pytest.mark.parametrize("loss", ["squared", "huber"])
@pytest.mark.parametrize("average", [True, False])
def test_descent_with_a_huge_budget_approaches_the_truth(loss, average):
    data = linear_tasks()
    settings = {"steps": 300, "step_size": 3.0, "average": average}
    estimator = fitted(MultiTaskERM(loss, 1e6, noise=SeededNoise(0), **settings), data)
    np.testing.assert_allclose(estimator.coef_, data[-1], atol=0.05)
    assert estimator.n_steps_ == 300


def test_a_ridge_with_a_huge_budget_is_the_ridge_regression_of_eq_4():
    x, y, tasks, users, _ = linear_tasks(tasks_per_user=1, n_users=600)
    estimator = MultiTaskRidge(1e7, ridge=0.2, allocation=EqualSplit(), noise=SeededNoise(0), solve="psd")
    found = estimator.fit(x, y, tasks=tasks, users=users).coef_
    for task in range(6):
        own, labels = x[tasks == task], y[tasks == task]
        by_hand = np.linalg.solve(own.T @ own + 0.2 * len(own) * np.eye(3), own.T @ labels)
        np.testing.assert_allclose(found[task], by_hand, atol=1e-3)


def test_the_shrunk_solve_is_better_than_the_paper_s_at_a_small_budget():
    data = linear_tasks(n_users=2000, n_tasks=40, dimension=4, tasks_per_user=6)
    errors = {}
    for solve in ("psd", "shrunk"):
        found = [fitted(MultiTaskRidge(2.0, solve=solve, noise=SeededNoise(s)), data).coef_ for s in range(5)]
        errors[solve] = np.mean([np.square(coefficients - data[-1]).sum() for coefficients in found])
    assert errors["shrunk"] < 0.5 * errors["psd"]


def test_a_task_that_nobody_has_is_drawn_towards_zero():
    """Noise over noise would be of any length; shrunk, it is short beside the other tasks' 0.8."""
    x, y, tasks, users, _ = linear_tasks()
    found = [
        MultiTaskRidge(50.0, noise=SeededNoise(seed)).fit(x, y, tasks=tasks, users=users, task_ids=range(7)).coef_
        for seed in range(10)
    ]
    lengths = np.linalg.norm(found, axis=2)
    assert lengths.shape == (10, 7)
    assert lengths[:, 6].mean() < 0.25
    assert lengths[:, :6].min() > 0.4


def test_coefficients_stay_within_their_bound():
    data = linear_tasks()
    for estimator in (
        MultiTaskRidge(0.5, solve="psd", coefficient_bound=0.3, noise=SeededNoise(0)),
        MultiTaskERM("squared", 0.5, domain_radius=0.3, floor=False, noise=SeededNoise(0)),
    ):
        lengths = np.linalg.norm(fitted(estimator, data).coef_, axis=1)
        assert lengths.max() <= 0.3 * (1 + 1e-12)
        assert lengths.max() > 0.1


def test_the_logistic_loss_learns_which_answer_is_likelier_from_either_coding():
    x, y, tasks, users, _ = linear_tasks(n_users=1500)
    settings = {"epsilon": 50.0, "steps": 100, "domain_radius": 5.0, "step_size": 2.0}
    one, other = (
        MultiTaskERM("logistic", noise=SeededNoise(0), **settings).fit(x, coded, tasks=tasks, users=users)
        for coded in ((y > 0).astype(int), np.where(y > 0, 1, -1))
    )
    np.testing.assert_array_equal(one.coef_, other.coef_)
    predicted = one.predict(x, tasks=tasks)
    assert set(predicted) == {0.0, 1.0}
    assert (predicted == (y > 0)).mean() > 0.9
    np.testing.assert_array_equal(one.decision_function(x, tasks=tasks) > 0, predicted > 0)


def test_the_ridge_of_a_strongly_convex_descent_is_that_of_the_objective():
    x, y, tasks, users, _ = linear_tasks(tasks_per_user=1, n_users=600)
    estimator = MultiTaskERM(
        "squared", 1e6, ridge=0.3, rule="strongly convex", steps=400, allocation=EqualSplit(), noise=SeededNoise(0)
    )
    found = estimator.fit(x, y, tasks=tasks, users=users).coef_
    for task in range(6):
        own, labels = x[tasks == task], y[tasks == task]
        by_hand = np.linalg.solve(own.T @ own + 0.3 * len(own) * np.eye(3), own.T @ labels)
        np.testing.assert_allclose(found[task], by_hand, atol=5e-3)


# -- what the sums hold --


def hidden_of(estimator, rows, name):
    session = RecordingSession(Budget(5.0, 1e-5), noise=SeededNoise(0))
    estimator.fit_observations(rows, session=session)
    return next(record.hidden for record in session.records if record.name == name)


def test_the_ridge_is_not_in_the_released_sum():
    rows = Observations.from_arrays(*linear_tasks()[:4])
    plain, penalised = (hidden_of(MultiTaskRidge(ridge=r), rows, "Gram matrices") for r in (0.0, 100.0))
    np.testing.assert_array_equal(plain, penalised)
    first, second = (
        hidden_of(MultiTaskERM(ridge=r, steps=1, floor=False), rows, "step 1: gradient") for r in (0.0, 100.0)
    )
    np.testing.assert_array_equal(first, second)


def test_each_gradient_is_clipped_before_it_is_weighted_and_added():
    x, y, tasks, users, _ = linear_tasks(tasks_per_user=1)
    x = 3 * x  # beyond the norm of 1 for many
    bound = 0.2
    estimator = MultiTaskERM("squared", steps=1, floor=False, gradient_bound=bound, allocation=EqualSplit())
    found = hidden_of(estimator, Observations.from_arrays(x, y, tasks, users), "step 1: gradient")
    clipped = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.0)
    gradients = -2 * y[:, None] * clipped  # at theta = 0
    lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
    gradients *= np.minimum(1.0, bound / np.maximum(lengths, 1e-12))
    assert 0.1 < (lengths > bound).mean() < 0.95
    by_hand = np.stack([gradients[tasks == task].sum(axis=0) for task in range(6)])
    np.testing.assert_allclose(found, by_hand, rtol=1e-4, atol=1e-4)


# -- refusals --


@BOTH
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": "nan"}, r"Expected finite numbers in X, got nan in row 3, column 2"),
        ({"y": "nan"}, r"Expected finite numbers in y, got nan in row 3"),
        ({"x": "flat"}, r"Expected X as a matrix with at least one column, got shape \(1200,\)"),
        ({"x": "text"}, r"Expected numbers in X"),
        ({"y": "short"}, r"Expected y to have 1200 rows, one per row of X, got shape \(7,\)"),
        ({"tasks": "short"}, r"Expected tasks to have 1200 rows, one per row of data, got \(7,\)"),
        ({"users": "short"}, r"Expected users to have 1200 rows, one per row of data, got \(7,\)"),
        ({"users": "one"}, r"Column 'users' holds the same user 5 in every row"),
    ],
)
def test_bad_data_get_one_sentence(make, change, message):
    x, y, tasks, users, _ = linear_tasks()
    columns = {"x": x, "y": y, "tasks": tasks, "users": users}
    ((name, how),) = change.items()
    if how == "nan":
        columns[name][(2, 1) if name == "x" else 2] = np.nan
    elif how == "short":
        columns[name] = columns[name][:7]
    elif how == "flat":
        columns[name] = columns[name][:, 0]
    elif how == "text":
        columns[name] = columns[name].astype(object)
        columns[name][0, 0] = "much"
    elif how == "one":
        columns[name] = np.full(len(y), 5)
    else:
        columns["users"], columns["tasks"] = users.copy(), tasks.copy()
        columns["users"][1], columns["tasks"][1] = users[0], tasks[0]
    with pytest.raises(InputError, match=message):
        make().fit(columns["x"], columns["y"], tasks=columns["tasks"], users=columns["users"])


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (MultiTaskRidge, {"epsilon": -1.0}, r"epsilon > 0, got -1"),
        (MultiTaskRidge, {"delta": 2.0}, r"delta of 0, or above .* got 2"),
        (MultiTaskRidge, {"n_users": 0}, r"at least 1, got 0"),
        (MultiTaskRidge, {"feature_norm": 0.0}, r"feature_norm > 0, got 0"),
        (MultiTaskRidge, {"label_bound": np.inf}, r"label_bound > 0, got inf"),
        (MultiTaskRidge, {"ridge": -1.0}, r"ridge >= 0, got -1"),
        (MultiTaskRidge, {"solve": "exact"}, r"solve to be one of 'shrunk', 'psd', got 'exact'"),
        (MultiTaskRidge, {"gram_share": 1.0}, r"gram_share strictly between 0 and 1, got 1"),
        (MultiTaskRidge, {"coefficient_bound": -2.0}, r"coefficient_bound > 0, got -2"),
        (MultiTaskRidge, {"counts_share": 0.0}, r"counts_share strictly between 0 and 1, got 0"),
        (MultiTaskRidge, {"exposure_share": 1.0}, r"exposure_share of at least 0 and below 1, got 1"),
        (MultiTaskRidge, {"counts_share": 0.6, "exposure_share": 0.5}, r"sum to less than 1, got 1.103"),
        (MultiTaskERM, {"loss": "hinge"}, r"Expected a loss among .* got 'hinge'"),
        (MultiTaskERM, {"domain_radius": -1.0}, r"domain_radius > 0, got -1"),
        (MultiTaskERM, {"gradient_bound": 0.0}, r"gradient_bound > 0, got 0"),
        (MultiTaskERM, {"step_size": 0.0}, r"step_size > 0, got 0"),
        (MultiTaskERM, {"rule": "newton"}, r"one of the rules 'convex', 'strongly convex', got 'newton'"),
        (MultiTaskERM, {"rule": "strongly convex"}, r"strong_convexity > 0 .* got 0"),
        (MultiTaskERM, {"steps": 0}, r"steps of at least 1, got 0"),
        (MultiTaskERM, {"max_steps": 0}, r"max_steps of at least 1, got 0"),
        (MultiTaskERM, {"loss": "logistic"}, r"labels 0 and 1, or -1 and 1, for the logistic loss, got "),
    ],
)
def test_bad_arguments_get_one_sentence_and_nothing_is_spent(make, arguments, message):
    session = Session(Budget(1.0, 1e-5), noise=SeededNoise(0))
    with pytest.raises(InputError, match=message):
        fitted(make(**arguments), linear_tasks(), session=session)
    assert session.spent == 0.0


@BOTH
def test_predictions_need_known_tasks_and_the_same_features(make):
    x, y, tasks, users, _ = linear_tasks()
    estimator = make(noise=SeededNoise(0)).fit(x, y, tasks=tasks, users=users)
    with pytest.raises(InputError, match="There is no task 99 among the 6 known ones"):
        estimator.predict(x[:1], tasks=[99])
    with pytest.raises(InputError, match="Expected X with 3 columns, as in the fit, got 2"):
        estimator.predict(x[:, :2], tasks=tasks)
    with pytest.raises(InputError, match="Expected tasks to have 2 rows, one per row of X, got 1"):
        estimator.predict(x[:2], tasks=[0])


class Cubic:
    """A convex loss of a user's own: |s − y|³, without anything that is not needed."""

    def value(self, scores, labels):
        return np.abs(scores - labels) ** 3

    def derivative(self, scores, labels):
        return 3 * np.sign(scores - labels) * np.square(scores - labels)


def test_a_loss_of_one_s_own_needs_a_gradient_bound_and_then_works():
    data = linear_tasks()
    with pytest.raises(InputError, match="Expected a gradient_bound for a loss without `steepest`"):
        fitted(MultiTaskERM(Cubic()), data)
    estimator = MultiTaskERM(Cubic(), 1e6, gradient_bound=0.3, steps=300, step_size=10.0, noise=SeededNoise(0))
    found = fitted(estimator, data).coef_
    assert np.square(found - data[-1]).sum() < 0.1 * np.square(data[-1]).sum()


def test_a_loss_that_gives_no_number_is_refused():
    class Broken(Cubic):
        def derivative(self, scores, labels):
            return np.full_like(scores, np.nan)

    with pytest.raises(InputError, match="Expected finite derivatives of the loss, got NaN or infinity"):
        fitted(MultiTaskERM(Broken(), gradient_bound=1.0), linear_tasks())


def test_features_whose_length_overflows_count_as_nothing():
    x, y, tasks, users, _ = linear_tasks()
    x[0] = 1e200
    for estimator in (MultiTaskRidge(noise=SeededNoise(0)), MultiTaskERM(noise=SeededNoise(0))):
        assert np.isfinite(estimator.fit(x, y, tasks=tasks, users=users).coef_).all()


@BOTH
def test_an_engine_on_torch_gives_the_same(make):
    pytest.importorskip("torch")
    from apportion.engines import TorchEngine

    data = linear_tasks()
    local = fitted(make(noise=SeededNoise(1)), data).coef_
    on_torch = fitted(make(noise=SeededNoise(1), engine=TorchEngine("cpu", np.float64)), data).coef_
    np.testing.assert_allclose(on_torch, local, rtol=1e-6, atol=1e-8)
