"""The published recipe under audit: what its noise supports, and that the twin with the right sensitivities passes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planted.published import PUBLISHED, moved, neighbours, worst_case_epsilon


@pytest.fixture(scope="module")
def both():
    return neighbours(n_users=1000)


@pytest.mark.parametrize(("printed", "supported"), [(1.0, 3.10), (5.0, 19.64), (20.0, 126.9)])
def test_the_noise_supports_what_was_found_by_hand(printed, supported):
    assert worst_case_epsilon(PUBLISHED[printed]) == pytest.approx(supported, rel=1e-3)


@pytest.mark.parametrize("printed", PUBLISHED)
def test_replay_finds_the_slips_and_nearly_all_of_that(both, printed):
    ratios, supported = moved(PUBLISHED[printed], *both)
    assert ratios["number of ratings"] == pytest.approx(100)
    assert ratios["counts"] == pytest.approx(1)
    assert 2.5 < ratios["step 1: vectors"] < 3.5
    assert ratios["step 1: matrices"] <= 1
    assert 0.9 * worst_case_epsilon(PUBLISHED[printed]) < supported
    assert supported > 2.5 * printed


@pytest.mark.parametrize("printed", PUBLISHED)
def test_the_twin_with_the_right_sensitivities_passes(both, printed):
    ratios, supported = moved(replace(PUBLISHED[printed], honest=True), *both)
    assert max(ratios.values()) <= 1 + 1e-9
    assert supported <= printed
