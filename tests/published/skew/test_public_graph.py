"""A public graph has neighbours of its own: the same users with the same tasks, one of them with other values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.allocation import SplitEqually
from apportion.allocation.weightings import OnSample, OnTasks, TimesFactors
from apportion.auditing import audit_neighbour
from apportion.auditing.hidden_values import distance, raw_copy
from apportion.data import Interactions
from apportion.engines import LocalEngine, add_up_one
from apportion.errors import BudgetError, InputError
from apportion.privacy import (
    ADD_REMOVE,
    REPLACE_LABELS,
    REPLACE_VALUES_PUBLIC_GRAPH,
    Budget,
    Gaussian,
    Ledger,
    ObservationRows,
    Rows,
    SeededNoise,
    Session,
    Weights,
)
from apportion.privacy.contributions import ClippedParts, Output, TaskCounts, TaskGrams, TaskMoments, UserGram
from apportion.privacy.neighbours import RELATIONS, moved_by_user
from apportion.privacy.sampling import Sample
from apportion.published.skew import (
    AlternatingMinimisation,
    Exact,
    ExactJoint,
    GradientDescent,
    SufficientStatistics,
    exact_weights,
    joint_weights,
)
from apportion.regression import MultiTaskERM, MultiTaskRidge, Observations
from apportion.report import public_page
from apportion.report.card import privacy_card
from held_values import HeldRows, held

from private_estimators import alternating, erm, published, ridge
from strategies import interactions, random_interactions

POLICIES = pytest.mark.parametrize("policy", [Exact(), ExactJoint()], ids=["exact", "joint"])
GRAPH = REPLACE_VALUES_PUBLIC_GRAPH
NORM, BOUND = 1.5, 2.0


def moved(one, other):
    """How far two sums are apart, in the sensitivity that the first declares."""
    assert one.neighbours == other.neighbours == GRAPH
    return distance(one, raw_copy(other), Gaussian()) / one.l2_sensitivity


def sums(data, weights, features, labels, exact):
    """Every sum that is formed with such weights, by name."""
    engine = LocalEngine(np.float64, chunk=17, exact=exact)
    users = data.as_users.with_columns(features=features, labels=labels)
    rows, bounded = HeldRows(ObservationRows.clipped(features, NORM)), held(labels, BOUND)
    own = HeldRows(Rows.clipped(features[data.by_user.indptr[:-1].clip(0, len(features) - 1)], NORM))
    bent = TimesFactors(weights, lambda some: some.column("labels"), 1.0)
    on_half = OnTasks(weights, np.arange(data.n_tasks) % 2 == 0, "even tasks")

    def part(some, _weights):
        wanted = some.column("features") * some.column("labels")[:, None]
        return wanted, np.stack([np.bincount(some.owner, c, some.n_users) for c in wanted.T], axis=1)

    width = features.shape[1]
    outputs = Output(width, NORM, True, "parts"), Output(width, BOUND, False, "parts")
    whole = Output(width, NORM, False, "parts")
    contributions = {
        "counts": TaskCounts(weights),
        "moments": TaskMoments(weights, rows, bounded),
        "moments of residuals": TaskMoments(bent, own),
        "moments on some tasks": TaskMoments(on_half, rows, bounded),
        "grams": TaskGrams(weights, rows),
        "grams of signed weights": TaskGrams(bent, rows),
        "users' gram": UserGram(own, GRAPH),
        "users' sum": ClippedParts(lambda *given: part(*given)[1:], (whole,), neighbours=GRAPH),
        "parts by task": ClippedParts(part, outputs, weights),
    }
    found = engine.add_up(users, list(contributions.values()))
    return dict(zip([*contributions, "parts of users"], found, strict=True))


@POLICIES
@settings(max_examples=30)
@given(data=interactions(), user=st.integers(0, 11), seed=st.integers(0, 99), exact=st.booleans())
def test_no_sum_moves_by_more_than_its_sensitivity_when_one_user_has_other_values(policy, data, user, seed, exact):
    rng = np.random.default_rng(seed)
    features, labels = rng.normal(size=(data.n_observations, 3)), 2 * rng.normal(size=data.n_observations)
    own = data.users == user % data.n_users
    others = np.where(own[:, None], 3 * rng.normal(size=features.shape), features)
    flipped = np.where(own, -3 * labels, labels)
    weights = policy.allocate(data.as_users, None, 0.0).weights
    here, there = (sums(data, weights, *held, exact) for held in ((features, labels), (others, flipped)))
    for name, one in here.items():
        assert moved(one, there[name]) <= 1 + 1e-9, name
    assert moved(here["counts"], there["counts"]) == 0  # a function of the graph alone


def test_the_sensitivities_are_reached_by_contrary_values():
    data = random_interactions(3)
    own = data.users == 2
    one = np.tile([NORM, 0.0, 0.0], (data.n_observations, 1))
    other = np.where(own[:, None], [0.0, NORM, 0.0], one)
    labels = np.full(data.n_observations, BOUND)
    weights = joint_weights(data, 1.0)
    here = sums(data, weights, one, labels, exact=False)
    there = sums(data, weights, one, np.where(own, -labels, labels), exact=False)
    turned = sums(data, weights, other, labels, exact=False)
    contrary = sums(data, weights, other, np.where(own, -labels, labels), exact=False)
    for name in ("moments", "moments of residuals", "parts by task", "parts of users", "users' sum"):
        assert moved(here[name], there[name]) > 0.98, name
    assert moved(here["grams of signed weights"], there["grams of signed weights"]) > 0.98
    for name in ("grams", "users' gram"):
        assert moved(here[name], turned[name]) > 0.98, name
    assert moved(here["grams of signed weights"], contrary["grams of signed weights"]) < 1


# -- whole estimators --


def regression(make, logistic=False):
    def fit(held, session):
        estimator = make()
        estimator.fit_observations(Observations(*held), session=session)
        return {"coef": estimator.coef_, "statement": estimator.statement_}

    return fit, "regression"


def recommender(make):
    return lambda held, session: published(make().fit(held, session=session).model_), "recommender"


FITS = {
    "ridge": regression(ridge(allocation=Exact(), feature_norm=NORM, label_bound=BOUND)),
    "ridge, exposure released": regression(ridge(allocation=ExactJoint(), exposure_share=0.1, solve="psd")),
    "squared loss": regression(erm(allocation=ExactJoint())),
    "huber loss": regression(erm("huber", allocation=Exact(0.0))),
    "ratings, statistics": recommender(alternating("ratings", SufficientStatistics(), Exact())),
    "ratings, gradient": recommender(alternating("ratings", GradientDescent(clip=0.3), ExactJoint())),
    "clicks, statistics": recommender(alternating("clicks", SufficientStatistics(), ExactJoint())),
    "clicks, gradient": recommender(alternating("clicks", GradientDescent(clip=0.05), Exact(0.0))),
}


def pair_of(kind, data, user, seed):
    """Data and a neighbour: one user's values, and features where they are private, are others."""
    rng = np.random.default_rng(seed)
    own = data.users == user
    if kind == "recommender":
        return data, data.with_values(np.where(own, 6 - data.values, data.values))
    features, labels = 2 * rng.normal(size=(data.n_observations, 3)), 3 * rng.normal(size=data.n_observations)
    turned = np.where(own[:, None], rng.normal(size=features.shape), features)
    return (data, features, labels), (data, turned, np.where(own, -labels, labels))


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("seed", range(4))
def test_replay_on_neighbours_of_one_graph_stays_within_every_sensitivity(name, seed):
    fit, kind = FITS[name]
    data = random_interactions(seed)
    one, other = pair_of(kind, data, seed % data.n_users, seed)
    arguments = {"budget": Budget(20.0, 1e-5), "noise": SeededNoise(seed), "neighbours": GRAPH}
    ratios = audit_neighbour(fit, one, other, arguments)
    assert ratios
    assert max(ratios.values()) <= 1 + 1e-9


