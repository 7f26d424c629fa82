"""The snapshot of the registry's fields finds gaps, wrong values and fields that do not exist."""

from __future__ import annotations

import copy

import pytest

from apportion.report.registry_fields import FIELDS, problems_of
from benchmarks.registry import DEPLOYMENT
from report.test_registry_record import record_of


def changed(path, value):
    record = copy.deepcopy(record_of(deployment=DEPLOYMENT))
    place = record
    *above, name = path.split(".")
    for each in above:
        place = place[each]
    place[name] = value
    return problems_of(record)


@pytest.mark.parametrize("path", [path for path, field in FIELDS.items() if not field.may_be_absent])
def test_a_field_that_is_empty_is_found(path):
    found = changed(path, [] if FIELDS[path].holds == "texts" else "")
    assert found
    assert found[0].startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("tier", 4, "is not one of 1, 2, 3"),
        ("deployment.basic.publication_date", "2026-02-30", "is not a date"),
        ("deployment.basic.publication_date", "16.11.2026", "is not a date"),
        ("deployment.privacy_loss.privacy_parameters.epsilon", "1", "is not a number"),
        ("deployment.privacy_loss.privacy_parameters.epsilon", float("inf"), "is not a number"),
        ("deployment.administrative.registry_authors", "one", "is not a list of texts"),
        ("deployment.basic.colour", "green", "there is no such field"),
    ],
)
def test_a_wrong_value_is_found(path, value, words):
    assert words in " ".join(changed(path, value))


def test_lower_tiers_ask_for_less():
    record = record_of(deployment=DEPLOYMENT) | {"tier": 1}
    basic = {name: record["deployment"][name] for name in ("basic", "administrative")}
    assert problems_of(record | {"deployment": basic}) == []
    assert problems_of(record | {"deployment": basic, "tier": 2}) != []
