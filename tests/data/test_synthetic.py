"""Generated data: the sizes asked for, the long tail asked for, and the truth that made them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.data import synthetic
from apportion.data.sampling import draw_distinct
from apportion.errors import InputError

GENERATORS = [synthetic.long_tailed_ratings, synthetic.long_tailed_clicks]


@st.composite
def sizes(draw):
    n_users, n_tasks = draw(st.integers(1, 30)), draw(st.integers(1, 40))
    return n_users, n_tasks, draw(st.integers(n_users, n_users * n_tasks))


@pytest.mark.parametrize("generate", GENERATORS)
@given(shape=sizes(), seed=st.integers(0, 2**32 - 1), skew=st.floats(0, 3))
def test_any_size_is_met_exactly(generate, shape, seed, skew):
    data, _ = generate(*shape, rank=3, rng=np.random.default_rng(seed), skew=skew)
    assert (data.n_users, data.n_tasks, data.n_observations) == shape
    assert data.by_user.counts.min() >= 1


@pytest.mark.parametrize("generate", GENERATORS)
def test_the_same_generator_state_gives_the_same_data(generate):
    one, other = (generate(300, 200, 5_000, rank=3, rng=np.random.default_rng(8))[0] for _ in range(2))
    assert one == other
    assert one != generate(300, 200, 5_000, rank=3, rng=np.random.default_rng(9))[0]


@pytest.mark.parametrize("generate", GENERATORS)
def test_the_tail_is_long_on_both_sides(generate):
    data, _ = generate(5_000, 2_000, 200_000, rank=4, rng=np.random.default_rng(1))
    by_task = np.sort(data.by_task.counts)
    assert by_task[-200:].sum() > 0.4 * data.n_observations
    assert np.median(data.by_user.counts) < 0.75 * data.by_user.counts.mean()


def test_without_skew_all_tasks_are_equally_popular():
    data, _ = synthetic.long_tailed_ratings(5_000, 100, 100_000, rank=2, rng=np.random.default_rng(2), skew=0.0)
    counts = data.by_task.counts
    assert np.abs(counts - 1_000).max() < 6 * np.sqrt(1_000)


def test_ratings_have_the_truth_as_their_mean_and_its_noise_around_it():
    rng = np.random.default_rng(3)
    data, truth = synthetic.long_tailed_ratings(2_000, 500, 100_000, rank=5, rng=rng, noise_stddev=0.7)
    residuals = data.values - truth.expected(data.users, data.tasks)
    # 100,000 residuals: standard errors 0.0022 of the mean and 0.0016 of the deviation
    assert abs(residuals.mean()) < 0.015
    assert abs(residuals.std() - 0.7) < 0.01


def test_the_parts_of_a_rating_have_the_spreads_asked_for():
    spreads = {"user_bias_stddev": 0.3, "task_bias_stddev": 0.6, "taste_stddev": 0.9}
    _, truth = synthetic.long_tailed_ratings(9_000, 9_000, 9_000, rank=6, rng=np.random.default_rng(4), **spreads)
    taste = (truth.user_factors[:9_000] * truth.task_factors[:9_000]).sum(axis=1)
    assert truth.user_bias.std() == pytest.approx(0.3, rel=0.05)
    assert truth.task_bias.std() == pytest.approx(0.6, rel=0.05)
    assert taste.std() == pytest.approx(0.9, rel=0.08)


@pytest.mark.parametrize(("stars", "allowed"), [("whole", np.arange(1, 6)), ("half", np.arange(2, 11) / 2)])
def test_stars_lie_on_their_scale(stars, allowed):
    rng = np.random.default_rng(5)
    data, _ = synthetic.long_tailed_ratings(500, 200, 10_000, rank=2, rng=rng, stars=stars)
    assert set(np.unique(data.values)) == set(allowed)
    assert data.values.dtype == np.float32


def test_clicks_follow_the_users_own_probabilities():
    rng = np.random.default_rng(6)
    data, truth = synthetic.long_tailed_clicks(4_000, 300, 20_000, rank=4, rng=rng)
    probabilities = truth.probabilities(np.arange(4_000))
    assert probabilities.sum(axis=1) == pytest.approx(1.0, abs=1e-4)
    own = np.log(probabilities[data.users, data.tasks]).mean()
    others = np.log(probabilities[rng.permutation(4_000)[data.users], data.tasks]).mean()
    assert own > others + 0.3
    assert (data.values == 1.0).all()


class Fixed:
    """Everybody chooses with the same probabilities."""

    def __init__(self, probabilities):
        self.probabilities = np.asarray(probabilities)
        self.n_tasks = len(self.probabilities)

    def draw(self, users, rng):
        return rng.choice(self.n_tasks, size=len(users), p=self.probabilities)

    def log_probabilities(self, users):
        return np.tile(np.log(self.probabilities).astype(np.float32), (len(users), 1))


@pytest.mark.parametrize("heavy_fraction", [0.0, 1.0])
def test_both_ways_of_drawing_follow_successive_sampling(monkeypatch, heavy_fraction):
    monkeypatch.setattr("apportion.data.sampling._HEAVY_FRACTION", heavy_fraction)
    first = np.array([0.5, 0.3, 0.15, 0.05])
    pairs = {
        (a, b): first[a] * first[b] / (1 - first[a]) + first[b] * first[a] / (1 - first[b])
        for a in range(4)
        for b in range(a + 1, 4)
    }
    n_users = 40_000
    users, tasks = draw_distinct(np.full(n_users, 2), Fixed(first), np.random.default_rng(7))
    assert (users == np.repeat(np.arange(n_users), 2)).all()
    drawn = tasks.reshape(n_users, 2)
    for (a, b), probability in pairs.items():
        share = ((drawn[:, 0] == a) & (drawn[:, 1] == b)).mean()
        # 5 standard deviations; a false alarm in 12 comparisons has probability below 1e-5
        assert abs(share - probability) < 5 * np.sqrt(probability / n_users)


def test_impossible_sizes_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match=r"from 10 \(one per user\) to 50 \(all pairs\) observations .* got 51"):
        synthetic.long_tailed_ratings(10, 5, 51, rank=1, rng=rng)
    with pytest.raises(InputError, match="got 9"):
        synthetic.long_tailed_clicks(10, 5, 9, rank=1, rng=rng)
    with pytest.raises(InputError, match="Expected rank >= 1, got 0"):
        synthetic.long_tailed_clicks(10, 5, 20, rank=0, rng=rng)
    with pytest.raises(InputError, match="got 'quarter'"):
        synthetic.long_tailed_ratings(10, 5, 20, rank=1, rng=rng, stars="quarter")
