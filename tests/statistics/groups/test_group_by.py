"""Statistics by group: right with a large budget, within every sensitivity, silent on groups that are not listed."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from apportion.auditing import audit_neighbour
from apportion.auditing.statements import check_statement
from apportion.engines import LocalEngine
from apportion.errors import InputError
from apportion.postprocessing.class_counts import class_counts
from apportion.privacy import ADD_REMOVE, Budget, SeededNoise, Session
from apportion.statistics import UserGroupBy

ALL = ("count", "users", "sum", "mean", "variance", "histogram", "quantile")
LAWS = ("gaussian", "laplace")
NAMES = ("east", "north", "south", "west", "zoo")
LEARNED = ("groups_", "estimates_", "intervals_", "simultaneous_", "noise_stddev_", "threshold_", "statement_")


def some_rows(n_users=300, seed=0):
    """(values, users, groups) of users with rows in several groups, of different means."""
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(n_users), rng.geometric(0.2, n_users))
    groups = rng.choice(len(NAMES), len(users), p=[0.4, 0.3, 0.15, 0.1, 0.05])
    values = np.clip(rng.normal(2 + groups, 1.5), -1, 9)
    return values, users, np.array(NAMES)[groups]


def by_group(statistics=ALL, epsilon=1e5, **arguments):
    defaults = {"value_range": (-1.0, 9.0), "noise": SeededNoise(0), "keys": NAMES, "shrink": False}
    return UserGroupBy(statistics, epsilon, **{**defaults, **arguments})


def fitted(rows, session=None, **arguments):
    values, users, groups = rows
    return by_group(**arguments).fit(values, users=users, by=groups, session=session)


def flat(learned):
    """What is published, numbers by statistic one by one; a quantile has no noise of its own."""
    several = {
        f"{name} of {key}": held
        for name, each in learned.items()
        if isinstance(each, dict)
        for key, held in each.items()
    }
    single = {name: each for name, each in learned.items() if not isinstance(each, dict)}
    return {**single, **{name: np.nan_to_num(each) for name, each in several.items()}}


def truths(rows, *, of="rows"):
    """Every statistic of every group, exactly."""
    values, users, groups = rows
    found = {name: [] for name in ALL}
    for name in NAMES:
        here = groups == name
        _, owner, sizes = np.unique(users[here], return_inverse=True, return_counts=True)
        weights = np.ones(here.sum()) if of == "rows" else 1 / sizes[owner]
        mean = np.average(values[here], weights=weights)
        found["count"].append(here.sum())
        found["users"].append(len(sizes))
        found["sum"].append(values[here].sum())
        found["mean"].append(mean)
        found["variance"].append(np.average((values[here] - mean) ** 2, weights=weights))
        found["histogram"].append(np.histogram(values[here], 10, (-1, 9), weights=weights)[0])
        found["quantile"].append([np.median(values[here])])
    return {name: np.array(each) for name, each in found.items()}


@pytest.mark.parametrize("of", ["rows", "users"])
def test_with_a_large_budget_it_finds_what_is_there(of):
    rows = some_rows()
    found, true = fitted(rows, of=of), truths(rows, of=of)
    assert found.groups_ == NAMES
    for name in ("count", "users", "sum", "histogram"):
        np.testing.assert_allclose(found.estimates_[name], true[name], atol=0.01 * true["count"].max(), rtol=0.05)
    np.testing.assert_allclose(found.estimates_["mean"], true["mean"], atol=0.05)
    np.testing.assert_allclose(found.estimates_["variance"], true["variance"], atol=0.1)
    if of == "rows":
        np.testing.assert_allclose(found.estimates_["quantile"], true["quantile"], atol=10 / 32)


@pytest.mark.parametrize("keys", [NAMES, "private", "from-data"], ids=str)
@pytest.mark.parametrize(("shrink", "law"), [(True, "gaussian"), (False, "gaussian"), (True, "laplace")])
def test_replay_on_neighbours_stays_within_every_sensitivity(keys, shrink, law):
    values, users, groups = some_rows(120)
    values[users == 0] = 1e9
    groups = np.where((users == 1) & (keys == "private"), "only mine", groups)
    budget = Budget(8.0, 1e-3, 2e-4 if keys == "private" else 0.0)
    if law == "laplace":
        budget = Budget(8.0, 1e-3, 1e-3) if keys == "private" else Budget(8.0, 0.0)

    def fit(rows, session):
        found = fitted(rows, session, keys=keys, shrink=shrink)
        return flat({name: getattr(found, name) for name in LEARNED})

    arguments = {"budget": budget, "noise": SeededNoise(1), "neighbours": ADD_REMOVE}
    for user in (0, 1, int(np.argmax(np.bincount(users)))):
        kept = users != user
        fewer = values[kept], users[kept], groups[kept]
        ratios = audit_neighbour(fit, (values, users, groups), fewer, arguments)
        assert max(ratios.values()) <= 1 + 1e-9
        assert "sums by group" in ratios


@pytest.mark.parametrize("rows_of_one", [1, 40])
def test_replay_of_noise_for_a_box_stays_within_every_sensitivity(rows_of_one):
    """Also if one user has forty rows in every group: the box holds it, whatever the released norms said."""
    users = np.append(np.repeat(np.arange(400), 4), np.zeros(4 * (rows_of_one - 1), int))
    groups = np.append(np.tile(np.arange(4), 400), np.tile(np.arange(4), rows_of_one - 1))

    def fit(rows, session):
        made = UserGroupBy("count", keys=[str(k) for k in range(4)], law="laplace")
        found = made.fit(users=rows[0], by=rows[1], session=session)
        assert found.statement_.releases[-1].mechanism == "box"
        return flat({name: getattr(found, name) for name in LEARNED})

    arguments = {"budget": Budget(2.0, 0.0), "noise": SeededNoise(1), "neighbours": ADD_REMOVE}
    fewer = users[users != 0], groups[users != 0]
    ratios = audit_neighbour(fit, (users, groups), fewer, arguments)
    assert max(ratios.values()) <= 1 + 1e-9
    assert ratios["sums by group"] == pytest.approx(1, rel=1e-6)


def test_rows_outside_a_public_list_are_left_out_and_nothing_is_refused():
    values, users, groups = some_rows()
    strange = np.where(users < 100, "elsewhere", groups)
    found = fitted((values, users, strange), statistics="count")
    expected = fitted((values[users >= 100], users[users >= 100], groups[users >= 100]), statistics="count")
    np.testing.assert_array_equal(found.estimates_["count"], expected.estimates_["count"])


def test_groups_come_in_the_order_of_a_public_list_and_empty_ones_get_noise():
    wanted = ("zoo", "nobody", "east")
    found = fitted(some_rows(), statistics=("count", "mean"), epsilon=1.0, keys=wanted)
    assert found.groups_ == wanted
    assert len(found.estimates_["count"]) == 3
    assert found.intervals_["mean"][1].tolist() == [-1.0, 9.0]


def test_one_release_pays_for_a_private_list_and_its_numbers_of_users():
    rows = some_rows(2000)
    found = fitted(rows, statistics="users", keys="private", epsilon=50.0)
    assert [each.purpose.key for each in found.statement_.releases] == ["groups-of-users", "group-list"]
    assert found.groups_ == NAMES
    np.testing.assert_allclose(found.estimates_["users"], truths(rows)["users"], rtol=0.05)
    assert found.statement_.keys_delta == pytest.approx(0.25e-6)
    assert found.threshold_ > 0


def test_intervals_of_listed_groups_hold_although_they_were_listed_for_their_noise():
    """Some 500 groups in 16 draws; at least 90 % hold, where 95 % would miss that with chance below 1e-6."""
    rng = np.random.default_rng(4)
    users = np.repeat(np.arange(3000), rng.geometric(0.3, 3000))
    weights = 1 / np.arange(1, 301)
    groups = rng.choice(300, len(users), p=weights / weights.sum()).astype(str)
    true = {name: len(np.unique(users[groups == name])) for name in np.unique(groups)}
    held = []
    for seed in range(16):
        found = by_group("users", 2.0, keys="private", noise=SeededNoise(seed)).fit(users=users, by=groups)
        counts = np.array([true[name] for name in found.groups_])
        low, high = found.intervals_["users"].T
        held += ((low <= counts) & (counts <= high)).tolist()
    assert len(held) > 300
    assert np.mean(held) >= 0.90


def test_the_largest_groups_of_a_private_list_are_found_with_intervals_that_hold_for_all():
    rows = some_rows(2000)
    found = fitted(rows, statistics=("users", "quantile"), keys="private", epsilon=20.0)
    top = found.top(2)
    assert top.groups_ == ("east", "north")
    np.testing.assert_array_equal(top.intervals_["users"], found.simultaneous_["users"][:2])
    assert len(top.estimates_["quantile"]) == 2
    assert found.top(99).groups_ == tuple(np.array(NAMES)[np.argsort(-found.estimates_["users"])])
    with pytest.raises(InputError, match="one number a group"):
        found.top(2, "quantile")


def test_the_largest_of_an_empty_list_are_none():
    found = UserGroupBy("sum", epsilon=0.1, value_range=(0, 1)).fit([1.0], users=["ann"], by=["east"])
    assert (found.groups_, found.top(2).groups_) == ((), ())


def test_an_empty_list_is_an_answer():
    values, users, groups = some_rows(8)
    found = fitted((values, users, groups), keys="private", epsilon=0.1)
    assert found.groups_ == ()
    assert found.estimates_.keys() == {"users"}


def test_groups_taken_from_the_data_are_said_to_be_unprotected():
    found = fitted(some_rows(), keys="from-data", statistics="count")
    assert found.statement_.unprotected == ("who is in a group that nobody else is in",)
    assert found.groups_ == NAMES


def test_several_columns_make_a_group_and_none_makes_one():
    values, users, groups = some_rows()
    years = np.where(values > 3, 2021, 2020)
    found = by_group("count", keys="from-data").fit(users=users, by={"ward": groups, "year": years})
    assert found.groups_[:2] == (("east", "2020"), ("east", "2021"))
    listed = by_group("count", keys=[("zoo", 2020), ("east", 2021)]).fit(users=users, by=[groups, years])
    assert listed.groups_ == (("zoo", "2020"), ("east", "2021"))
    at = found.groups_.index(("east", "2021"))
    assert listed.estimates_["count"][1] == pytest.approx(found.estimates_["count"][at], rel=0.02)
    whole = by_group("mean").fit(values, users=users)
    assert whole.groups_ == ((),)
    assert whole.estimates_["mean"][0] == pytest.approx(values.mean(), abs=0.05)


def test_the_noise_says_how_far_counts_are_off():
    """200 groups: the mean square of what is off is within 0.4 to 1.3 of the noise's; a false alarm has chance 4e-3."""
    rng = np.random.default_rng(1)
    users, groups = np.arange(4000), rng.integers(0, 200, 4000).astype(str)
    keys = [str(k) for k in range(200)]
    found = by_group("count", 1.0, keys=keys).fit(users=users, by=groups)
    off = found.estimates_["count"] - np.array([(groups == key).sum() for key in keys])
    off = off[found.estimates_["count"] > 0]
    assert 0.4 < np.square(off / found.noise_stddev_["count"][0]).mean() < 1.3


