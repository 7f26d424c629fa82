"""Bugs planted in the library's own recommenders, one function replaced at a time; all are for record and replay."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from unittest import mock

import numpy as np

from apportion.allocation import Adaptive, TailSample, UniformSample, adaptive
from apportion.allocation.weightings import KeptTasks, SplitByValue, SplitEqually
from apportion.data import user_keys
from apportion.linalg import TaskWeights, rating_reference
from apportion.linalg.backend import use_backend
from apportion.postprocessing.popularity import Popularity
from apportion.privacy import ADD_REMOVE, bounds
from apportion.privacy.contributions import RatingParts
from apportion.published.skew import GradientDescent, SufficientStatistics
from apportion.published.skew import updates as updates_module
from apportion.recommend import clicks as clicks_module
from apportion.recommend import ratings as ratings_module
from apportion.recommend.choice_rounds import ChoiceRounds
from apportion.recommend.clicks_votes import RankLosses
from apportion.recommend.variance_votes import VarianceLosses
from held_values import HeldWeights
from planted.cases import Case, patched, replayed, replayed_as_it_is

import paper_errata
from private_estimators import alternating, clicks, clicks_of_default_size, ratings, ratings_by_choice

RATINGS, CLICKS = ratings_module._Fit, clicks_module._Fit

bounded_by_1 = alternating("ratings", SufficientStatistics(label_bound=1.0), Adaptive(0.5))
gradient = alternating("ratings", GradientDescent(clip=0.2), Adaptive(0.5))
sampled_tail = alternating("ratings", SufficientStatistics(label_bound=2.0), TailSample(3))
uniform_tasks = alternating("ratings", SufficientStatistics(label_bound=2.0), UniformSample(2))
sampled_users = alternating("ratings", GradientDescent(clip=0.3, sampling=0.3, steps=1), Adaptive(0.25))


def forged(cls, **state):
    """An object that says it has a bound, without having been checked."""
    made = object.__new__(cls)
    for name, value in state.items():
        setattr(made, name, value)
    return made


def unclipped_parts(_right):
    return lambda values, indptr, norm: forged(bounds.Parts, _values=np.asarray(values), _norm=norm)


def unclipped_rating_parts(right):
    """Rows and votes of any length, with noise for those within the clip norms."""

    def wrong(self, users, kernels):
        wide = {name: 1e4 * getattr(self.round, name) for name in ("clip_norm", "summary_clip")}
        return right(replace(self, round=replace(self.round, **wide)), users, kernels)

    return wrong


def unclipped_labels(_right):
    """E6: centred ratings as they are, with noise for labels of at most 1."""
    return lambda values, bound: forged(bounds.Labels, _values=np.asarray(values, np.float64), _bound=bound)


def forged_weights(values, indptr, *, signed=True):
    """Weights that say that they are bounded."""
    about = {"_description": "x", "_neighbours": ADD_REMOVE, "_signed": signed, "_rearranged": None}
    return forged(bounds.Weights, _values=values, _indptr=indptr, **about)


class EveryTaskCountsOne(TaskWeights):
    """Weights that the kernel leaves as they are."""

    norm = least_norm = 1e30


def unnormalised_weights(_right):
    """E4: every task of a user counts 1."""
    return lambda self, n_tasks: EveryTaskCountsOne(np.ones(n_tasks))


def normalised_over_users(right):
    """Squares sum to 1 over the users of a task, not over the tasks of a user."""

    def wrong(self, users, kernels):
        values = (1 / np.sqrt(1.0 * counts_of(users)))[users.column("tasks")]
        forged = HeldWeights(forged_weights(values, users.indptr, signed=False))
        return right(replace(self, weights=forged), users, kernels)

    return wrong


def clipped_after_weighting(_right):
    """Every weighted residual is clipped alone, so a user with many tasks has many of them."""

    def wrong(self, factors, clip):
        products = np.asarray(self._values, np.float64) * np.asarray(factors, np.float64)
        clipped = np.clip(products, -clip, clip) / clip
        return forged_weights(clipped, self._indptr)

    return wrong


def counts_of(users):
    """How many users every task has, at least 1; nobody released that."""
    return np.maximum(users.by_task.counts, 1)


def exact_counts(right):
    def wrong(self, users, kernels):
        return right(replace(self, weights=adaptive(users.by_task.counts + 0.5, 0.25)), users, kernels)

    return wrong


def round_about_items_by_exact_counts(right):
    """The items that a round of clicks is about are the popular ones of the data, not of the released counts."""

    def wrong(self, given, items):
        return right(self, given, replace(items, popularity=self._data.by_task.counts.astype(np.float64)))

    return wrong


def choices_about_items_by_exact_counts(right):
    def wrong(self, items, fraction):
        return right(self, replace(items, popularity=counts_of(self.users).astype(np.float64)), fraction)

    return wrong


def exact_counts_for_the_tail(right):
    return lambda self, users: right(replace(self, popularity=users.by_task.counts.astype(np.float64)), users)


def keys_by_position(_right):
    """A user's sample depends on how many users come before it."""
    return lambda keys, _seed: np.arange(len(keys), dtype=np.uint64) * np.uint64(0xD1342543DE82EF95)


