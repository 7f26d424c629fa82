"""What the judge does to a federation: it looks at what a server gets, and attacks clients as a server would."""

from __future__ import annotations

import itertools
import math
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np

from mutation.judge import DELTA, Broken, mu_of

LENGTH, CLIENTS = 2048, 6
POPULARITY = {"name": "popularity", "given": {}, "without": None}


def every():
    """Scenarios by name."""
    return {
        "masks": judge_masks,
        "noise in shares": judge_shares,
        "clients against a server": judge_clients,
        "desks against a server": judge_desks,
    }


# -- what a server gets --


def judge_masks():
    """Vectors that reach the server are uniform and new in every pass; it gets one secret of each client."""
    from apportion.federated.messages import Stage

    seen = [_pass_of_zeros({}) for _ in range(2)] + [_pass_of_zeros({5: Stage.MASK})]
    masked = [held for masks, _, _ in seen for held in masks.values()]
    counts = np.bincount(np.concatenate(masked).view(np.uint8), minlength=256)
    expected = counts.sum() / 256
    if ((counts - expected) ** 2 / expected).sum() > 255 + 10 * math.sqrt(2 * 255):  # chance below 1e-15
        raise Broken("masks are not uniform")
    for one, other in itertools.combinations(masked, 2):
        if (one == other).mean() > 0.01 or (one + other == 0).mean() > 0.01:
            raise Broken("two vectors have the same mask")
    for masks, revealed, total in seen:
        if sum(masks.values())[:50].any() == 0 or total.any():
            raise Broken("the sum needs no self masks, or is not the sum")
        for message in revealed:
            if len({len(share) for share in message.shares.values()}) != 1 or len(message.shares) > CLIENTS - 1:
                raise Broken("a client reveals both secrets of another")
            if len(next(iter(message.shares.values()))) >= 64:
                raise Broken("a client reveals both secrets of another")


def _pass_of_zeros(leaving):
    """Vectors and shares that reach the server in a pass over zeros, and the total."""
    from apportion.federated.messages import Masked, Revealed
    from apportion.federated.passes import aggregated
    from apportion.federated.server import MaskingServer
    from federated_cases import adding, opened, terms_of

    masks, revealed, plain = {}, [], MaskingServer.take

    def take(server, message):
        if isinstance(message, Masked):
            masks[message.sender] = message.numbers.copy()
        elif isinstance(message, Revealed):
            revealed.append(message)
        return plain(server, message)

    with mock.patch.object(MaskingServer, "take", take):
        total = aggregated(terms_of(CLIENTS, length=LENGTH), adding(np.zeros((CLIENTS, LENGTH), np.int64)), leaving)
    return masks, revealed, opened(total)


def judge_shares():
    """Noise that clients draw is that of the statement, and a user moves the sum by no more than it says."""
    from apportion.allocation import SplitEqually
    from apportion.data import Interactions
    from apportion.federated import NoisyClientsEngine, Trust
    from apportion.privacy import Budget, Session
    from apportion.privacy.contributions import TaskCounts

    users, items = np.repeat(np.arange(30), 5), np.tile(np.arange(600), 1)[:150]
    data = Interactions.from_arrays(users, items % 400, task_ids=np.arange(400))
    engine = NoisyClientsEngine(Trust(CLIENTS, colluding=1, dropping=1))
    (total,) = engine.add_up(data.as_users, [TaskCounts(SplitEqually())])
    session = Session(Budget(1.0, DELTA))
    released = session.release("counts", total, session.plan(all=1.0).one("all"))
    exact = np.bincount(items % 400, minlength=400) / math.sqrt(5)
    drawn, needed = float(np.std(released - exact)), 1.0 / mu_of(1.0, DELTA)
    if drawn < 0.8 * needed * math.sqrt(CLIENTS / (CLIENTS - 3)):  # six shares, of which three count
        raise Broken(f"noise in shares has deviation {drawn:.3g} where {needed:.3g} is charged for")