@pytest.mark.parametrize("statistic", ["count", "users", "sum", "mean", "variance", "quantile"])
@pytest.mark.parametrize(("shrink", "law"), [(True, "gaussian"), (False, "gaussian"), (True, "laplace")])
def test_intervals_cover(statistic, shrink, law):
    """60 groups, 6 draws of noise: at least 90 % of 360 intervals hold; 95 % would miss that with chance below 3e-5."""
    rng = np.random.default_rng(2)
    n_users = 3000
    users = np.repeat(np.arange(n_users), rng.geometric(0.25, n_users))
    groups = rng.choice(60, len(users), p=rng.dirichlet(np.full(60, 3.0)))
    middle = rng.normal(4.0, 0.8, 60)
    values = np.clip(rng.normal(middle[groups], 1.5), -1, 9)
    keys = [f"{k:02d}" for k in range(60)]
    texts = np.array(keys)[groups]
    of = [values[groups == k] for k in range(60)]
    true = {
        "count": [len(each) for each in of],
        "users": [len(np.unique(users[groups == k])) for k in range(60)],
        "sum": [each.sum() for each in of],
        "mean": [each.mean() for each in of],
        "variance": [each.var() for each in of],
        "quantile": [np.quantile(each, 0.5) for each in of],
    }[statistic]
    covered = []
    for seed in range(6):
        found = by_group(statistic, 2.0, keys=keys, shrink=shrink, law=law, noise=SeededNoise(seed))
        found.fit(values, users=users, by=texts)
        low, high = found.intervals_[statistic].reshape(-1, 2).T
        wide = found.simultaneous_[statistic].reshape(-1, 2)
        assert ((wide[:, 0] <= low) & (wide[:, 1] >= high)).all()
        covered.append(np.mean((low <= true) & (true <= high)))
    assert np.mean(covered) >= 0.90


