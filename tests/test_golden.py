"""Stored documents of every format so far: this version reads its own, and refuses others in one sentence."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from apportion.auditing.statements import check_statement
from apportion.errors import InputError
from apportion.privacy import Ledger, LedgerError, Purpose, Statement
from apportion.privacy import statement as statements
from apportion.privacy.ledger import GaussianRelease, PureRelease, SampledRun, SelectionRun, chain
from apportion.privacy.mechanisms import mechanism_class
from apportion.recommend import load, storage
from apportion.report import card as cards
from apportion.report.card import card_page, read_card

GOLDEN = Path(__file__).parent / "golden"
SCHEMA = json.loads((GOLDEN.parents[1] / "docs" / "privacy-card.schema.json").read_text(encoding="utf-8"))


def kept(what, ending=""):
    """Golden files by the number of their format."""
    return {int(path.stem.rpartition("-")[2]): path for path in GOLDEN.glob(f"{what}-*{ending}")}


STATEMENTS, CARDS, MODELS = kept("statement", ".json"), kept("card", ".json"), kept("model")
LEDGERS = kept("ledger")


def text_of(path):
    return path.read_text(encoding="utf-8")


def test_every_format_that_is_written_has_a_golden_file():
    assert statements.FORMAT in STATEMENTS
    assert cards.FORMAT in CARDS
    assert storage.FORMAT in MODELS
    assert chain.FORMAT in LEDGERS


@pytest.mark.parametrize("number", STATEMENTS)
def test_a_statement_is_read_or_refused_in_one_sentence(number, tmp_path):
    if number != statements.FORMAT:
        with pytest.raises(InputError, match=f"has format {number}, but this version of apportion reads format") as no:
            Statement.from_json(text_of(STATEMENTS[number]))
        assert str(no.value).count(".") == 1
        shutil.copy(STATEMENTS[number], tmp_path / "statement.json")
        with pytest.raises(InputError, match=f"has format {number}"):
            read_card(tmp_path)
        return
    found = Statement.from_json(text_of(STATEMENTS[number]))
    assert found.to_json() == text_of(STATEMENTS[number])
    assert (found.epsilon, found.neighbours.key, found.declared_users) == (1.0, "add-remove", 77)
    assert {release.purpose.key for release in found.releases} == _stored_purposes(number)
    assert {mechanism_class(release.mechanism).key for release in found.releases} >= {"gaussian", "laplace", "wishart"}
    assert len(check_statement(found)) == 4


def _stored_purposes(number):
    return {release["purpose"] for release in json.loads(text_of(STATEMENTS[number]))["releases"]}


def test_no_purpose_that_was_ever_stored_is_forgotten():
    assert _stored_purposes(statements.FORMAT) <= {purpose.key for purpose in Purpose}


@pytest.mark.parametrize("number", CARDS)
def test_a_card_is_shown_or_refused_in_one_sentence(number, tmp_path):
    card = json.loads(text_of(CARDS[number]))
    shutil.copy(STATEMENTS[statements.FORMAT], tmp_path / "statement.json")
    shutil.copy(CARDS[number], tmp_path / storage.CARD)
    if number != cards.FORMAT:
        assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(card)
        with pytest.raises(InputError, match=f"has format {number}, but this version of apportion reads format"):
            read_card(tmp_path)
        return
    jsonschema.Draft202012Validator(SCHEMA).validate(card)
    assert "spring of 2003" in card_page(card)
    assert read_card(tmp_path) == card


@pytest.mark.parametrize("number", MODELS)
def test_a_model_is_read_or_refused_in_one_sentence(number):
    if number != storage.FORMAT:
        with pytest.raises(InputError, match=f"has format {number}, but this version of apportion reads format"):
            load(MODELS[number])
        return
    model = load(MODELS[number])
    assert list(model.task_ids) == ["apples", "pears", "quinces"]
    np.testing.assert_array_equal(model.vectors, [[1.0, 0.0], [0.5, -0.5], [0.0, 2.0]])
    assert model.statement.to_json() == text_of(MODELS[number] / "statement.json")


def restored(golden, folder):
    """A golden ledger as a database, with its key as its owner would keep it and its heads."""
    for name in ("ledger.key", "heads.json"):
        shutil.copy(golden / name, folder / name)
    (folder / "ledger.key").chmod(0o600)
    with closing(sqlite3.connect(folder / "ledger.db")) as connection:
        connection.executescript(text_of(golden / "ledger.sql"))
    return {"url": folder / "ledger.db", "key": folder / "ledger.key", "head": folder / "heads.json"}


@pytest.mark.parametrize("number", LEDGERS)
def test_a_ledger_is_read_and_charged_or_refused_in_one_sentence(number, tmp_path):
    place = restored(LEDGERS[number], tmp_path)
    if number != chain.FORMAT:
        with pytest.raises(LedgerError, match=f"has format {number}, but this version of apportion reads format"):
            Ledger.open(**place)
        return
    with Ledger.open(**place, create=False) as ledger:
        charged = {name: [entry.event for entry in ledger.account(name).history()] for name in ledger.accounts()}
        assert charged == {
            "labels": [PureRelease(0.5)],
            "samples": [SampledRun((0.05,), 2.0, 0.01, 100), SelectionRun(0.1, 10.0, "geometric")],
            "visits": [GaussianRelease(0.1), PureRelease(0.25)],
        }
        for name in charged:
            ledger.account(name).verify()
        stands = ledger.account("visits").status()
        assert (stands.window, stands.owner, stands.entries) == ("spring of 2003", "data office", 2)
        assert ledger.account("labels").status().left_epsilon == 0.5
        ledger.account("visits").charge("one more", GaussianRelease(0.1))
        assert ledger.account("visits").status().entries == 3


def test_a_ledger_of_a_future_format_is_refused_with_the_advice_to_upgrade(tmp_path):
    place = restored(LEDGERS[chain.FORMAT], tmp_path)
    with closing(sqlite3.connect(place["url"])) as connection:
        connection.execute(f"PRAGMA user_version = {chain.WITH_RESERVATIONS + 1}")
    with pytest.raises(
        LedgerError, match=rf"has format {chain.WITH_RESERVATIONS + 1}, .*: install a newer apportion to read it\.$"
    ):
        Ledger.open(**place)


def test_a_format_of_the_future_is_refused_with_the_advice_to_upgrade(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(MODELS[storage.FORMAT], folder)
    about = json.loads(text_of(folder / "model.json"))
    (folder / "model.json").write_text(json.dumps({**about, "format": storage.FORMAT + 1}), encoding="utf-8")
    with pytest.raises(InputError, match=rf"has format {storage.FORMAT + 1}.*install a newer apportion"):
        load(folder)
    (folder / "model.json").write_text(json.dumps(about), encoding="utf-8")
    stated = json.loads(text_of(folder / "statement.json"))
    (folder / "statement.json").write_text(json.dumps({**stated, "format": statements.FORMAT + 1}), encoding="utf-8")
    with pytest.raises(InputError, match=r"The privacy statement has format .*install a newer apportion"):
        load(folder)
    card = json.loads(text_of(CARDS[cards.FORMAT]))
    shutil.copy(STATEMENTS[statements.FORMAT], folder / "statement.json")
    (folder / storage.CARD).write_text(json.dumps({**card, "format": cards.FORMAT + 1}), encoding="utf-8")
    with pytest.raises(InputError, match=r"The privacy card at .* has format .*install a newer apportion"):
        read_card(folder)
