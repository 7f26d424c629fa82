"""The server refuses bad messages with the reason, and the sum is right without them."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from apportion.federated.messages import Confirmations, DisturbedError, Masked, RefusedError
from federated_cases import LENGTH, Played, numbers_of, opened, terms_of


def played(numbers=None):
    return Played(terms_of(6), numbers_of(6) if numbers is None else numbers)


@pytest.mark.parametrize(
    ("numbers", "what"),
    [
        (np.zeros(LENGTH + 1, np.uint64), "too much"),
        (np.zeros(LENGTH - 1, np.uint64), "too little"),
        (np.zeros((LENGTH, 1), np.uint64), "another shape"),
        (np.full(LENGTH, np.nan), "not numbers"),
        (np.zeros(LENGTH, np.int32), "other whole numbers"),
        (b"bytes", "no vector"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_bad_vector_is_refused_and_the_sum_is_that_of_the_others(numbers, what):
    game = played().advertise().share()
    for each in range(5):
        game.server.take(game.masked(each))
    with pytest.raises(RefusedError, match=f"Expected a vector of {LENGTH} numbers of 64 bits of client 5"):
        game.server.take(Masked(game.terms.run, 5, numbers))
    assert finished(game, range(5)) == (0, 1, 2, 3, 4)


def finished(game, staying):
    """Finish a pass with these clients; check its sum; return whose numbers are in it."""
    survivors = game.server.survivors()
    for each in staying:
        game.clients[each].confirm(survivors)
        game.server.take(game.clients[each].reveal(empty(game)))
    total = game.server.total()
    np.testing.assert_array_equal(opened(total), game.numbers[list(total.clients)].sum(axis=0))
    return total.clients


def empty(game):
    return Confirmations(game.terms.run, {})


def test_a_vector_sent_twice_counts_once():
    game = played().advertise().share()
    for each in range(6):
        game.server.take(game.masked(each))
    with pytest.raises(RefusedError, match="Client 0 sent Masked twice"):
        game.server.take(Masked(game.terms.run, 0, np.ones(LENGTH, np.uint64)))
    assert finished(game, range(6)) == tuple(range(6))


def test_a_late_vector_is_refused_and_does_not_count():
    game = played().advertise().share()
    late = game.masked(5)
    for each in range(5):
        game.server.take(game.masked(each))
    game.server.survivors()
    with pytest.raises(RefusedError, match="Client 5 sent Masked too early or too late: this is stage REVEAL"):
        game.server.take(late)


def test_a_message_of_an_old_pass_is_refused():
    old, game = played().advertise().share(), played().advertise().share()
    with pytest.raises(RefusedError, match="Client 2 sent a message of another pass"):
        game.server.take(old.masked(2))


def test_a_stranger_and_a_client_who_left_are_refused():
    game = played()
    for each in range(5):
        game.server.take(game.clients[each].advertise())
    with pytest.raises(RefusedError, match="Client 9 is not, or no longer, part of this pass"):
        game.server.take(replace(game.clients[5].advertise(), sender=9))
    directories = game.server.directories()
    for each in range(5):
        game.server.take(game.clients[each].share(directories[each]))
    deliveries = game.server.deliveries()
    assert 5 not in deliveries
    with pytest.raises(RefusedError, match="Client 5 is not, or no longer, part of this pass"):
        game.server.take(Masked(game.terms.run, 5, np.zeros(LENGTH, np.uint64)))


def test_keys_that_are_none_and_shares_that_miss_a_neighbour_are_refused():
    game = played()
    with pytest.raises(RefusedError, match="two keys of 32 bytes of client 0"):
        game.server.take(replace(game.clients[0].advertise(), mask_key=bytes(32)))
    game = played().advertise()
    shared = game.clients[0].share(game.directories[0])
    with pytest.raises(RefusedError, match="shares for each of its neighbours of client 0"):
        game.server.take(replace(shared, boxes={1: shared.boxes[1]}))


def test_revealed_shares_of_the_wrong_size_are_refused_and_few_wrong_ones_are_left_out_and_noted():
    game = played().advertise().share().mask().confirm()
    revealed = [client.reveal(empty(game)) for client in game.clients]
    with pytest.raises(RefusedError, match="shares of 33 bytes of neighbours who shared of client 0"):
        game.server.take(replace(revealed[0], shares={}))
    wrong = {each: bytes(33) for each in revealed[0].shares}
    game.server.take(replace(revealed[0], shares=wrong))
    for message in revealed[1:]:
        game.server.take(message)
    np.testing.assert_array_equal(opened(game.server.total()), game.numbers.sum(axis=0))
    assert {holder for _, holder in game.server.doubted} == {0}


def test_colluding_clients_at_the_lowest_places_cannot_spoil_a_sum_by_shares_that_fit_those_of_the_next():
    game = Played(terms_of(9, colluding=2), numbers_of(9)).advertise().share().mask().confirm()
    for position, client in enumerate(game.clients):
        message = client.reveal(empty(game))
        if position < 2:
            message = replace(message, shares={each: _moved(share, position) for each, share in message.shares.items()})
        game.server.take(message)
    np.testing.assert_array_equal(opened(game.server.total()), game.numbers.sum(axis=0))
    assert {holder for _, holder in game.server.doubted} == {0, 1}


def _moved(share, position):
    """Add (x - 3)(x - 4), which leaves the shares of clients 2 and 3 on the same polynomial of degree 2."""
    value = int.from_bytes(share, "big") + (position - 2) * (position - 3)
    return value.to_bytes(33, "big")


def test_a_client_that_deals_out_wrong_shares_stops_the_pass_and_is_named():
    game = played().advertise().share().mask().confirm()
    for position, client in enumerate(game.clients):
        message = client.reveal(empty(game))
        wrong = {2: os.urandom(33)} if position != 2 else {}
        game.server.take(replace(message, shares={**message.shares, **wrong}))
    with pytest.raises(DisturbedError, match=r"masks of client 2 cannot be removed.*do not belong together") as found:
        game.server.total()
    assert found.value.client == 2


@pytest.mark.parametrize("lie", [lambda shares: {**shares, 5: os.urandom(33)}, lambda shares: without(shares, 5)])
def test_an_honest_client_is_not_named_where_those_who_may_collude_can_stop_the_pass(lie):
    """Of four who reveal shares, two collude: client 5 cannot be told from them."""
    game = Played(terms_of(6, colluding=2), numbers_of(6)).advertise().share().mask().confirm()
    for each in (0, 1, 2, 3):
        message = game.clients[each].reveal(empty(game))
        game.server.take(replace(message, shares=lie(message.shares)) if each < 2 else message)
    with pytest.raises(RefusedError, match="It is not clear by whose fault") as found:
        game.server.total()
    assert not isinstance(found.value, DisturbedError)


def without(shares, owner):
    return {each: share for each, share in shares.items() if each != owner}


def test_stages_end_in_order():
    with pytest.raises(RefusedError, match="Expected the end of stage ADVERTISE, got SHARE"):
        played().server.deliveries()