def test_intervals_that_hold_together_hold_for_all_statistics_together():
    rows = some_rows()
    both = fitted(rows, statistics=("count", "sum"), keys=("east",), epsilon=2.0)
    every = fitted(rows, statistics=("count", "sum"), keys=("east",), epsilon=2.0, level=0.975)
    for statistic in ("count", "sum"):
        np.testing.assert_allclose(both.simultaneous_[statistic], every.intervals_[statistic])


def test_names_of_columns_in_place_of_columns_are_refused_in_words():
    values, users, groups = some_rows(20)
    with pytest.raises(InputError, match=r"Expected users as a column .* such as frame\['who'\]"):
        by_group("mean").fit(values, users="who", by=groups)
    with pytest.raises(InputError, match=r"Expected by as a column .* such as frame\['ward'\]"):
        by_group("mean").fit(values, users=users, by="ward")


def test_laplace_noise_has_a_pure_guarantee_and_less_noise_where_users_are_in_one_group():
    rng = np.random.default_rng(5)
    users, groups = np.repeat(np.arange(2000), 4), np.repeat(rng.integers(0, 20, 2000), 4)
    keys, true = [str(k) for k in range(20)], np.bincount(groups, minlength=20)
    fits = {law: by_group("count", 1.0, keys=keys, law=law).fit(users=users, by=groups) for law in LAWS}
    assert (fits["laplace"].statement_.delta, fits["gaussian"].statement_.delta) == (0.0, 1e-6)
    assert {each.mechanism for each in fits["laplace"].statement_.releases} == {"laplace"}
    off = {law: np.sqrt(np.square(each.estimates_["count"] - true).mean()) for law, each in fits.items()}
    assert off["laplace"] < 0.7 * off["gaussian"]


