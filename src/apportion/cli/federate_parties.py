"""`apportion federate` for parties: linear models, one for each client, learned together.

The server writes what was released: how a party learns, and the answers of all rounds. Each party then learns its own
model from that, at home.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from apportion.cli.item_files import read_item_list
from apportion.cli.outputs import write_text
from apportion.data.task_files import read_party_file
from apportion.data.users import Users
from apportion.engines import Engine
from apportion.errors import InputError
from apportion.federated.elsewhere import UsersElsewhere
from apportion.parties import Answer, Common, Party, PartySide, ProtectedMultiTask, learn_elsewhere, parties_of
from apportion.privacy.neighbours import ADD_REMOVE_TASK
from apportion.privacy.task_sums import MomentWeights
from apportion.transport import Conditions
from apportion.transport.configuration import Federation

RELEASED: Final = "released.json"


def features_of(federation: Federation) -> list[str]:
    """Return the names of the features, which are public."""
    return [str(each) for each in read_item_list(federation.items)]


def rows_of_party(federation: Federation, rows: Path) -> Users:
    """Return the rows of the party that a client is."""
    found, labels = read_party_file(rows, label=federation.label, features=features_of(federation))
    return parties_of([found], [labels])


def fit_parties(federation: Federation, conditions: Conditions, engine: Engine, out: Path) -> str:
    """Run all rounds, and write what was released; return the statement."""
    features = features_of(federation)
    wanted = ProtectedMultiTask(
        federation.epsilon,
        federation.delta,
        n_tasks=len(conditions.roster),
        neighbours=ADD_REMOVE_TASK,
        fit_intercept=True,
        rounds=federation.rounds,
        noise=federation.source,
        window=federation.window,
    )
    found = learn_elsewhere(wanted, engine, UsersElsewhere(len(features)))
    statement = found.statement.to_text()
    held = {"features": features, "side": asdict(found.side), "answers": list(map(_plain, found.answers))}
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / RELEASED, json.dumps({**held, "statement": statement}, indent=2) + "\n")
    return statement


def learned_at_home(federation: Federation, rows: Path, released: Path) -> Party:
    """Return the model of one party, from its rows and from what was released."""
    try:
        held = json.loads(released.read_text(encoding="utf-8"))
        weights = held["side"]["weights"]
        side = PartySide(**{**held["side"], "weights": None if weights is None else MomentWeights(**weights)})
        answers = [_answer(each) for each in held["answers"]]
        features = held["features"]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"Expected what a federation of parties released, got another file: {released.name}.", argument="released"
        ) from None
    if features != features_of(federation):
        raise InputError(
            f"Expected what was released on the features of {federation.items.name}, in their order, got other ones.",
            argument="released",
        )
    found, labels = read_party_file(rows, label=federation.label, features=features)
    return side.learned(answers, found, labels, rows.stem)


def in_json(party: Party, features: list[str]) -> str:
    """Return a party's model as JSON."""
    model = {"intercept": party.intercept, **dict(zip(features, party.model.tolist(), strict=True))}
    return json.dumps({"model": model, "weight of learning alone": party.own_weight}, indent=2) + "\n"


def _plain(answer: Answer) -> dict[str, Any]:
    common = None if answer.common is None else {**vars(answer.common), "direction": answer.common.direction.tolist()}
    return {"shared": answer.shared.tolist(), "common": common}


def _answer(held: dict[str, Any]) -> Answer:
    common = held["common"]
    known = None if common is None else Common(**{**common, "direction": np.array(common["direction"])})
    return Answer(np.array(held["shared"]), known)
