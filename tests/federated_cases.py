"""Small passes of secure aggregation: terms, numbers, and clients who leave or misbehave."""

from __future__ import annotations

import os

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from apportion.federated.client import MaskingClient
from apportion.federated.graph import Graph, planned
from apportion.federated.messages import Masked, Terms
from apportion.federated.passes import aggregated
from apportion.federated.server import MaskingServer

LENGTH = 5


def terms_of(n_clients=6, colluding=1, dropping=2, length=LENGTH, *, active=False, secrets=None, **changes):
    """Terms of a pass in which everybody is everybody's neighbour, or as many as are planned."""
    dropping = min(dropping, 1) if active else dropping
    degree = planned(n_clients, colluding, dropping)
    identities = tuple(public_of(each) for each in secrets) if active else ()
    given = {
        "run": os.urandom(16),
        "graph": Graph(n_clients, degree.neighbours, os.urandom(32)),
        "threshold": degree.threshold,
        "least": max(n_clients - dropping, colluding + 2),
        "colluding": colluding,
        "length": length,
        "identities": identities,
    }
    return Terms(**{**given, **changes})


def identity():
    """A client's secret Ed25519 key."""
    return Ed25519PrivateKey.generate().private_bytes_raw()


def public_of(secret):
    """The public key of a secret one."""
    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def signed_by(secret, text):
    """A signature of a text."""
    return Ed25519PrivateKey.from_private_bytes(secret).sign(text)


def numbers_of(n_clients, length=LENGTH, seed=1):
    """A vector of whole numbers for each client, of both signs."""
    return np.random.default_rng(seed).integers(-(2**40), 2**40, (n_clients, length))


def adding(numbers):
    """What adds a mask to each client's numbers."""
    return {each: (lambda mask, own=own: own.view(np.uint64) + mask) for each, own in enumerate(numbers)}


def opened(total):
    """The sum of a pass."""
    return (total.numbers - total.masks).view(np.int64)


def sum_of(terms, numbers, leaving=None, identities=None):
    """Run a pass; return its sum, and whose numbers are in it."""
    total = aggregated(terms, adding(numbers), leaving, identities)
    return opened(total), total.clients


class Played:
    """A pass played stage by stage, so that a test can send something else in between."""

    def __init__(self, terms, numbers, identities=()):
        secret = dict(enumerate(identities))
        self.terms, self.numbers = terms, numbers
        self.server = MaskingServer(terms)
        self.clients = [MaskingClient(terms, each, secret.get(each)) for each in range(terms.n_clients)]

    def advertise(self):
        for client in self.clients:
            self.server.take(client.advertise())
        self.directories = self.server.directories()
        return self

    def share(self):
        for each, client in enumerate(self.clients):
            self.server.take(client.share(self.directories[each]))
        self.deliveries = self.server.deliveries()
        return self

    def masked(self, each):
        mask = self.clients[each].mask(self.deliveries[each])
        return Masked(self.terms.run, each, self.numbers[each].view(np.uint64) + mask)

    def mask(self):
        for each in range(len(self.clients)):
            self.server.take(self.masked(each))
        self.survivors = self.server.survivors()
        return self

    def confirm(self):
        confirmed = [client.confirm(self.survivors) for client in self.clients]
        if self.terms.active:
            for message in confirmed:
                self.server.take(message)
            self.confirmations = self.server.confirmations()
        return self
