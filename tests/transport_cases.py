"""Small federations by letters: identities, accounts, desks in this process, and letters of a hostile server."""

from __future__ import annotations

import os
import time

import numpy as np

from apportion.data import Interactions
from apportion.data.synthetic import long_tailed_ratings
from apportion.data.vocabulary import Vocabulary
from apportion.federated import DataElsewhere
from apportion.transport import (
    CATALOGUE,
    ClientAccount,
    ClientsByPost,
    Conditions,
    Desk,
    LocalPost,
    PublicFacts,
    letters,
    question,
)
from apportion.transport.plain import packed
from federated_cases import identity, public_of, signed_by

N_ITEMS = 6
POPULARITY = {"name": "popularity", "given": {}, "without": None}


class Federation:
    """Clients with rows, keys and accounts under one folder."""

    def __init__(self, folder, n_clients=5, n_users=30, **changes):
        self.folder = folder
        made, _ = long_tailed_ratings(n_users, N_ITEMS, 4 * n_users, rank=1, rng=np.random.default_rng(3))
        self.items = Vocabulary(made.task_ids.ids, name="item", declared=True)
        self.data = Interactions.from_codes(
            made.users, made.tasks, made.values, user_ids=made.user_ids, task_ids=self.items
        )
        self.server = identity()
        self.secrets = [identity() for _ in range(n_clients)]
        given = {
            "roster": tuple(map(public_of, self.secrets)),
            "server": public_of(self.server),
            "facts": PublicFacts(self.data.n_tasks),
            "allowed": frozenset(CATALOGUE),
            "noise": "server",
            "epsilon": 5.0,
            "sums": dict.fromkeys(CATALOGUE, 100),
            **changes,
        }
        self.conditions = Conditions(**given)
        self.users = self.data.as_users.cut(n_clients)
        for each, secret in enumerate(self.secrets):
            ClientAccount.created(self.path(each), public_of(secret))
        self.desks = {each: self.opened(each) for each in range(n_clients)}

    def path(self, each):
        return self.folder / f"account-{each}"

    def opened(self, each, conditions=None, users=None):
        """A desk of one client, as after a start."""
        secret = self.secrets[each]
        account = ClientAccount(self.path(each), public_of(secret))
        return Desk(users or self.users[each], conditions or self.conditions, secret, account)

    def restarted(self, each, **changes):
        """The desk of a client after its process ended and began again."""
        self.desks[each]._account.close()
        self.desks[each] = self.opened(each, **changes)
        return self.desks[each]

    def clients(self, post=None):
        return ClientsByPost(post or LocalPost(self.desks), self.conditions, self.server)

    def opening(self, content, run=None, secret=None, conditions=None, until=None):
        """The letter that opens a pass, signed with the server's key or another, for these conditions or others."""
        run = run or os.urandom(16)
        until = int(time.time()) + 60 if until is None else until
        signature = signed_by(secret or self.server, (conditions or self.conditions).opening(run, content, until))
        return letters.first_letter(run, content, until, signature)

    @property
    def elsewhere(self):
        return DataElsewhere(self.items)


def asked(*contributions, noise=None, precision="float64", **further):
    """A question as bytes."""
    return packed({"asked": list(contributions), "noise": noise, "precision": precision, **further})


def one_pass(federation, content, post=None):
    """Run a pass on a question; return the sum, and whose parts are in it."""
    clients = federation.clients(post)
    conditions = federation.conditions
    understood = question.understood(content, conditions)
    terms = conditions.terms(os.urandom(16), understood.length, understood.digest)
    total = clients.add_up(terms, understood.question, None)
    return (total.numbers - total.masks).view(np.int64), total.clients, clients