def test_a_private_list_with_laplace_noise_takes_all_of_delta():
    rows = some_rows(2000)
    found = fitted(rows, statistics=("users", "mean"), keys="private", epsilon=20.0, law="laplace")
    assert found.groups_ == NAMES
    assert found.statement_.keys_delta == found.statement_.delta == 1e-6
    np.testing.assert_allclose(found.estimates_["users"], truths(rows)["users"], rtol=0.05)
    low, high = found.intervals_["users"].T
    assert ((low <= found.estimates_["users"]) & (found.estimates_["users"] <= high)).all()


def test_a_far_class_of_norms_is_not_believed_for_one_large_draw_of_laplace_noise():
    """Noise of 8 deviations in a class of norms far above all users' has chance 1e-5 and must not set the cap."""
    noisy = np.zeros(41)
    noisy[6:10] = 500.0
    noisy[38] = 8 * 35.0
    assert class_counts(noisy, 35.0, "distances", laplace=True)[38] < 0.5
    assert class_counts(noisy, 35.0, "distances")[38] > 100


def test_shrinking_helps_where_groups_are_alike():
    rng = np.random.default_rng(3)
    users = np.repeat(np.arange(1000), 5)
    groups, values = rng.integers(0, 100, 5000), rng.uniform(0, 8, 5000)
    keys = [str(k) for k in range(100)]
    true = np.array([values[groups == k].mean() for k in range(100)])
    errors = []
    for shrink in (True, False):
        found = by_group("mean", 1.0, keys=keys, shrink=shrink).fit(values, users=users, by=groups)
        errors.append(np.sqrt(np.mean((found.estimates_["mean"] - true) ** 2)))
    assert errors[0] < 0.6 * errors[1]


