"""Parties with rows of their own, reached by letters over HTTPS, learn what they would learn in one place."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.errors import InputError
from apportion.federated import FederatedEngine, NoisyClientsEngine
from apportion.federated.elsewhere import UsersElsewhere
from apportion.parties import ProtectedMultiTask, learn_elsewhere, parties_of
from apportion.privacy import SeededNoise
from apportion.privacy.neighbours import ADD_REMOVE_TASK, REPLACE_TASK
from apportion.transport import ClientAccount, ClientsByPost, Conditions, Desk, LocalPost, PublicFacts
from carrier_cases import Office, clients_at_work
from federated_cases import identity, public_of

from party_cases import low_rank_tasks

N, FEATURES = 5, 6


class PartyFederation:
    """Parties with rows, keys and accounts under one folder."""

    def __init__(self, folder, noise="server"):
        self.x, self.y = low_rank_tasks(3, N)
        self.server, self.secrets = identity(), [identity() for _ in range(N)]
        self.conditions = Conditions(
            roster=tuple(map(public_of, self.secrets)),
            server=public_of(self.server),
            facts=PublicFacts(FEATURES),
            allowed=frozenset(["party-models"]),
            noise=noise,
            epsilon=20.0,
            delta=1e-5,
            sums={"party-models": 100},
        )
        self.desks = {}
        for each, secret in enumerate(self.secrets):
            path = folder / f"account-{each}"
            ClientAccount.created(path, public_of(secret))
            self.desks[each] = Desk(self.party(each), self.conditions, secret, ClientAccount(path, public_of(secret)))

    def party(self, each):
        return parties_of([self.x[each]], [self.y[each]])

    def learned(self, post, estimator, made=FederatedEngine):
        engine = made(self.conditions.trust, ClientsByPost(post, self.conditions, self.server), np.float64)
        return learn_elsewhere(estimator, engine, UsersElsewhere(FEATURES))


def wanted(**given):
    settings = {"n_tasks": N, "neighbours": ADD_REMOVE_TASK, "noise": SeededNoise(1, exact=True), "rounds": 2}
    return ProtectedMultiTask(20.0, 1e-5, **{**settings, **given})


def test_over_https_parties_get_the_releases_and_models_of_a_fit_in_one_place(tmp_path):
    federation = PartyFederation(tmp_path)
    office = Office(federation, tmp_path)
    with office.post, clients_at_work(office, federation.desks):
        office.post.gathered()
        found = federation.learned(office.post, wanted())
    together = wanted().fit(federation.x, federation.y)
    for one, other in zip(found.released, together.released_, strict=True):
        assert np.array_equal(one.matrix, other.matrix)
    own = found.learned(federation.x[2], federation.y[2])
    assert np.array_equal(own.model, together.party(2).model)


def test_by_letters_parties_send_whole_posteriors_as_in_one_place(tmp_path):
    federation, settings = PartyFederation(tmp_path), {"contribution": "posterior", "clip_norm": 0.5}
    found = federation.learned(LocalPost(federation.desks), wanted(**settings))
    together = wanted(**settings).fit(federation.x, federation.y)
    for one, other in zip(found.released, together.released_, strict=True):
        assert np.array_equal(one.matrix, other.matrix)


def test_by_letters_parties_draw_the_noise_themselves(tmp_path):
    federation = PartyFederation(tmp_path, "clients")
    found = federation.learned(LocalPost(federation.desks), wanted(noise=None), NoisyClientsEngine)
    assert "clients draw the noise" in found.statement.to_text()
    assert np.isfinite(found.released[-1].matrix).all()
    spent = sum(entry.cost for entry in federation.desks[0]._account.entries)
    assert spent == pytest.approx(federation.conditions.budget.mu**2)


def test_a_relation_that_parties_do_not_use_is_refused_before_they_are_asked(tmp_path):
    federation = PartyFederation(tmp_path)
    with pytest.raises(InputError, match="settings that clients use"):
        federation.learned(LocalPost(federation.desks), wanted(neighbours=REPLACE_TASK))
    assert not federation.desks[0]._account.entries


def test_rows_that_are_not_of_one_party_are_refused_before_the_first_letter(tmp_path):
    federation = PartyFederation(tmp_path)
    secret = federation.secrets[0]
    account = ClientAccount.created(tmp_path / "again", public_of(secret))
    for users in (
        parties_of(federation.x[:2], federation.y[:2]),
        parties_of([federation.x[0][:, :3]], [federation.y[0]]),
    ):
        with pytest.raises(InputError, match=r"one party|public list"):
            Desk(users, federation.conditions, secret, account)
