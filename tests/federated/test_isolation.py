"""A server that withholds boxes cannot get the sum over fewer honest clients than the terms promise."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.errors import InputError
from apportion.federated.client import MaskingClient, add_pair_mask, self_key
from apportion.federated.graph import Graph, everybody
from apportion.federated.masks import KeyPair, expanded
from apportion.federated.messages import Confirmations, Delivered, Directory, RefusedError, Survivors, Terms
from apportion.federated.shares import joined
from federated_cases import LENGTH, identity, numbers_of, public_of


class Isolation:
    """A server against clients who keep to the protocol. It wants the sum over `circle` alone.

    Clients of the circle get the boxes of the circle, of those whom the server leaves out of the list, and of those who
    collude. All others get every box and sign the list; the circle is never asked to sign it.
    """

    def __init__(self, n_clients, colluding, dropping, circle):
        secrets = [identity() for _ in range(n_clients)]
        graph, roster = Graph(n_clients, n_clients - 1, bytes(32)), tuple(map(public_of, secrets))
        self.terms = Terms(bytes(16), graph, colluding + 1, n_clients - dropping, colluding, LENGTH, roster)
        self.clients = [MaskingClient(self.terms, each, secret) for each, secret in enumerate(secrets)]
        self.numbers, self.circle = numbers_of(n_clients), list(range(circle))
        self.outside = list(range(circle, circle + dropping))
        self.bad = list(range(n_clients - colluding, n_clients))
        self.run, self.all = self.terms.run, range(n_clients)

    def recovered(self):
        """The sum over the circle, if clients reveal what it takes."""
        self.keys = {each: self.clients[each].advertise() for each in self.all}
        boxes = [self.clients[each].share(Directory(self.run, self._but(each, self.keys))).boxes for each in self.all]
        masked = [
            self._masked(each, {other: boxes[other][each] for other in self.all if other != each}) for each in self.all
        ]
        shares = self._revealed(Survivors(self.run, tuple(each for each in self.all if each not in self.outside)))
        total = sum((masked[each] for each in self.circle), np.zeros(LENGTH, np.uint64))
        for each in self.circle:
            total -= expanded(self_key(self.terms, each, joined(shares[each], self.terms.threshold)), LENGTH)
        left = [KeyPair(joined(shares[each], self.terms.threshold)) for each in self.outside]
        told = [KeyPair(self.clients[each].state.secrets[0]) for each in self.bad]
        for other, keys in zip(self.outside + self.bad, left + told, strict=True):
            for each in self.circle:  # the mask as the other would add it is minus the one in the circle
                add_pair_mask(total, self.terms, keys, other, each, self.keys[each].mask_key)
        return total.view(np.int64)

    def _but(self, each, held):
        return {other: one for other, one in held.items() if other != each}

    def _masked(self, each, boxes):
        given = {*self.circle, *self.outside, *self.bad} if each in self.circle else set(self.all)
        mask = self.clients[each].mask(Delivered(self.run, {other: boxes[other] for other in given - {each}}))
        return self.numbers[each].view(np.uint64) + mask

    def _revealed(self, survivors):
        signers = [self.clients[each] for each in self.all if each not in self.circle]
        signed = {client.position: client.confirm(survivors).signature for client in signers}
        shares = {}
        for client in signers:
            for owner, share in client.reveal(Confirmations(self.run, signed)).shares.items():
                shares.setdefault(owner, {})[client.position] = share
        return shares


SETTINGS = [(5, 1, 1, 2), (9, 2, 2, 3), (7, 3, 1, 2), (10, 0, 3, 4), (12, 2, 3, 4)]


@pytest.mark.parametrize(("n_clients", "colluding", "dropping", "circle"), SETTINGS)
def test_a_circle_of_clients_is_not_unmasked_alone(n_clients, colluding, dropping, circle):
    """The circle is as small as clients allow, n - 2d - c, so those who sign are as many as they can be."""
    attack = Isolation(n_clients, colluding, dropping, circle)
    with pytest.raises(RefusedError, match=f"clients to have signed the same survivors, got {n_clients - circle}"):
        attack.recovered()


def test_with_one_signature_fewer_asked_for_the_circle_is_unmasked(monkeypatch):
    """The quorum is the least that holds: the attack above works against a smaller one."""
    for n_clients, colluding, dropping, circle in SETTINGS:
        monkeypatch.setattr(
            Terms, "quorum", property(lambda terms: 2 * (terms.n_clients - terms.least) + terms.colluding)
        )
        attack = Isolation(n_clients, colluding, dropping, circle)
        assert np.array_equal(attack.recovered(), attack.numbers[:circle].sum(axis=0))


@pytest.mark.parametrize(("n_clients", "colluding", "dropping"), [(4, 1, 1), (7, 1, 3), (8, 2, 2), (7, 0, 3)])
def test_settings_in_which_a_client_could_be_isolated_are_refused(n_clients, colluding, dropping):
    with pytest.raises(InputError, match=f"Expected at least {3 * dropping + colluding + 1} clients"):
        everybody(n_clients, colluding, dropping)
    with pytest.raises(InputError, match="to be able to drop out"):
        Isolation(n_clients, colluding, dropping, 1)
    assert everybody(3 * dropping + colluding + 1, colluding, dropping).threshold == colluding + 1


def test_no_settings_leave_a_circle_unsigned():
    """For every small federation that is allowed, every list and every circle that clients accept, too few sign."""
    circles = 0
    for n_clients in range(3, 14):
        for colluding in range(n_clients - 2):
            for dropping in range((n_clients - colluding - 1) // 3 + 1):
                if colluding + dropping + 2 > n_clients:
                    continue
                least = n_clients - dropping
                terms = Isolation(n_clients, colluding, dropping, 1).terms
                assert terms.quorum <= least
                for left_out in range(dropping + 1):
                    for circle in range(1, n_clients - colluding - left_out):
                        if circle - 1 + left_out + colluding >= least - 1:  # they accept these boxes
                            circles += 1
                            assert n_clients - circle < terms.quorum
    assert circles > 100