ENCODERS = ("encoder, statistics", "encoder, gradient", "encoder, convex loss", "joint gradient")


@pytest.mark.parametrize("name", ENCODERS)
def test_replay_of_encoders_on_neighbours_of_one_graph(name):
    pytest.importorskip("torch")
    from private_torch import PRIVATE_ENCODERS, signed

    from encoder_cases import features_of

    data = random_interactions(1)
    convex = name == "encoder, convex loss"

    def fit(some, session):
        made = PRIVATE_ENCODERS[name](features=features_of(some.n_tasks), allocation=Exact())
        return published(made.fit(signed(some) if convex else some, session=session).model_)

    one, other = pair_of("recommender", data, 1, 0)
    arguments = {"budget": Budget(20.0, 1e-5), "noise": SeededNoise(1), "neighbours": GRAPH}
    ratios = audit_neighbour(fit, one, other, arguments)
    assert 0 < max(ratios.values()) <= 1 + 1e-9


# -- what is said, and what is refused --


@POLICIES
def test_the_statement_never_says_add_or_remove_and_noise_is_for_replaced_values(policy):
    data = random_interactions(2)
    features, labels = np.ones((data.n_observations, 2)), data.values.astype(np.float64)
    model = MultiTaskRidge(2.0, allocation=policy, noise=SeededNoise(0), feature_norm=NORM, label_bound=BOUND)
    statement = model.fit_observations(Observations(data, features, labels)).statement_
    assert statement.neighbours == GRAPH
    assert statement.unit == GRAPH.unit
    assert "add or remove" not in statement.to_text()
    assert "which user has which task is public" in statement.public
    releases = {release.name: release for release in statement.releases}
    assert releases["moments"].sensitivity == pytest.approx(2 * NORM * BOUND)
    assert releases["Gram matrices"].sensitivity == pytest.approx(np.sqrt(2) * NORM**2)
    for release in releases.values():
        assert release.stddev == pytest.approx(release.sensitivity / release.mu)
        assert "for replaced values" in release.derivation