def votes_on_a_neighbours_row(right):
    """Each held-out rating is that of the row before it, which may be another user's."""

    def wrong(self, kept, shown, kernels):
        return right(self, kept, shown.with_columns(values=np.roll(shown.column("values"), 1)), kernels)

    return wrong


def vectors_by_exact_counts(right):
    """A round learns the vectors of items that an even number of users has, by exact counts."""

    def wrong(self, plan, start):
        tasks = np.asarray(self._data.as_users.column("tasks"))
        even = np.bincount(tasks, minlength=self._data.n_tasks) % 2 == 0
        return replace(right(self, plan, start), have_vectors=even)

    return wrong


def clip_norm_from_raw_quantiles(right):
    def wrong(self, plan, centre, exposure):
        distances = np.abs(self._users.column("values") - centre) / self._unit
        return replace(right(self, plan, centre, exposure), clip_norm=float(np.quantile([1.0, *distances], 0.9)))

    return wrong


def spread_from_raw_means(right):
    """The variance of users' biases is that of their means, which nobody released."""

    def wrong(self, plan, start):
        found = right(self, plan, start)
        users = self._users
        totals = np.bincount(users.owner, users.column("values"), minlength=users.n_users)
        self._spread = replace(self._spread, bias=0.01 + float(np.var(totals / np.maximum(users.sizes, 1))))
        return found

    return wrong


def exact_number_of_users(right):
    return lambda users, *others: (float(users.n_users), right(users, *others)[1])


def exact_mean(right):
    return lambda users, *others: (right(users, *others)[0], float(users.column("values").mean()))


def rounds_by_size(right):
    def wrong(self, rng, progress):
        self._settings = replace(self._settings, rounds=2 + self._data.n_observations % 2)
        return right(self, rng, progress)

    return wrong


def seed_from_data(right):
    return lambda self, rng, progress: right(self, np.random.default_rng(self._data.n_observations), progress)


def leading_by_exact_counts(right):
    """The tasks that are counted once more are those that lead in the data."""

    def wrong(self, before):
        exact = self._data.by_task.counts.astype(np.float64)
        return right(self, replace(before, posterior=Popularity(exact, np.zeros(len(exact)))))

    return wrong


def labels_by_the_largest(right):
    """Of the users that are worked on at once."""

    def wrong(self, users, kernels):
        parts = [right(self, users.run(0, 0), kernels)]  # nobody
        for run in users.runs(kernels.rows_at_once):
            values = run.column("values")
            largest = np.float32(5 / (1 + values.max(initial=0)))
            parts.append(right(self, run.with_columns(values=values * largest), kernels))
        return tuple(map(sum, zip(*parts, strict=True)))

    return wrong


def centred_over_users(right):
    """In the NumPy form of a round, which has the rows of all users at hand."""
    honest = rating_reference.rows_and_votes

    def centred(*given):
        rows, votes = honest(*given)
        return rows - 0.05 * rows.sum(axis=0) / max(len(rows), 1), votes

    def wrong(self, users, kernels):
        with use_backend("numpy"), mock.patch.object(rating_reference, "rows_and_votes", centred):
            return right(self, users, kernels)

    return wrong


def ignoring_the_sample(right):
    def wrong(about, engine, weights, _sample):
        everybody = forged_weights(np.full(about.users.n_rows, 0.1), about.users.indptr)
        return right(about, engine, HeldWeights(everybody), None)

    return wrong


def scale_from_data(right):
    """The scale by which rows count as chosen ends where the values of the data do."""

    def wrong(self, users):
        values = users.column("values")
        lowest = float(values.min(initial=5.0))
        return right(replace(self, value_range=(lowest, lowest + 4.0)), users)

    return wrong


def votes_on_others_rows(right):
    """A user compares its own losses with those of everybody at hand."""

    def wrong(self, kept, shown, kernels):
        losses = right(self, kept, shown, kernels)
        losses[:, 1:] -= 0.1 * losses[:, :1].sum() / max(shown.n_rows, 1)
        return losses

    return wrong


def in_the_model(attribute, value):
    def make_wrong(right):
        def wrong(self, *learned, **how):
            model = right(self, *learned, **how)
            setattr(model, attribute, value(self._data))
            return model

        return wrong

    return make_wrong


