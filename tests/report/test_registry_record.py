"""A record for the registry is complete at its highest tier, says what the card says, and is refused with gaps."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from apportion.errors import InputError
from apportion.privacy.statement import LedgerReference, Tuning
from apportion.report.card import privacy_card
from apportion.report.registry_fields import problems_of
from apportion.report.registry_record import Deployment, record_yaml, registry_record
from benchmarks.registry import DEPLOYMENT
from report.test_card import SELECTION, make_statement

yaml = pytest.importorskip("yaml")


def record_of(selection=None, deployment=DEPLOYMENT, **changes):
    return registry_record(privacy_card(make_statement(**changes), selection), deployment)


@pytest.mark.parametrize(
    ("changes", "selection"),
    [
        ({}, None),
        ({"public": (), "unprotected": ()}, None),
        ({"tuning_kind": Tuning.DECLARED}, None),
        ({"ledger": LedgerReference("shop", "run-1", 3, 17, "ab" * 32)}, None),
        ({"spent_mu": None}, None),
        ({"spent_mu": None}, SELECTION),
    ],
)
def test_every_record_is_complete_and_comes_back_from_yaml_as_it_was(changes, selection):
    record = record_of(selection, **changes)
    assert record["tier"] == 3
    assert problems_of(record) == []
    assert yaml.safe_load(record_yaml(record)) == record


@pytest.mark.parametrize("name", [field.name for field in fields(Deployment)])
def test_what_only_the_deployer_knows_is_asked_for(name):
    gap = replace(DEPLOYMENT, **{name: type(getattr(DEPLOYMENT, name))()})
    with pytest.raises(InputError, match=f"missing: {name}\\.") as refused:
        record_of(deployment=gap)
    assert str(refused.value).count(".") == 1


def test_a_rehearsal_is_not_registered():
    with pytest.raises(InputError, match="NOT FOR RELEASE"):
        record_of(releasable=False)


def test_a_sector_that_the_registry_does_not_know_is_refused_with_the_list():
    with pytest.raises(InputError, match="data_product_sector: 'Films' is not one of Technology"):
        record_of(deployment=replace(DEPLOYMENT, sector="Films"))


def test_what_is_not_protected_and_what_is_public_is_all_named():
    record = record_of(unprotected=("who holds an item that nobody else holds",), public=("the list of 40 tasks",))
    said = record["deployment"]["dp_variant"]["unprotected_quantities"]
    assert said.splitlines() == [
        "- not protected: who holds an item that nobody else holds",
        "- taken to be public: the list of 40 tasks",
    ]


def test_the_ledger_is_named_where_one_was_charged_and_its_absence_where_none_was():
    def details(**changes):
        return record_of(**changes)["deployment"]["deployment_model"]["release_type_details"]

    assert "account 'shop'" in details(ledger=LedgerReference("shop", "run-1", 3, 17, "ab" * 32))
    assert "No ledger was charged" in details()


def test_texts_with_signs_of_yaml_survive():
    strange = replace(DEPLOYMENT, name='a: "b" # c', description="- one\n\n  - two", contact="@x %y")
    record = record_of(deployment=strange)
    assert yaml.safe_load(record_yaml(record)) == record
