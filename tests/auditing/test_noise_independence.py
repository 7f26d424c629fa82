"""No draw of noise depends on another: within a source, between its copies, threads and processes, and in whole fits.

Every check accuses a right source with probability at most 1e-9. Power: two streams that share 500 numbers anywhere
are found out with probability above 0.999 (`test_a_shared_part_is_found`).
"""

from __future__ import annotations

import itertools
from unittest import mock

import numpy as np
import pytest

from apportion.auditing.streams import dependence, repeated_runs
from apportion.linalg import kernel
from apportion.privacy import SeededNoise, SystemNoise
from noise_scenes import ALPHA, COPIES, WITHIN, look, noise_of_a_fit
from planted import noise as planted_noise

from private_estimators import PRIVATE_ESTIMATORS, clicks, ratings

SCENES = {scene.__name__: scene for scene in (*WITHIN, *COPIES)}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_draws_of_the_secure_source_are_independent(scene):
    found = look(scene, SystemNoise)
    assert not found.dependent, found


@pytest.mark.parametrize("scene", WITHIN, ids=[scene.__name__ for scene in WITHIN])
def test_draws_of_a_seeded_source_are_independent(scene):
    found = look(scene, lambda: SeededNoise(8))
    assert not found.dependent, found


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", PRIVATE_ESTIMATORS)
def test_no_release_of_a_fit_shares_noise_with_another(name, exact):
    found = dependence(noise_of_a_fit(PRIVATE_ESTIMATORS[name], SystemNoise(exact=exact)), alpha=ALPHA)
    assert not found.found, found


@pytest.mark.parametrize("name", ["ratings", "clicks"])
def test_two_fits_share_no_noise(name):
    one, two = (noise_of_a_fit(PRIVATE_ESTIMATORS[name], SystemNoise()) for _ in range(2))
    assert not dependence(one, two, ALPHA).found


def test_no_key_is_used_for_two_draws():
    used = []

    def noting(function, at):
        def call(*arguments, **named):
            used.append(bytes(arguments[at]))
            return function(*arguments, **named)

        return call

    with (
        mock.patch.object(kernel, "fill_normals", noting(kernel.fill_normals, 1)),
        mock.patch.object(kernel, "add_normals", noting(kernel.add_normals, 3)),
        mock.patch.object(kernel, "rounded_normals", noting(kernel.rounded_normals, 3)),
    ):
        for exact in (False, True):
            noise_of_a_fit(ratings, SystemNoise(exact=exact))
            noise_of_a_fit(clicks, SystemNoise(exact=exact))
    assert len(used) > 20
    assert len(set(used)) == len(used)


@pytest.mark.parametrize(
    "wrong", [planted_noise.StartsAgain, planted_noise.OneKeyForEachShape, planted_noise.OneKeyForSums]
)
def test_a_source_that_uses_a_key_again_is_found_in_a_fit(wrong):
    assert dependence(noise_of_a_fit(ratings, wrong()), alpha=ALPHA).found


def test_a_shared_part_is_found():
    found = 0
    for seed in range(50):
        one, two, shared = (SeededNoise(3 * seed + k).normal((2000,), np.float64) for k in range(3))
        one[700:1200], two[100:600] = shared[:500], shared[:500]
        found += dependence(one, two, ALPHA).found
    assert found == 50


def test_the_threshold_holds_where_numbers_are_independent():
    """At a rate of 0.5 per test the bound may accuse half; it is loose, and must accuse fewer."""
    draws = [SeededNoise(seed).normal((300,), np.float64) for seed in range(60)]
    accused = [dependence(one, two, 0.5).found for one, two in itertools.pairwise(draws)]
    accused += [dependence(one, alpha=0.5).found for one in draws]
    assert np.mean(accused) < 0.5


def test_runs_that_occur_twice_are_counted():
    drawn = SeededNoise(1).normal((1000,), np.float64)
    assert repeated_runs([drawn]) == 0
    assert repeated_runs([drawn, drawn[10:20]]) == 7
    assert repeated_runs([np.tile(drawn[:100], 2)]) == 97