@POLICIES
def test_a_session_for_adding_or_removing_a_user_is_refused_before_anything_is_spent(policy):
    data = random_interactions(2)
    session = Session(Budget(1.0, 1e-5), noise=SeededNoise(0))
    for estimator in (
        MultiTaskRidge(allocation=policy),
        MultiTaskERM("squared", allocation=policy),
    ):
        rows = Observations(data, np.ones((data.n_observations, 2)), np.ones(data.n_observations))
        with pytest.raises(
            InputError, match=r"session are 'add or remove one user', those of this estimator .replace the values"
        ):
            estimator.fit_observations(rows, session=session)
    with pytest.raises(InputError, match=r"those of this estimator .replace the values of one user's rows"):
        AlternatingMinimisation(allocation=policy).fit(data, session=session)
    with pytest.raises(InputError, match="those of this estimator 'add or remove one user"):
        AlternatingMinimisation().fit(data, session=Session(Budget(1.0, 1e-5), neighbours=GRAPH))
    assert not session.statement().releases


def test_sums_of_a_public_graph_are_released_in_sessions_for_it_alone():
    data = random_interactions(2)
    weights = exact_weights(data, 1.0)
    rows = HeldRows(Rows.clipped(np.ones((data.n_users, 2)), NORM))
    for form in (TaskCounts, lambda given: TaskMoments(given, rows)):
        of_graph, of_users = (add_up_one(LocalEngine(), data.as_users, form(w)) for w in (weights, SplitEqually()))
        added = Session(Budget(1.0, 1e-5), noise=SeededNoise(0))
        with pytest.raises(BudgetError, match=r"has a sensitivity for the neighbours .replace the values"):
            added.release("sums", of_graph, added.plan(all=1.0).one("all"))
        replaced = Session(Budget(1.0, 1e-5), noise=SeededNoise(0), neighbours=GRAPH)
        with pytest.raises(BudgetError, match="has a sensitivity for the neighbours 'add or remove"):
            replaced.release("sums", of_users, replaced.plan(all=1.0).one("all"))
        replaced.release("sums", of_graph, replaced.plan(all=1.0).one("all"))


