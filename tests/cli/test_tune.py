"""`apportion tune`: a search that is paid for, and a model folder like that of `fit`."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from apportion.recommend import load

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "privacy-card.schema.json").read_text(encoding="utf-8"))
FAST = ("--try", "dimension=1,2", "--try", "rounds=1,2", "--tries", 2)


def test_a_search_writes_a_model_with_its_card_and_page(run, ratings, folder):
    result = run("tune", ratings, "--epsilon", 4, "--out", "m", *FAST)
    model = load(folder / "m")
    assert (model.statement.epsilon, model.statement.releasable) == (4.0, True)
    assert {file.name for file in (folder / "m").iterdir()} == {
        "model.json",
        "model.safetensors",
        "privacy-card.json",
        "report.html",
        "statement.json",
    }
    card = json.loads((folder / "m/privacy-card.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(SCHEMA).validate(card)
    assert card["tuning"]["kind"] == "private selection"
    assert card["tuning"]["epsilon_without"] < card["tuning"]["epsilon_with"] == 4.0
    assert card["tuning"]["selection"]["grid"] == {"dimension": [1, 2], "rounds": [1, 2]}
    assert card == json.loads(run("card", "m").stdout)
    assert "Privacy card" in (folder / "m/report.html").read_text(encoding="utf-8")
    assert "for all tries and the choice" in result.stdout
    assert "\nNot protected: who holds an item that nobody else holds.\n" in result.stdout.partition("Unit:")[0]
    assert f"dimension = {model.settings['dimension']}" in result.stdout


def test_what_is_published_does_not_say_how_many_tries_there_were(run, ratings, folder):
    result = run("tune", ratings, "--epsilon", 4, "--seed", 3, "--json", *FAST)
    assert set(result.json) == {"model", "report", "kind", "releasable", "selection", "statement"}
    assert set(result.json["selection"]["tries"]) == {"law", "mean", "gamma", "eta"}
    assert "fit 1 of" in result.stderr  # for whoever may see the data
    assert not result.json["releasable"]
    assert "NOT FOR RELEASE" in (folder / "ratings-model/report.html").read_text(encoding="utf-8")


def test_clicks_and_settings_of_their_own_can_be_tuned_and_a_model_is_replaced(run, clicks, folder):
    for _ in range(2):
        arguments = ("--try", "dimension=2", "--try", "ridge=0.2,0.4", "--tries", 1.5, "--law", "logarithmic")
        answer = run("tune", clicks, "--epsilon", 8, "--n-users", 300, "--out", "m", "--json", *arguments).json
    assert answer["kind"] == load(folder / "m").kind == "clicks"
    assert answer["selection"]["chosen"]["dimension"] == 2
    assert "declared as 240" in " ".join(answer["statement"]["public"])  # four fifths are for training


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--try", "colour=1,2"), "expected one of the settings dimension"),
        (("--try", "dimension"), "expected NAME=A,B"),
        (("--try", "dimension=2,x"), "with numbers"),
        (("--try", "dimension=2,2"), "each value once"),
        (("--try", "dimension=2.5"), "whole number"),
        (("--try", "dimension=2,-1"), "Expected dimension of at least 1, got -1."),
        (("--try", "rounds=1,201"), "Expected rounds of at most 200, got 201."),
        (("--try", "clip=1,0"), "Expected a finite clip above 0, got 0."),
        (("--try", "bias_variance=0.1,-1"), "Expected a finite bias_variance above 0, got -1."),
        (("--try", "prior_variance=0.1,nan"), "Expected a finite prior_variance above 0, got nan."),
        (("--try", "votes_share=-0.1"), "Expected a finite votes_share of at least 0, got -0.1."),
        (("--clicks", "--try", "ridge=1,0"), "Expected a finite ridge above 0, got 0."),
        (("--try", "dimension=2", "--try", "dimension=4"), "each setting once"),
        (("--try", "dimension=2", "--tries", "0.5"), "mean number of tries"),
        (("--try", "dimension=2", "--validation", "0.9"), "validation part"),
        (("--try", "dimension=2", "--epsilon", "1e-7"), "pays for"),
        ((), "Missing option '--try'"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_written(run, ratings, folder, arguments, words):
    refused = run("tune", ratings, "--epsilon", 4, *arguments, code=2)
    assert words in " ".join(refused.stderr.split())
    assert [path.name for path in folder.iterdir()] == ["ratings.csv"]


def test_a_search_that_is_refused_costs_an_account_nothing(run, ratings, folder):
    account = ("--ledger", folder / "l.db", "--account", "a")
    run("ledger", "init", folder / "l.db", "--account", "a", "--epsilon", 9, "--delta", "1e-5", "--kind", "renyi")
    run("tune", ratings, "--epsilon", 4, *account, "--try", "clip=1,0", code=2)
    assert json.loads(run("ledger", "status", folder / "l.db", "--json").stdout)[0]["entries"] == 0