def test_engines_and_exact_noise_give_the_same_groups():
    values, users, groups = some_rows()
    for engine in (LocalEngine(np.float64, chunk=13), LocalEngine(np.float64, runs=3)):
        one, two = (
            by_group(epsilon=2.0, engine=each).fit(values, users=users, by=groups) for each in (None, engine)
        )  # fmt: skip
        for name in ALL:
            np.testing.assert_array_equal(one.estimates_[name], two.estimates_[name])
    exact = fitted((values, users, groups), noise=SeededNoise(0, exact=True), epsilon=2.0)
    assert "without rounding" in exact.statement_.arithmetic


def test_integers_and_their_texts_are_the_same_groups():
    _, users, groups = some_rows()
    codes = np.unique(groups, return_inverse=True)[1]
    one = by_group("count", keys=[0, 1, 2]).fit(users=users, by=codes)
    two = by_group("count", keys=["0", "1", "2"]).fit(users=users, by=codes.astype(str))
    np.testing.assert_array_equal(one.estimates_["count"], two.estimates_["count"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"statistics": "median"}, "'median'"),
        ({"statistics": ("mean", "mean")}, "different statistics"),
        ({"delta": 0.0}, "because Gaussian noise needs one"),
        ({"delta": 0.0, "law": "laplace", "keys": "private"}, "because a private list needs one"),
        ({"law": "normal"}, "Expected law to be"),
        ({"value_range": None}, "public value range for 'mean'"),
        ({"keys": "public"}, "'public'"),
        ({"keys": ["a", "b", "a"]}, "has the group 'a' more than once"),
        ({"keys": []}, "at least one group, got none"),
        ({"statistics": "histogram", "bins": [1, 1, 2]}, "ascending"),
        ({"statistics": "quantile", "quantiles": [1.5]}, "between 0 and 1"),
        ({"statistics": "quantile", "step": 100.0}, "step"),
        ({"level": 1.0}, "level"),
    ],
)
def test_bad_settings_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        fitted(some_rows(), **{"statistics": "mean", **arguments})


def test_a_session_without_a_part_for_keys_is_refused_and_one_that_has_it_pays():
    with pytest.raises(InputError, match="keeps none for it"):
        fitted(some_rows(), Session(Budget(1.0, 1e-6)), keys="private")
    session = Session(Budget(5.0, 1e-5, 1e-6), noise=SeededNoise(0))
    fitted(some_rows(), session, keys="private", statistics="mean")
    assert session.spent == pytest.approx(1.0)


def test_it_is_an_estimator_as_scikit_learn_has_them():
    made = by_group("mean", 2.0, noise=None)
    assert clone(made).get_params() == made.get_params()


def test_values_on_a_step_have_their_quantiles_on_it():
    values, users, groups = some_rows()
    found = fitted((np.round(values), users, groups), statistics="quantile", step=1.0, quantiles=(0.25, 0.5))
    expected = [np.quantile(np.round(values)[groups == name], (0.25, 0.5), method="lower") for name in NAMES]
    np.testing.assert_allclose(found.estimates_["quantile"], expected, atol=1.0)
    assert (found.estimates_["quantile"] == np.round(found.estimates_["quantile"])).all()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_of_frames_are_taken_as_arrays_are(library):
    frames = pytest.importorskip(library, reason=f"{library} is not installed")
    values, users, groups = some_rows(60)
    frame = frames.DataFrame({"who": users, "ward": groups, "cost": values})
    expected = by_group("mean", 5.0).fit(values, users=users, by=groups)
    for by in (frame["ward"], frame[["ward"]]):
        found = by_group("mean", 5.0).fit(frame["cost"], users=frame["who"], by=by)
        np.testing.assert_array_equal(found.estimates_["mean"], expected.estimates_["mean"])


@pytest.mark.parametrize(
    ("keys", "columns"), [([("zoo",)], 2), (["zo"], 2), ([2020], 2), ([("zoo", 1, 2)], 2), ([("zoo", 2020)], 1)]
)
def test_keys_with_another_number_of_columns_are_refused_before_anything_is_spent(keys, columns):
    session = Session(Budget(1.0, 1e-6), noise=SeededNoise(0))
    _, users, groups = some_rows(20)
    with pytest.raises(InputError, match="Expected groups of") as refused:
        by_group("count", keys=keys).fit(users=users, by=[groups, groups][:columns], session=session)
    assert refused.value.argument == "keys"
    assert session.spent == 0.0


