"""A client refuses a server that does not keep to the terms, and never reveals both secrets of a neighbour."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from apportion.errors import InputError
from apportion.federated.client import MaskingClient
from apportion.federated.graph import Graph
from apportion.federated.messages import Confirmations, Delivered, Directory, RefusedError, Survivors
from federated_cases import Played, identity, numbers_of, public_of, terms_of

SECRETS = [identity() for _ in range(6)]


def played(*, active=False):
    terms = terms_of(6, active=active, secrets=SECRETS)
    return Played(terms, numbers_of(6), SECRETS if active else ())


def test_a_client_answers_each_stage_once_and_in_order():
    game = played().advertise().share().mask()
    with pytest.raises(RefusedError, match="Expected the stage confirm next, got mask"):
        game.clients[0].mask(game.deliveries[0])
    client = game.clients[0]
    client.confirm(game.survivors)
    client.reveal(Confirmations(game.terms.run, {}))
    with pytest.raises(RefusedError, match="stage done next, got reveal"):
        client.reveal(Confirmations(game.terms.run, {}))


def test_a_message_of_another_pass_is_refused():
    game = played().advertise()
    with pytest.raises(RefusedError, match="of this pass, got one of another"):
        game.clients[0].share(replace(game.directories[0], run=os.urandom(16)))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda keys: {1: keys[1]}, "keys of at least 2 neighbours, got 1"),
        (lambda keys: {**keys, 7: keys[1]}, "keys of this client's own neighbours, got others"),
        (lambda keys: {**keys, 1: replace(keys[2], sender=1)}, "different keys of all neighbours, got one twice"),
    ],
)
def test_a_directory_of_few_strange_or_repeated_keys_is_refused(change, problem):
    game = played().advertise()
    with pytest.raises(RefusedError, match=problem):
        game.clients[0].share(Directory(game.terms.run, change(game.directories[0].keys)))


def test_a_box_that_was_changed_on_the_way_is_named_and_nothing_of_it_is_revealed(caplog):
    game = played().advertise().share()
    boxes = dict(game.deliveries[0].boxes)
    boxes[1] = boxes[1][:-1] + bytes([boxes[1][-1] ^ 1])
    game.deliveries[0] = Delivered(game.terms.run, boxes)
    game.mask().confirm()
    assert "shares that client 1 sealed for this one, got others" in caplog.text
    revealed = game.clients[0].reveal(Confirmations(game.terms.run, {}))
    assert set(revealed.shares) == set(boxes) - {1}


def test_too_few_survivors_are_refused_before_anything_is_revealed():
    game = played().advertise().share().mask()
    with pytest.raises(RefusedError, match="at least 4 clients to finish, got 3"):
        game.clients[0].confirm(Survivors(game.terms.run, (0, 1, 2)))
    with pytest.raises(RefusedError, match="different clients of this pass"):
        game.clients[1].confirm(Survivors(game.terms.run, (1, 1, 2, 3)))


def test_two_lists_of_survivors_cannot_both_be_answered():
    # The server tells half of the clients that client 0 left, and the others that it did not: with both answers it
    # would have client 0's key and its self mask, and so its numbers.
    game = played(active=True).advertise().share().mask()
    without = Survivors(game.terms.run, (1, 2, 3, 4, 5))
    told = [without if each < 3 else game.survivors for each in range(6)]
    signed = [client.confirm(one).signature for client, one in zip(game.clients, told, strict=True)]
    for each, client in enumerate(game.clients):
        agreeing = {other: signed[other] for other in range(6) if told[other] is told[each]}
        with pytest.raises(RefusedError, match="Expected 4 clients to have signed the same survivors, got 3"):
            client.reveal(Confirmations(game.terms.run, agreeing))


def test_a_signature_counts_once_however_its_client_is_numbered():
    game = played(active=True).advertise().share().mask()
    agreeing = {each: game.clients[each].confirm(game.survivors).signature for each in range(3)}
    again = {**agreeing, **{other - 6: signature for other, signature in agreeing.items()}}
    with pytest.raises(RefusedError, match="one of 6 clients, got one of -6"):
        game.clients[0].reveal(Confirmations(game.terms.run, again))


def test_small_circles_of_clients_get_no_sum():
    game = Played(terms_of(), numbers_of(6)).advertise().share()
    few = dict(list(game.deliveries[0].boxes.items())[:2])
    with pytest.raises(RefusedError, match="Expected shares of at least 3 neighbours"):
        game.clients[0].mask(Delivered(game.terms.run, few))


def test_survivors_without_a_common_mask_are_refused():
    game = Played(terms_of(), numbers_of(6)).advertise().share()
    most = {each: box for each, box in game.deliveries[0].boxes.items() if each != 5}
    game.clients[0].mask(Delivered(game.terms.run, most))
    with pytest.raises(RefusedError, match="survivors that this client has masks with"):
        game.clients[0].confirm(Survivors(game.terms.run, tuple(range(6))))


def test_a_signature_of_another_list_is_refused():
    game = played(active=True).advertise().share().mask()
    other = Survivors(game.terms.run, (1, 2, 3, 4, 5))
    signed = {each: game.clients[each].confirm(other).signature for each in range(1, 6)}
    signed[0] = game.clients[0].confirm(game.survivors).signature
    with pytest.raises(RefusedError, match="Expected a signature of client 1"):
        game.clients[0].reveal(Confirmations(game.terms.run, signed))


def test_keys_that_the_server_made_up_are_refused_where_identities_are_known():
    game = played(active=True).advertise()
    keys = dict(game.directories[0].keys)
    keys[1] = replace(keys[1], mask_key=MaskingClient(terms_of(6), 1).advertise().mask_key)
    with pytest.raises(RefusedError, match="Expected a signature of client 1"):
        game.clients[0].share(Directory(game.terms.run, keys))


def test_a_client_needs_its_own_identity_and_a_position_among_those_asked():
    terms = terms_of(6, active=True, secrets=SECRETS)
    with pytest.raises(RefusedError, match="this client's own identity"):
        MaskingClient(terms, 0, SECRETS[1])
    with pytest.raises(RefusedError, match="position from 0 to 5, got 6"):
        MaskingClient(terms_of(6), 6)


def test_a_client_reveals_one_secret_of_each_neighbour():
    game = played().advertise().share()
    for each in range(5):
        game.server.take(game.masked(each))
    survivors = game.server.survivors()
    game.clients[0].confirm(survivors)
    held = dict(game.clients[0]._held)
    shares = game.clients[0].reveal(Confirmations(game.terms.run, {})).shares
    assert shares == {each: text[:33] if each in survivors.clients else text[33:] for each, text in held.items()}
    assert set(shares) == {1, 2, 3, 4, 5}
    assert survivors.clients == (0, 1, 2, 3, 4)


def test_masks_differ_between_passes_and_clients():
    one, two = played().advertise().share(), played().advertise().share()
    masks = [game.clients[each].mask(game.deliveries[each]) for game in (one, two) for each in (0, 1)]
    assert len({mask.tobytes() for mask in masks}) == 4
    assert all(mask.dtype == np.uint64 for mask in masks)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"least": 2}, "from 3 to 6 clients to finish"),
        ({"threshold": 1}, "threshold above the 1 colluding clients"),
        ({"threshold": 6}, "at most the 5 neighbours, got 6"),
        ({"run": b"short"}, "at least 16 bytes"),
        ({"length": 0}, "at least 1 number"),
        ({"identities": (public_of(SECRETS[0]),)}, "every client needs an identity"),
        (
            {"identities": tuple(map(public_of, SECRETS)), "graph": Graph(6, 4, bytes(32))},
            "everybody must be everybody's neighbour",
        ),
    ],
)
def test_terms_that_protect_nobody_are_refused(changes, problem):
    with pytest.raises(InputError, match=problem):
        terms_of(6, **changes)