PLANTED = {
    ("labels without a bound", "E6"): (bounded_by_1, bounds.Labels, "clipped", unclipped_labels),
    ("counts of sensitivity 1 for users of many tasks", "E4"): (clicks, SplitEqually, "of_tasks", unnormalised_weights),
    ("weights normalised over the wrong axis", "habit"): (ratings, RatingParts, "partial", normalised_over_users),
    ("clip after weighting", "E2"): (gradient, bounds.Weights, "times", clipped_after_weighting),
    ("no clipping of parts", "habit"): (ratings, RatingParts, "partial", unclipped_rating_parts),
    ("counts not charged", "E6"): (ratings, RatingParts, "partial", exact_counts),
    ("tail sampling by exact counts", "E6"): (sampled_tail, KeptTasks, "form", exact_counts_for_the_tail),
    ("samples by position, not by who it is", "habit"): (uniform_tasks, user_keys, "seeded_keys", keys_by_position),
    ("mean not charged", "E6"): (ratings, ratings_module, "release_overview", exact_mean),
    ("number of users in a normaliser", "habit"): (
        ratings,
        ratings_module,
        "release_overview",
        exact_number_of_users,
    ),
    ("a vote that looks at another user's row", "habit"): (
        ratings,
        VarianceLosses,
        "__call__",
        votes_on_a_neighbours_row,
    ),
    ("a clip norm from raw quantiles", "habit"): (ratings, RATINGS, "_residuals", clip_norm_from_raw_quantiles),
    ("vectors chosen by exact counts", "habit"): (ratings, RATINGS, "_with_lengths", vectors_by_exact_counts),
    ("a spread of users from their raw means", "habit"): (
        ratings,
        RATINGS,
        "_learn_user_spread",
        spread_from_raw_means,
    ),
    ("rounds chosen by the size of the data", "habit"): (ratings, RATINGS, "run", rounds_by_size),
    ("public seed taken from the data", "habit"): (clicks_of_default_size, CLICKS, "run", seed_from_data),
    ("tasks that lead by exact counts", "habit"): (clicks, CLICKS, "_leading", leading_by_exact_counts),
    ("items of a round of clicks chosen by exact counts", "habit"): (
        clicks_of_default_size,
        CLICKS,
        "_weights",
        round_about_items_by_exact_counts,
    ),
    ("items of rounds of choices chosen by exact counts", "habit"): (
        ratings_by_choice,
        ChoiceRounds,
        "_among",
        choices_about_items_by_exact_counts,
    ),
    ("labels scaled by the largest", "habit"): (ratings, RatingParts, "partial", labels_by_the_largest),
    ("centred over all users", "habit"): (ratings, RatingParts, "partial", centred_over_users),
    ("a vote on clicks that looks at another user's row", "habit"): (
        clicks_of_default_size,
        RankLosses,
        "__call__",
        votes_on_others_rows,
    ),
    ("a scale of choices taken from the data", "habit"): (ratings_by_choice, SplitByValue, "form", scale_from_data),
    ("a sampled sum over everybody", "habit"): (sampled_users, updates_module, "_moments", ignoring_the_sample),
    ("exact counts in the model", "habit"): (
        ratings,
        RATINGS,
        "model",
        in_the_model("popularity", lambda data: data.by_task.counts.astype(np.float32)),
    ),
    ("exact mean in the model", "habit"): (
        ratings,
        RATINGS,
        "model",
        in_the_model("offset", lambda data: float(data.values.mean())),
    ),
    ("number of rows in the settings", "habit"): (
        clicks,
        CLICKS,
        "model",
        in_the_model("settings", lambda data: {"rows": data.n_observations}),
    ),
}

_REPAIRS = {
    "E1: ridge inside the released sum": "sufficient statistics",
    "E2: the sum clipped, not each user": "gradient descent",
    "E6: labels beyond the bound of their noise": "sufficient statistics",
    "E6: a mean with a tenth of its noise": "sufficient statistics",
}


def cases():
    """Every bug, with the estimator as it is for a twin."""
    for name, twin in _REPAIRS.items():
        source, bug = name.split(": ")
        if bug.startswith("labels beyond"):
            source, bug = "habit", "label bound forgotten in the sensitivity"
        wrong, honest = paper_errata.PLANTED[name], paper_errata.REPAIRED[twin]
        yield Case(bug, source, "replay", partial(replayed, wrong), partial(replayed_as_it_is, honest))
    for (name, source), (make, *place) in PLANTED.items():
        epsilons = (5.0,) if make is sampled_users else (0.5, 5.0, 100.0)  # numerical accounting takes its time
        if "_weights" in place:  # with more noise there are no rounds, with less they are about all items
            epsilons = (2.0,)
        wrong = partial(patched, make, *place, epsilons=epsilons)
        yield Case(name, source, "replay", wrong, partial(replayed_as_it_is, make, epsilons))
