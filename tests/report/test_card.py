"""The privacy card follows its schema, says what the statement says, and never calls unpaid tuning paid for."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest

from apportion.errors import InputError
from apportion.privacy import ADD_REMOVE, Budget, Purpose, Session
from apportion.privacy.statement import DEFAULTS, LedgerReference, Statement, Tuning
from apportion.report.card import card_json, card_page, privacy_card, read_card

from made_releases import a_release

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "privacy-card.schema.json").read_text(encoding="utf-8"))
CHECK = jsonschema.Draft202012Validator(SCHEMA)

SELECTION = {
    "epsilon": 0.999,
    "delta": 1e-6,
    "order": 37.5,
    "tries": {"law": "geometric", "mean": 10.0, "gamma": 0.1, "eta": 1},
    "one_try": {"epsilon": 0.4877, "mu": 0.1212},
    "grid": {"dimension": [4, 8], "clip": [0.5, 0.7]},
    "chosen": {"dimension": 8, "clip": 0.5},
    "score": {"name": "mean squared error", "value": 0.9, "noise_stddev": 0.01},
}


def make_statement(**changes):
    release = a_release(Purpose.ITEM_SUMS, "gaussian", (40, 3), 0.5, 0.15, 1.25, "weights <= 1 & so on", 8.25)
    chosen = a_release("quantile", "exponential", (), 0.2, 0.1, 1.0, "ranks", 3.0, epsilon=0.2)
    fields = {
        "epsilon": 1.0,
        "delta": 1e-6,
        "spent_epsilon": 0.9731,
        "spent_mu": 0.2,
        "releases": (release, chosen),
        "public": ("the list of 40 tasks", "the scale <1 to 5>"),
        "tuning": DEFAULTS,
        "noise": "operating system entropy",
        "releasable": True,
        "neighbours": ADD_REMOVE,
        "window": "spring of 2003",
        "version": "0.1.0",
    }
    return Statement(**fields | changes)


LEDGER = LedgerReference("shop", "run-1", 3, 17, "ab" * 32)


@pytest.mark.parametrize(
    ("changes", "selection"),
    [
        ({}, None),
        ({"tuning_kind": Tuning.DECLARED}, None),
        ({"ledger": LEDGER, "releasable": False}, None),
        ({"delta": 0.0, "spent_mu": None}, None),
        ({"spent_mu": None}, SELECTION),
        ({"releases": (), "public": (), "spent_epsilon": 0.0, "spent_mu": 0.0}, None),
    ],
)
def test_every_card_follows_the_schema(changes, selection):
    CHECK.validate(json.loads(card_json(privacy_card(make_statement(**changes), selection))))


def test_the_schema_is_one_and_refuses_cards_that_are_not():
    CHECK.check_schema(SCHEMA)
    good = privacy_card(make_statement(spent_mu=None), SELECTION)
    for path, value in (
        (("format",), 4),
        (("guarantee", "neighbours"), "add or remove one user"),
        (("releases", 0, "mechanism"), "gaussian"),
        (("guarantee", "epsilon"), 0),
        (("guarantee", "delta"), 1.0),
        (("releases", 0, "noise_stddev"), 0.0),
        (("tuning", "selection"), None),
        (("tuning", "kind"), "declared"),
        (("statement_sha256",), "abc"),
        (("surplus",), 1),
        (("ledger",), {"account": "shop"}),
    ):
        bad = copy.deepcopy(good)
        place = bad
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value
        assert not CHECK.is_valid(bad), path


@pytest.mark.parametrize("name", sorted(privacy_card(make_statement())))
def test_no_part_of_a_card_may_be_missing(name):
    card = privacy_card(make_statement())
    del card[name]
    assert not CHECK.is_valid(card)


def test_the_card_says_what_the_statement_says():
    statement = make_statement(ledger=LEDGER)
    card = privacy_card(statement)
    assert card["guarantee"] == {
        "epsilon": 1.0,
        "delta": 1e-6,
        "keys_delta": 0.0,
        "not_protected": [],
        "unit": statement.unit,
        "neighbours": {"key": "add-remove", "relation": "add or remove one user"},
        "window": "spring of 2003",
    }
    assert card["spent"] == {"epsilon": 0.9731, "mu": 0.2}
    assert card["assumptions"]["public"] == list(statement.public)
    assert card["noise"] == statement.noise
    assert card["ledger"]["head"] == LEDGER.head
    assert card["software"]["version"] == "0.1.0"
    first, second = card["releases"]
    assert (first["sensitivity"], first["noise_stddev"], first["share"], first["shape"]) == (1.25, 8.25, 0.5, [40, 3])
    assert (first["epsilon"], second["epsilon"]) == (None, 0.2)
    assert (first["purpose"], first["stage"], second["purpose"]) == ("item-sums", {}, "other")
    assert first["mechanism"] == {"key": "gaussian", "words": "Gaussian"}


def test_epsilon_with_tuning_is_known_for_defaults_and_for_paid_tuning_and_for_nothing_else():
    defaults = privacy_card(make_statement())["tuning"]
    assert (defaults["kind"], defaults["epsilon_without"], defaults["epsilon_with"]) == ("library defaults", 1.0, 1.0)
    declared = privacy_card(make_statement(tuning_kind=Tuning.DECLARED))["tuning"]  # whatever the words are
    assert (declared["kind"], declared["epsilon_without"], declared["epsilon_with"]) == ("declared", 1.0, None)
    paid = privacy_card(make_statement(spent_mu=None), SELECTION)["tuning"]
    assert (paid["kind"], paid["epsilon_without"], paid["epsilon_with"]) == ("private selection", 0.4877, 1.0)


def test_settings_of_a_session_count_as_declared_once_anybody_declares_any():
    session = Session(Budget(1.0, 1e-6))
    assert privacy_card(session.statement())["tuning"]["kind"] == "library defaults"
    session.declare_tuning(DEFAULTS, Tuning.DEFAULTS)
    assert privacy_card(session.statement())["tuning"]["kind"] == "library defaults"
    session.declare_tuning("library defaults, or so somebody says")
    assert privacy_card(session.statement())["tuning"]["kind"] == "declared"


def test_a_selection_that_costs_more_than_the_statement_promises_gets_no_card():
    with pytest.raises(InputError, match=r"covers a selection of epsilon 0\.999"):
        privacy_card(make_statement(epsilon=0.9), SELECTION)
    with pytest.raises(InputError, match="at delta 1e-06"):
        privacy_card(make_statement(delta=1e-7), SELECTION)


class Words(HTMLParser):
    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.words = []
        self.feed(page)

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def test_the_page_holds_the_whole_card_and_refers_to_nothing_outside():
    card = privacy_card(make_statement(ledger=LEDGER, spent_mu=None), SELECTION)
    page = card_page(card)
    text = Words(page).text
    assert " ".join(card_json(card).split()) in text
    for words in ("this page may be shared", "spring of 2003", "<1 to 5>", "0.4877", "dimension = 8", LEDGER.head):
        assert words in text
    assert "<1 to 5>" not in page
    assert not re.search(r"https?:|url\(|@import|<script|<link|<iframe|<img", page)


def test_the_page_of_a_rehearsal_promises_nothing():
    page = card_page(privacy_card(make_statement(releasable=False)))
    assert "NOT FOR RELEASE" in page
    assert "may be shared" not in page


def test_the_page_says_that_unpaid_tuning_is_not_known():
    assert "not known" in card_page(privacy_card(make_statement(tuning_kind=Tuning.DECLARED)))
    assert "not known" not in card_page(privacy_card(make_statement()))


def test_the_best_guess_is_that_of_epsilon_and_delta_alone_where_releases_are_not_all_gaussian():
    """ε = 1 alone: e/(1 + e) = 73.1 %, plus δ; by the Gaussian curve through (1, 1e-6): Φ(0.2367/2) = 54.7 %."""
    assert "73.2 %" in Words(card_page(privacy_card(make_statement(spent_mu=None)))).text
    assert "54.8 %" in Words(card_page(privacy_card(make_statement()))).text


def test_a_stored_selection_is_kept_for_its_own_statement_alone(tmp_path):
    statement = make_statement(spent_mu=None)
    (tmp_path / "statement.json").write_text(statement.to_json(), encoding="utf-8")
    assert read_card(tmp_path) == privacy_card(statement)
    stored = privacy_card(statement, SELECTION)
    (tmp_path / "privacy-card.json").write_text(card_json(stored), encoding="utf-8")
    assert read_card(tmp_path) == stored
    assert read_card(tmp_path / "statement.json") == stored
    other = replace(statement, window="autumn")
    (tmp_path / "statement.json").write_text(other.to_json(), encoding="utf-8")
    with pytest.raises(InputError, match="does not belong to the statement"):
        read_card(tmp_path)


@pytest.mark.parametrize("text", ["", "[1]", '{"format": 3}', '{"format": 3, "releases": [], "public": []}'])
def test_what_is_no_statement_gets_no_card(tmp_path, text):
    """A parser's own words are not shown."""
    (tmp_path / "statement.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="does not hold a privacy statement") as caught:
        read_card(tmp_path)
    assert not re.search(r"char |codec|expected at most", str(caught.value))


def test_a_file_of_bytes_gets_no_card(tmp_path):
    (tmp_path / "statement.json").write_bytes(bytes(range(128, 200)))
    with pytest.raises(InputError, match="does not hold a privacy statement: it is not JSON"):
        read_card(tmp_path)


def test_a_damaged_card_beside_a_statement_is_said_to_be_one(tmp_path):
    (tmp_path / "statement.json").write_text(make_statement().to_json(), encoding="utf-8")
    (tmp_path / "privacy-card.json").write_text('{"format": 3, "tuning": 1}', encoding="utf-8")
    with pytest.raises(InputError, match="is damaged"):
        read_card(tmp_path)