def test_with_laplace_noise_the_cap_of_a_count_is_a_whole_number_of_rows():
    """Everybody has two rows in one of five groups: noise is for 2 rows, not for the end of a wider class."""
    users, groups = np.repeat(np.arange(2000), 2), np.repeat(np.arange(2000) % 5, 2)
    made = UserGroupBy("count", 1.0, keys=[str(k) for k in range(5)], law="laplace", noise=SeededNoise(0), shrink=False)
    found = made.fit(users=users, by=groups)
    assert found.noise_stddev_["count"] == pytest.approx(2**0.5 * 2 / 0.92, rel=0.01)


def boxed(seed=0, twice=0, epsilon=1.0, **arguments):
    """A count of 2,000 users with a row in each of five groups; so many of them have a second row in one."""
    users, groups = np.repeat(np.arange(2000), 5), np.tile(np.arange(5), 2000)
    users, groups = np.append(users, np.arange(twice)), np.append(groups, np.arange(twice) % 5)
    defaults = {"keys": [str(k) for k in range(5)], "law": "laplace", "noise": SeededNoise(seed)}
    return UserGroupBy("count", epsilon, **{**defaults, **arguments}).fit(users=users, by=groups)


def test_with_one_row_in_each_group_noise_is_for_a_box_and_otherwise_it_is_laplace_noise():
    found, others = boxed(shrink=False), boxed(twice=600, shrink=False)
    assert [each.mechanism for each in found.statement_.releases] == ["laplace", "box"]
    assert found.noise_stddev_["count"] == pytest.approx((7 * 8 / 6) ** 0.5 / 0.92, rel=1e-3)
    assert [each.mechanism for each in others.statement_.releases] == ["laplace", "laplace"]
    assert all(check.passed for check in check_statement(found.statement_))


def test_exact_arithmetic_and_many_groups_have_laplace_noise():
    exact = boxed(noise=SeededNoise(0, exact=True))
    many = boxed(keys=[str(k) for k in range(30)])
    for found in (exact, many):
        assert [each.mechanism for each in found.statement_.releases] == ["laplace", "laplace"]


@pytest.mark.parametrize("shrink", [True, False])
def test_intervals_around_noise_of_a_box_cover(shrink):
    """Of 300 fits of five groups; two standard errors of correlated groups are 2 %."""
    found = [boxed(seed, shrink=shrink).intervals_["count"] for seed in range(300)]
    covered = np.mean([(low <= 2000) & (high >= 2000) for low, high in (each.T for each in found)])
    assert 0.93 <= covered <= 0.99


def test_users_of_a_long_tail_are_counted_with_laplace_noise_and_intervals_cover():
    """Log-normal numbers of rows: the largest users are beyond what a narrow shape of norms holds."""
    rng = np.random.default_rng(3)
    users = np.repeat(np.arange(5000), np.rint(np.exp(1 + rng.standard_normal(5000))).clip(1, 300).astype(int))
    groups = rng.integers(0, 8, len(users))
    truth, keys, covered = np.bincount(groups), [str(k) for k in range(8)], []
    for seed in range(20):
        made = UserGroupBy("count", 3.0, keys=keys, law="laplace", noise=SeededNoise(seed))
        low, high = made.fit(users=users, by=groups).intervals_["count"].T
        covered.append(((low <= truth) & (truth <= high)).mean())
    assert np.mean(covered) >= 0.85


@pytest.mark.parametrize("frames", ["pandas", "polars"])
def test_columns_of_a_frame_make_groups_one_or_several(frames):
    frame = pytest.importorskip(frames).DataFrame({"who": [1, 2, 1], "ward": ["a", "b", "b"], "year": [1, 1, 2]})
    settings = {"epsilon": 1.0, "noise": SeededNoise(0), "keys": "from-data"}
    one = UserGroupBy("count", **settings).fit(users=frame["who"], by=frame["ward"])
    assert one.groups_ == ("a", "b")
    for by in ([frame["ward"], frame["year"]], frame[["ward", "year"]]):
        assert UserGroupBy("count", **settings).fit(users=frame["who"], by=by).groups_ == (
            ("a", "1"), ("b", "1"), ("b", "2"),
        )  # fmt: skip