# -- a server that attacks --


def _refuses(what, attack, *given):
    from apportion.errors import InputError
    from apportion.federated import RefusedError

    try:
        attack(*given)
    except (RefusedError, InputError):
        return
    raise Broken(f"a client accepts {what}")


def judge_clients():
    """Clients refuse what would unmask them."""
    from apportion.federated.client import MaskingClient
    from apportion.federated.messages import Confirmations, Delivered, Directory, Survivors
    from federated_cases import Played, identity, numbers_of, terms_of

    secrets = [identity() for _ in range(CLIENTS)]

    def played(*, active=True):
        terms = terms_of(CLIENTS, active=active, secrets=secrets)
        return Played(terms, numbers_of(CLIENTS), secrets if active else ())

    for active in (True, False):
        for what in ("few keys", "another pass", "a key twice"):
            game = played(active=active).advertise()
            keys, run = game.directories[0].keys, game.terms.run
            one, another = sorted(keys)[:2]
            twice = {**keys, one: replace(keys[another], sender=one)}
            sent = {
                "few keys": Directory(run, {one: keys[one]}),
                "another pass": Directory(bytes(16), keys),
                "a key twice": Directory(run, twice),
            }
            _refuses(what, game.clients[0].share, sent[what])
        game = played(active=active).advertise().share()
        few = dict(list(game.deliveries[0].boxes.items())[:2])
        _refuses("few boxes", game.clients[0].mask, Delivered(game.terms.run, few))
        game = played(active=active).advertise().share()
        swapped = dict(game.deliveries[0].boxes)
        swapped[1], swapped[2] = swapped[2], swapped[1]
        game.clients[0].mask(Delivered(game.terms.run, swapped))
        if any(game.clients[0]._held[each] for each in (1, 2)):
            raise Broken("a client holds shares from boxes of others")
        game = played(active=active).advertise().share().mask()
        for listed in ((0, 1), (0, 1, 1, 2, 3, 4), (0, 1, 2, 3, 99)):
            fresh = played(active=active).advertise().share().mask()
            _refuses(f"survivors {listed}", fresh.clients[0].confirm, Survivors(fresh.terms.run, listed))
        game.clients[0].confirm(game.survivors)
        _refuses("a second list", game.clients[0].confirm, game.survivors)
    game = played().advertise()
    forged = dict(game.directories[0].keys)
    forged[1] = replace(forged[1], mask_key=MaskingClient(terms_of(CLIENTS), 1).advertise().mask_key)
    _refuses("forged keys", game.clients[0].share, Directory(game.terms.run, forged))
    game = played().advertise().share().mask()
    signed = {each: game.clients[each].confirm(game.survivors).signature for each in range(3)}
    _refuses("few signatures", game.clients[0].reveal, Confirmations(game.terms.run, signed))
    _refuses("another's identity", MaskingClient, game.terms, 0, secrets[1])


def judge_desks():
    """Desks refuse strangers, what was not agreed to, and what is not paid for; what they add up is what was asked."""
    from apportion.transport import letters
    from apportion.transport.plain import packed, unpacked
    from federated_cases import identity
    from transport_cases import Federation

    def asked(*contributions, noise=None, precision="float64", **further):
        return packed({"asked": list(contributions), "noise": noise, "precision": precision, **further})

    def given(desk, letter, what, *, charged=0):
        if desk.answered(letter) != letters.REFUSAL:
            raise Broken(f"a desk answers {what}")
        if len(desk._account.entries) != charged:
            raise Broken(f"a desk charges {what}")

    with tempfile.TemporaryDirectory() as folder:
        made = itertools.count()

        def federation(**changes):
            place = Path(folder) / str(next(made))
            place.mkdir()
            return Federation(place, **changes)

        here = federation()
        desk, content = here.desks[0], asked(POPULARITY)
        for secret in (identity(), here.secrets[1]):
            given(desk, here.opening(content, secret=secret), "a stranger")
        plain = unpacked(here.opening(content))
        changes = {"run": os.urandom(16), "question": asked(POPULARITY, POPULARITY), "signature": bytes(64)}
        for name, value in changes.items():
            given(desk, packed({**plain, "held": {**plain["held"], name: value}}), f"a changed {name}")
        for bad in (asked(), asked(*[POPULARITY] * 9), asked(POPULARITY, precision="object"), b"\x80\x04",
                    asked({**POPULARITY, "given": {"path": "x"}}), asked(POPULARITY, changes=[]),
                    asked({**POPULARITY, "name": "x"})):  # fmt: skip
            given(desk, here.opening(bad), "what is not in the list")
        limited = federation(allowed=frozenset({"user-means"}))
        given(limited.desks[0], limited.opening(content), "what was not agreed to")
        _judge_costs(federation, asked, given)
        _judge_names(federation(passes=2), content, given)
        _judge_sum(federation(), content)


