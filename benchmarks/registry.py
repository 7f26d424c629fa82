"""Claim: records for the OpenDP deployment registry are complete at its highest tier, and say what the statement says.

Records are made for a rating model (public and private item list), a mean (pure and with δ), parties, a regression, and
a training of a network, of data that are generated. Each is written as YAML, read back, and checked field by field
against our snapshot of the registry's fields. The event inside is given to dp_accounting, whose ε must agree with the
one that the statement says was spent. Then every field of every record is emptied and left out in turn, and each gap
must be found. The quick form is the full one without the network.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from apportion.data.synthetic import long_tailed_ratings
from apportion.parties import ProtectedMultiTask
from apportion.privacy.statement import Statement
from apportion.recommend import PrivateRatingRecommender
from apportion.report.card import privacy_card
from apportion.report.registry_fields import COMMIT, FIELDS, SOURCE, problems_of
from apportion.report.registry_record import Deployment, record_yaml, registry_record
from apportion.statistics import UserMean
from benchmarks.claim import Outcome, UnavailableError, print_table

DEPLOYMENT = Deployment(
    name="Example of a record",
    curators=("Whoever publishes it",),
    description="A data product of generated rows",
    intended_use="Tests",
    region="None: the rows are generated",
    sector="Technology",
    published="2026-11-16",
    data="Generated rows of users that do not exist",
    releases="one",
    later="Nothing else will be published",
    refreshed="static",
    exploration="nothing was looked at",
    security="nothing is secret here",
    reason="The values are examples",
    contact="whoever made it",
    sources=("this claim",),
    authors=("whoever ran it",),
)
AGREE = 0.01  # dp_accounting's grid and ours, relative
Record = dict[str, Any]


def measure(quick: bool) -> Outcome:
    """Make the records and check them."""
    statements = dict(_statements(quick))
    records = {name: registry_record(privacy_card(made), DEPLOYMENT) for name, made in statements.items()}
    read = {name: _read_back(record) for name, record in records.items()}
    problems = {name: problems_of(read[name]) for name in read}
    changed = [name for name in records if read[name] != records[name]]
    epsilons = {name: (made.spent_epsilon, _epsilon(made)) for name, made in statements.items()}
    missed = sum(len(_gaps_missed(record)) for record in read.values())
    print_table(
        ["record", "problems", "spent ε", "ε of the event inside"],
        [[name, len(problems[name]), *epsilons[name]] for name in records],
    )
    agree = all(abs(inside / spent - 1) <= AGREE for spent, inside in epsilons.values())
    value = {
        "records": len(records),
        "fields": len(FIELDS),
        "problems": sum(map(len, problems.values())),
        "changed": changed,
        "gaps_missed": missed,
        "events_agree": agree,
    }
    target = {"problems": 0, "changed": [], "gaps_missed": 0, "events_agree": True}
    return Outcome(
        value,
        target,
        all(value[name] == wanted for name, wanted in target.items()),
        f"{len(records)} records of the registry's highest tier, {len(FIELDS)} fields: {value['problems']} problems",
        {"schema": f"{SOURCE} at {COMMIT}", "records": list(records), "epsilons": epsilons},
    )


def _statements(quick: bool) -> Iterator[tuple[str, Statement]]:
    rng = np.random.default_rng(0)
    data, _ = long_tailed_ratings(400, 30, 4000, rank=2, rng=rng, stars="whole")
    public = PrivateRatingRecommender(epsilon=1.0, dimension=2, rounds=1, items=list(range(30)))
    yield "rating model", _stated(public.fit(data).model_.statement)
    private = PrivateRatingRecommender(epsilon=5.0, dimension=2, rounds=1, items="private")
    yield "rating model, private list", _stated(private.fit(data).model_.statement)
    values = np.clip(data.values, 1, 5)
    for name, delta in (("mean, pure", 0.0), ("mean", 1e-6)):
        fitted = UserMean(epsilon=1.0, delta=delta, value_range=(1, 5)).fit(values, users=data.users)
        yield name, fitted.statement_
    x = [rng.standard_normal((12, 3)) for _ in range(40)]
    y = [rows @ np.ones(3) + rng.standard_normal(12) for rows in x]
    yield "parties", ProtectedMultiTask(epsilon=3.0).fit(x, y).statement_
    if not quick:
        yield "training", _trained()


def _stated(statement: Statement | None) -> Statement:
    assert statement is not None
    return statement


def _trained() -> Statement:
    """Train a small network on Poisson samples of users."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as missing:
        raise UnavailableError("torch is not installed.") from missing
    training: Any = importlib.import_module("apportion.training")
    module = torch.nn.Linear(4, 2)
    trainer = training.PrivateTrainer(
        module,
        training.DPAdamBC(module.parameters(), lr=0.05),
        lambda outputs, wanted: torch.nn.functional.cross_entropy(outputs, wanted, reduction="none"),
        epsilon=4.0,
        delta=1e-5,
        steps=5,
        sampling=0.2,
        n_units=100,
    )
    rows, targets = torch.randn(300, 4), torch.randint(2, (300,))
    trainer.fit(training.UserRows(rows, targets, np.arange(300) // 3))
    found: Statement = trainer.statement_
    return found


def _read_back(record: Record) -> Record:
    yaml: Any = importlib.import_module("yaml")
    found: Record = yaml.safe_load(record_yaml(record))
    return found


def _epsilon(statement: Statement) -> float:
    """What dp_accounting says of the event in the record, at the δ of the statement."""
    accounting: Any = importlib.import_module("dp_accounting")
    from apportion.report.registry_loss import dp_event

    said = dp_event(privacy_card(statement))
    relation = accounting.NeighboringRelation  # a pure release is stored as randomised response, which replaces
    pure = statement.noise_delta == 0 or statement.spent_mu is None
    accountant = accounting.pld.PLDAccountant(relation.REPLACE_ONE if pure else relation.ADD_OR_REMOVE_ONE)
    noisy = [each for event in said["events"] for each in _noisy(event)]
    accountant.compose(accounting.ComposedDpEvent([_rebuilt(each, accounting) for each in noisy]))
    return float(accountant.get_epsilon(0.0 if pure else statement.noise_delta))


def _noisy(event: Record) -> list[Record]:
    """The parts of an event with noise; the others only add to δ."""
    parts: list[Record] = event["events"] if event["class_name"] == "ComposedDpEvent" else [event]
    return [part for part in parts if part["class_name"] != "PoissonSampledDpEvent"]


def _rebuilt(event: Record, accounting: Any) -> Any:
    given = {name: value for name, value in event.items() if name != "class_name"}
    return getattr(accounting, event["class_name"])(**given)


def _gaps_missed(record: Record) -> list[str]:
    """Fields that may be left out or emptied without being noticed."""
    missed = []
    for path, field in FIELDS.items():
        if not field.may_be_absent:
            missed += [path for gap in (_left_out, _emptied) if not problems_of(gap(record, path))]
    return missed


def _left_out(record: Record, path: str) -> Record:
    bad, place, name = _opened(record, path)
    del place[name]
    return bad


def _emptied(record: Record, path: str) -> Record:
    bad, place, name = _opened(record, path)
    place[name] = [] if isinstance(place[name], list) else ""
    return bad


def _opened(record: Record, path: str) -> tuple[Record, Record, str]:
    """A copy of the record, and where the field is in it."""
    bad = copy.deepcopy(record)
    place = bad
    *above, name = path.split(".")
    for each in above:
        place = place[each]
    return bad, place, name
