"""The law behind `apportion plan`: how losses change with sizes and ε, and its fit to losses that are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from apportion.errors import InputError
from apportion.evaluation.planning import CLICKS, RATINGS, Size, forecast
from benchmarks.price_study import Fit, law_of

SIZE = Size(5000, 1000, 30)


@pytest.mark.parametrize("law", [RATINGS, CLICKS], ids=["ratings", "clicks"])
def test_losses_fall_with_the_budget_and_with_users_and_rise_with_items(law):
    assert law.loss(SIZE, 1.0) < law.loss(SIZE, 0.1)
    assert law.loss(replace(SIZE, users=50_000), 1.0) < law.loss(SIZE, 1.0)
    assert law.loss(replace(SIZE, items=100), 5.0) < law.loss(SIZE, 5.0)
    assert law.loss(SIZE, 1e9) < 1e-3


def test_a_fit_recovers_a_law_from_its_own_losses():
    sizes = [Size(n, m, r) for n in (1000, 10_000) for m in (200, 2000) for r in (5, 60)]
    fits = [Fit("known", size, epsilon, 0.0) for size in sizes for epsilon in (0.5, 2.0, 20.0)]
    fits = [replace(fit, loss=RATINGS.loss(fit.size, fit.mu)) for fit in fits]
    found = law_of(fits)
    assert found.spread < 0.001
    assert found.loss(SIZE, 1.0) == pytest.approx(RATINGS.loss(SIZE, 1.0), abs=0.001)
    assert found.users == (1000, 10_000)


def test_the_interval_is_around_the_loss_and_never_below_none():
    near, far = forecast(SIZE, [0.5]).expected[0], forecast(Size(1e7, 1000, 30), [20.0]).expected[0]
    assert near.high - near.loss == pytest.approx(RATINGS.spread)
    assert near.loss - near.low == pytest.approx(RATINGS.spread)
    assert far.low == 0.0
    assert forecast(Size(1e7, 1000, 30)).outside == ("users",)


@pytest.mark.parametrize(
    "sizes", [(0, 10, 1), (10, float("nan"), 1), (10, 10, 0.5), (10, 10, 11)], ids=["users", "items", "rows", "more"]
)
def test_impossible_sizes_are_refused(sizes):
    with pytest.raises(InputError, match="Expected"):
        Size(*sizes)