def _judge_costs(federation, asked, given):
    """The budget of a client ends, whatever a server says."""
    from apportion.transport import letters

    noisy = federation(noise="clients", epsilon=1.0, delta=DELTA)
    for noise in (None, {"output": 1, "multiplier": 4.0}, {"output": 0, "multiplier": 0.0},
                  {"output": 0, "multiplier": 1e-9}, {"output": 0, "multiplier": 4.0, "counted": 500},
                  {"output": 0, "multiplier": 0.9 / mu_of(1.0, DELTA)}):  # fmt: skip
        given(noisy.desks[0], noisy.opening(asked(POPULARITY, noise=noise)), "for too little noise")
    content = asked(POPULARITY, noise={"output": 0, "multiplier": 2 / mu_of(1.0, DELTA) * (1 + 1e-9)})
    answers = []
    for _ in range(6):
        answers.append(noisy.desks[0].answered(noisy.opening(content)) != letters.REFUSAL)
        noisy.restarted(0)
    if sum(answers) > 4:
        raise Broken("a desk answers beyond its budget")


def _judge_names(here, content, given):
    """A name is answered once, and passes end."""
    from apportion.transport import letters

    run, desk = os.urandom(16), here.desks[0]
    if desk.answered(here.opening(content, run)) == letters.REFUSAL:
        raise RuntimeError("the first question is refused")
    given(desk, here.opening(content, run), "a name again", charged=1)
    given(here.restarted(0), here.opening(content, run), "a name again after a restart", charged=1)
    if here.desks[0].answered(here.opening(content)) == letters.REFUSAL:
        raise RuntimeError("the second question is refused")
    given(here.desks[0], here.opening(content), "too many passes", charged=2)


def _judge_sum(here, content):
    """What leaves is the sum of what was asked, each user bounded; vectors of clients are masked."""
    from apportion.transport import LocalPost, question
    from apportion.transport.plain import unpacked

    came = []

    class Post(LocalPost):
        def exchanged(self, by_position, *limits):
            came.append(super().exchanged(by_position, *limits))
            return came[-1]

    understood = question.understood(content, here.conditions)
    terms = here.conditions.terms(os.urandom(16), understood.length, understood.digest)
    total = here.clients(Post(here.desks)).add_up(terms, understood.question, None)
    sums = (total.numbers - total.masks).view(np.int64)
    sizes = np.diff(here.data.as_users.indptr)
    exact = np.bincount(here.data.tasks, weights=(sizes**-0.5)[here.data.users], minlength=here.data.n_tasks)
    ratio = sums / np.maximum(exact, 1e-9)
    if ratio.max() > 1.001 * ratio.min():
        raise Broken("the sum is not that of users with a norm of 1")
    for answer in came[2].values():
        held = unpacked(answer)["held"]["numbers"]
        numbers = np.frombuffer(held, "<u8") if isinstance(held, bytes) else np.asarray(held, np.uint64)
        if (np.abs(numbers.view(np.int64)) < 2**50).mean() > 0.5:
            raise Broken("a vector is not masked")
