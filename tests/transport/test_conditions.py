"""What an owner may agree to."""

from __future__ import annotations

import pytest

from apportion.errors import InputError
from apportion.federated import RefusedError
from apportion.transport.conditions import MOST_CLIENTS, MOST_USERS, Conditions
from apportion.transport.listed import PublicFacts
from apportion.transport.question import _MOST_STEPS

ROSTER = tuple(bytes([each] * 32) for each in range(5))


def made(**changes):
    return Conditions(
        **{
            "roster": ROSTER,
            "server": bytes([9] * 32),
            "facts": PublicFacts(6),
            "allowed": frozenset({"popularity"}),
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"roster": (*ROSTER, ROSTER[0])}, "different keys"),
        ({"roster": (*ROSTER, b"short")}, "different keys"),
        ({"roster": ()}, "different keys"),
        ({"roster": ROSTER[:2]}, "from 3 to 512"),
        ({"server": b"short"}, "key of the server"),
        ({"server": ROSTER[0]}, "no client's"),
        ({"colluding": 4}, "honest"),
        ({"dropping": 2}, "at least 8 clients"),
        ({"noise": "nobody"}, "noise of clients or of the server"),
        ({"allowed": frozenset({"everything"})}, "got everything"),
        ({"allowed": frozenset()}, "got none"),
        ({"passes": 0}, "at least 1 pass"),
        ({"sums": {"popularity": 0}}, "at least 1 sum of each name"),
        ({"delta": 0.0}, "delta above 0"),
        ({"epsilon": -1.0}, "epsilon > 0"),
    ],
)
def test_what_cannot_be_agreed_to_is_refused(changes, reason):
    with pytest.raises(InputError, match=reason):
        made(**changes)


def test_a_client_that_is_not_on_the_roster_is_refused():
    assert made().position(ROSTER[3]) == 3
    with pytest.raises(InputError, match="own key"):
        made().position(bytes(range(32)))


def test_costs_add_up_to_the_budget_and_not_beyond():
    conditions = made(epsilon=2.0)
    whole = conditions.budget.mu**2
    conditions.refuse_beyond(whole / 2, whole / 2, 0)
    with pytest.raises(RefusedError, match="more than what is left"):
        conditions.refuse_beyond(whole / 2, whole * 0.51, 0)


def test_no_sum_of_the_largest_federation_wraps_around():
    largest_share = 2.0**40 * 40  # no normal number of the noise is larger, but with a probability below 1e-300
    assert MOST_USERS * _MOST_STEPS + largest_share < 2**62 // MOST_CLIENTS
