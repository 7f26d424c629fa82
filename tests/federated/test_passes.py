"""A pass adds up those who finish, whoever leaves and when, or is refused with the reason."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.federated.messages import RefusedError, Stage
from federated_cases import identity, numbers_of, sum_of, terms_of


@pytest.mark.parametrize("stage", [each for each in Stage if each is not Stage.DONE])
def test_two_clients_of_six_leave_at_any_stage_and_the_sum_is_that_of_those_who_finished(stage):
    numbers = numbers_of(6)
    total, clients = sum_of(terms_of(6), numbers, {1: stage, 4: stage})
    assert clients == (tuple(range(6)) if stage > Stage.MASK else (0, 2, 3, 5))
    np.testing.assert_array_equal(total, numbers[list(clients)].sum(axis=0))


def test_clients_leave_a_ring_at_different_stages():
    numbers = numbers_of(40)
    terms = terms_of(40, 2, 8)
    total, clients = sum_of(terms, numbers, {each: Stage(each % 5) for each in range(8)})
    assert terms.graph.degree < 39
    assert len(clients) == 34
    np.testing.assert_array_equal(total, numbers[list(clients)].sum(axis=0))


@pytest.mark.parametrize("stage", [Stage.ADVERTISE, Stage.SHARE, Stage.MASK])
def test_a_pass_with_too_few_clients_is_refused_before_anything_is_revealed(stage):
    with pytest.raises(RefusedError, match=r"Only 3 clients are left .* ask for 4. Nothing was revealed"):
        sum_of(terms_of(6), numbers_of(6), dict.fromkeys((0, 1, 2), stage))


def test_a_pass_without_enough_shares_is_refused():
    with pytest.raises(RefusedError, match="masks of client 0 cannot be removed: Expected at least 2 shares"):
        sum_of(terms_of(6), numbers_of(6), dict.fromkeys(range(5), Stage.REVEAL))


def test_identities_change_nothing_in_the_sum():
    secrets, numbers = [identity() for _ in range(6)], numbers_of(6)
    terms = terms_of(6, active=True, secrets=secrets)
    total, clients = sum_of(terms, numbers, {2: Stage.MASK}, dict(enumerate(secrets)))
    assert clients == (0, 1, 3, 4, 5)
    np.testing.assert_array_equal(total, numbers[list(clients)].sum(axis=0))


def test_sums_are_modulo_two_to_the_64():
    numbers = np.full((6, 5), 2**61)
    total, _ = sum_of(terms_of(6), numbers)
    np.testing.assert_array_equal(total, np.full(5, 6 * 2**61 - 2**64))