def test_samples_of_users_are_accounted_for_users_who_come_and_go():
    data = random_interactions(2)
    update = GradientDescent(sampling=0.5, steps=1)
    with pytest.raises(BudgetError, match=r"'add or remove one user'; this session has the neighbours .replace"):
        AlternatingMinimisation(allocation=Exact(), update=update).fit(data)


def test_weights_carry_their_neighbours_whatever_is_made_of_them():
    data = random_interactions(2)
    weights = exact_weights(data, 0.0)
    sample, even = Sample(bytes(32), 0.5), np.arange(data.n_tasks) % 2 == 0
    signed = TimesFactors(weights, lambda users: -np.ones(users.n_rows), 1.0)
    sampled, split = OnSample(signed, sample), SplitEqually(GRAPH)
    for value in (OnSample(weights, sample), OnTasks(weights, even, "even tasks"), signed, sampled, split):
        for made in (value, value.of(data.as_users)):
            assert made.neighbours == GRAPH
            assert made.moved(3.0) == 6.0
    assert weights.moved_gram(3.0) == weights.of(data.as_users).moved_gram(3.0) == pytest.approx(3 * np.sqrt(2))
    assert sampled.moved_gram(3.0) == sampled.of(data.as_users).moved_gram(3.0) == 6.0
    of_users = TimesFactors(SplitEqually(), lambda users: np.ones(users.n_rows), 1.0)
    assert of_users.neighbours == of_users.of(data.as_users).neighbours == ADD_REMOVE
    with pytest.raises(InputError, match="weights of at least 0 where values are replaced"):
        Weights(np.array([-0.5]), np.array([0, 1]), "by hand", GRAPH)


def test_a_relation_has_one_key_and_a_factor_only_where_one_was_derived():
    assert all(key == relation.key for key, relation in RELATIONS.items())
    assert len({relation.relation for relation in RELATIONS.values()}) == len(RELATIONS)
    assert (moved_by_user(ADD_REMOVE), moved_by_user(ADD_REMOVE, semidefinite=True)) == (1.0, 1.0)
    with pytest.raises(InputError, match="one user of a sum over users, got: replace the labels"):
        moved_by_user(REPLACE_LABELS)


def test_ledgers_cards_and_pages_name_the_relation(tmp_path):
    data = random_interactions(2)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        account = ledger.create_account("public graph", Budget(3.0, 1e-5), neighbours=GRAPH)
        other = ledger.create_account("users", Budget(3.0, 1e-5))
        with pytest.raises(BudgetError, match=r"are .replace the values.* its account 'add or remove one user'"):
            Session(Budget(1.0, 1e-5), ledger=other, neighbours=GRAPH)
        model = AlternatingMinimisation(allocation=ExactJoint()).fit(data, session=account.session(1.0)).model_
        assert account.status().neighbours == GRAPH.relation
        assert account.status().entries == len(model.statement.releases)
    assert privacy_card(model.statement)["guarantee"]["neighbours"] == {"key": GRAPH.key, "relation": GRAPH.relation}
    page = public_page(model)
    assert GRAPH.relation.replace("'", "&#39;") in page
    for words in ("add or remove", "took part", "had been missing", "with and without", "whether any one"):
        assert words not in page
    assert "which of two guesses about one particular person’s values is right" in page
    assert "if any one person’s values had been different" in page


def test_the_old_statement_was_wrong_by_far():
    """With weights of everybody's graph, a user who leaves moves a sum by several times the norm of its own part."""
    star = Interactions.from_arrays([0] * 20 + list(range(1, 21)), [*range(20), *range(20)], np.ones(40))
    without = star.without(0)

    def moments(data):
        rows = HeldRows(Rows.clipped(np.ones((data.n_users, 1)), 1.0))
        ones = held(np.ones(data.n_observations), 1.0)
        return add_up_one(LocalEngine(np.float64), data.as_users, TaskMoments(exact_weights(data, 0.0), rows, ones))

    here, there = moments(star), moments(without)
    assert distance(here, raw_copy(there), Gaussian()) > 2
