"""Mechanisms own norm, noise, draw, cost and words; a new one is a class in one file."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from apportion.auditing import audit_likelihood, audit_neighbour
from apportion.auditing.statements import check_statement
from apportion.errors import BudgetError, InputError
from apportion.postprocessing.box_widths import box_tail
from apportion.privacy import (
    BoundedSum,
    Budget,
    Gaussian,
    Laplace,
    Ledger,
    Rows,
    SampledGaussian,
    SeededNoise,
    Session,
    Share,
    SystemNoise,
)
from apportion.privacy.mechanisms import Box, Exponential, PointsOfList, PointsOnLine, mechanism_class
from apportion.privacy.mechanisms.box import COMMON, drawn_range, unit_stddev
from apportion.privacy.mechanisms.gaussian import add_gaussian
from apportion.privacy.mechanisms.grid import on_grid
from apportion.privacy.ranks import Candidates, UniformBase
from extending.mechanism.staircase import Staircase

from statistics_helpers import assert_distribution

OWN = (
    Gaussian(),
    Laplace(),
    Box(),
    Exponential(),
    PointsOnLine(UniformBase(0.0, 1.0)),
    PointsOfList(Candidates.listed([1.0, 2.0])),
    SampledGaussian(0.5),
)


def a_sum(rows=((1.0,),)):
    values = np.asarray(rows)
    return BoundedSum.user_total(values.sum(axis=0), Rows(values, 1.0))


def test_keys_are_unique_and_lead_back_to_their_class():
    keys = [mechanism.key for mechanism in OWN]
    assert len(set(keys)) == len(keys)
    assert [mechanism_class(key) for key in keys] == [type(mechanism) for mechanism in OWN]
    assert all(mechanism.words for mechanism in OWN)


def test_a_key_that_no_package_has_is_refused_in_one_sentence():
    with pytest.raises(
        InputError, match=r"No installed package has the mechanism 'quantum'.*known mechanisms: gaussian"
    ) as no:
        mechanism_class("quantum")
    assert str(no.value).count("\n") == 0


def test_a_mechanism_of_ones_own_is_charged_drawn_stated_and_audited_like_any_other(tmp_path):
    with Ledger.open(tmp_path / "book.sqlite") as ledger:
        account = ledger.create_account("own", Budget(1.0, 0.0))
        session = Session(Budget(1.0, 0.0), noise=SeededNoise(0), ledger=account)
        session.release_with(Staircase(), "mine", a_sum(), session.plan(a=0.5).one("a"))
        assert account.history()[0].event.epsilon == pytest.approx(0.5)
    (release,) = session.statement().releases
    assert (release.mechanism, release.mechanism_words, release.epsilon) == (
        "staircase",
        "staircase",
        pytest.approx(0.5),
    )
    assert session.spent == pytest.approx(0.5)
    with pytest.raises(BudgetError, match="is left"):
        session.release_with(Staircase(), "more", a_sum(), Share(0.6, session.budget))
    exact = Session(Budget(1.0, 0.0), noise=SeededNoise(0, exact=True))
    share = exact.plan(a=0.5).one("a")
    with pytest.raises(BudgetError, match="no form in exact arithmetic"):
        exact.release_with(Staircase(), "mine", a_sum(), share)

    def fit(rows, session):
        return {"sum": session.release_with(Staircase(), "mine", a_sum(rows), session.plan(a=1.0).one("a"))}

    arguments = {"budget": Budget(1.0, 0.0), "noise": SeededNoise(1)}
    assert audit_neighbour(fit, [[1.0], [0.5]], [[0.5]], arguments) == {"mine": 1.0}
    with pytest.raises(NotImplementedError, match="states no density"):
        audit_likelihood(fit, [[1.0]], [[0.0]], {"budget": Budget(1.0, 0.0)}, noise=SeededNoise, draws=2)
    with pytest.raises(InputError, match="No installed package has the mechanism 'staircase'"):
        check_statement(session.statement())


def test_a_release_on_a_sample_is_drawn_in_no_other_way():
    session = Session(Budget(1.0, 1e-5), noise=SeededNoise(0))
    _, share = session.plan_sampled(1, 0.5)
    with pytest.raises(BudgetError, match="release_sampled, which draws the sample"):
        session.release_with(SampledGaussian(0.5), "whole", a_sum(), share)
    with pytest.raises(BudgetError, match="planned for Gaussian"):
        session.release_with(Gaussian(), "whole", a_sum(), share)
    assert not session.statement().releases


def test_a_share_of_a_pure_budget_buys_no_release_that_is_not_pure():
    session = Session(Budget(1.0, 0.0), noise=SeededNoise(0))
    with pytest.raises(InputError, match="delta above 0, because Gaussian noise needs one"):
        session.release("x", a_sum(), session.plan(a=1.0).one("a"))
    other = Session(Budget(1.0, 1e-5), noise=SeededNoise(0))
    with pytest.raises(BudgetError, match="share of this session's budget"):
        other.release_laplace("x", a_sum(), session.plan(a=1.0).one("a"))


def test_the_chosen_index_has_the_probability_that_the_density_says():
    """False alarms: 1e-9."""
    scores, scale = np.array([0.0, 1.0, 2.5]), 1.3
    mechanism, noise = Exponential(), SeededNoise(3)
    opened = type("Opened", (), {"value": scores})()
    drawn = np.bincount([mechanism.draw(opened, scale, noise) for _ in range(20_000)], minlength=3)
    expected = 20_000 * np.exp([mechanism.log_density(k, scores, None, scale) for k in range(3)])
    assert expected.sum() == pytest.approx(20_000)
    assert stats.chisquare(drawn, expected).pvalue > 1e-9


def test_laplace_noise_has_the_density_that_is_said_of_it():
    scale, noise = 0.7, SeededNoise(4)
    opened = type("Opened", (), {"value": np.zeros(5000), "step": None})()
    drawn = Laplace().draw(opened, scale, noise)
    assert_distribution(drawn, stats.laplace(scale=scale).cdf)
    here, there = (Laplace().log_density(drawn, np.full(5000, at), None, scale) for at in (0.0, 1.0))
    expected = stats.laplace.logpdf(drawn, 0.0, scale) - stats.laplace.logpdf(drawn, 1.0, scale)
    assert here - there == pytest.approx(expected.sum())


def test_noise_below_what_the_charge_asks_for_is_seen_for_every_mechanism_of_the_filter():
    session = Session(Budget(2.0, 1e-5), noise=SeededNoise(0))
    plan = session.plan(a=0.2, b=0.2, c=0.2)
    session.release("gaussian", a_sum(), plan.one("a"))
    session.release_laplace("laplace", a_sum(), plan.one("b"))
    session.choose("exponential", a_sum(), plan.one("c"))
    statement = session.statement()
    assert all(check.passed for check in check_statement(statement))
    for release in statement.releases:
        object.__setattr__(release, "stddev", 0.99 * release.stddev)
        (noise,) = [check for check in check_statement(statement) if check.name == "noise of each release"]
        assert not noise.passed
        assert repr(release.name) in noise.words
        object.__setattr__(release, "stddev", release.stddev / 0.99)


class OneKey(SystemNoise):
    """Uses one key again and again, which no source may."""

    def key(self):
        return b"k" * 32


class Halved(OneKey):
    """Draws half of what it should, by a method of its own."""

    def normal(self, shape, dtype):
        return super().normal(shape, dtype) / 2


@pytest.mark.parametrize("stddev", [3.0, 1e-4, 2.0**90])
@pytest.mark.parametrize("source", [OneKey(), Halved()])
def test_noise_in_one_pass_is_the_source_s_own_draws_on_the_grid(source, stddev):
    value = np.linspace(-5, 5, 300).reshape(3, 100) * stddev
    wanted = on_grid(source.normal(value.shape, np.float64) * stddev + value, stddev)
    assert np.array_equal(add_gaussian(value, stddev, None, source), wanted)


@pytest.mark.parametrize("source", [OneKey, Halved, lambda: SeededNoise(3)])
def test_a_release_in_float32_is_the_one_in_float64_rounded(source):
    value = np.linspace(-5, 5, 300)
    narrow = add_gaussian(value, 0.7, None, source(), np.dtype(np.float32))
    assert narrow.dtype == np.float32
    assert np.array_equal(narrow, add_gaussian(value, 0.7, None, source()).astype(np.float32))


@pytest.mark.parametrize("size", [1, 2, 6, 20])
def test_noise_of_a_box_has_the_radius_and_the_margins_that_its_density_gives(size):
    """The range with 0 is a Gamma variable of that shape; one coordinate has the tail of `box_tail`."""
    noise = SeededNoise(7)
    drawn = np.array([drawn_range(size, noise) for _ in range(20_000)])
    ranges = np.maximum(drawn.max(axis=1), 0) - np.minimum(drawn.min(axis=1), 0)
    assert_distribution(ranges, stats.gamma(size).cdf)
    margin = np.abs(drawn[:, -1])
    assert_distribution(margin, lambda values: 1 - np.array([box_tail(float(each), size) for each in np.ravel(values)]))
    assert np.square(drawn[:, 0]).mean() == pytest.approx(unit_stddev(size) ** 2, rel=0.06)
    if size > 1:
        assert np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1] == pytest.approx(COMMON, abs=0.03)


def test_noise_of_a_box_is_as_likely_as_its_log_density_says():
    """Two coordinates, in cells of a grid: draws fall into each as often as the density integrates to."""
    noise, edges = SeededNoise(3), np.linspace(-6, 6, 25)
    drawn = np.array([drawn_range(2, noise) for _ in range(40_000)])
    found = np.histogram2d(*drawn.T, bins=[edges, edges])[0]
    fine = (np.arange(-6, 6, 0.05) + 0.025)[:, None]
    points = np.stack(np.broadcast_arrays(fine, fine.T), axis=-1)
    density = np.exp(-(np.maximum(points.max(axis=-1), 0) - np.minimum(points.min(axis=-1), 0)))
    assert np.exp(Box().log_density(points[3, 5], np.zeros(2), None, 1.0)) == pytest.approx(density[3, 5])
    expected = density.reshape(24, 10, 24, 10).sum(axis=(1, 3))
    expected *= found.sum() / expected.sum()
    assert stats.chi2.sf(float((np.square(found - expected) / expected).sum()), found.size - 1) > 1e-9
