"""`apportion card`: from a model folder or a statement to JSON that follows the schema, and to a page."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema

from apportion.recommend import load

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "privacy-card.schema.json").read_text(encoding="utf-8"))


def test_the_card_of_a_model_is_printed_and_is_the_one_beside_it(run, fitted):
    card = json.loads(run("card", fitted / "ratings").stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(card)
    assert card == json.loads((fitted / "ratings" / "privacy-card.json").read_text(encoding="utf-8"))
    assert card == json.loads(run("card", fitted / "ratings" / "statement.json").stdout)
    assert card["guarantee"]["epsilon"] == 8.0
    assert not card["releasable"]
    assert card["tuning"]["kind"] == "declared"  # dimension and rounds were given by hand
    assert card["tuning"]["epsilon_with"] is None


def test_card_and_page_are_written_where_asked(run, fitted, folder):
    result = run("card", fitted / "clicks", "--out", "c/card.json", "--page", "c/card.html")
    assert json.loads((folder / "c/card.json").read_text(encoding="utf-8"))["document"] == "privacy card"
    assert "NOT FOR RELEASE" in (folder / "c/card.html").read_text(encoding="utf-8")
    opens = f"Open it in a browser: {(folder / 'c/card.html').as_uri()}\n"
    assert result.stdout == f"Card: c/card.json\nPage: c/card.html\n{opens}"


def test_a_page_alone_leaves_stdout_to_the_card(run, fitted):
    result = run("card", fitted / "clicks", "--page", "card.html")
    assert json.loads(result.stdout)["format"] == 3
    assert "Page: card.html" in result.stderr


def test_a_model_with_a_card_can_be_replaced_and_read(run, ratings, folder):
    for _ in range(2):
        run("fit", ratings, "--epsilon", 2, "--dimension", 2, "--rounds", 2, "--out", "m")
    card = json.loads((folder / "m/privacy-card.json").read_text(encoding="utf-8"))
    assert card["releasable"]
    assert load(folder / "m").statement.version == card["software"]["version"]


def test_the_card_of_a_statistic_is_made_of_what_it_printed_as_json(run, ratings, folder):
    printed = run("count", ratings, "--user", "user", "--epsilon", 2, "--json")
    (folder / "count.json").write_text(printed.stdout, encoding="utf-8")
    card = json.loads(run("card", "count.json").stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(card)
    assert card["guarantee"]["epsilon"] == printed.json["statement"]["epsilon"] == 2.0


def test_a_ledger_is_named_on_the_card(run, ratings, folder):
    run("ledger", "init", "book.sqlite", "--account", "shop", "--epsilon", 4, "--delta", "1e-6")
    run("fit", ratings, "--epsilon", 2, "--out", "m", "--ledger", "book.sqlite", "--account", "shop")
    kept = json.loads(run("card", "m").stdout)["ledger"]
    entries = run("ledger", "history", "book.sqlite", "--json").json  # the last one gives back what was set aside
    assert (kept["account"], kept["entries"], kept["head"]) == ("shop", len(entries) - 2, entries[-2]["hash"])


def test_what_has_no_statement_is_refused_and_nothing_is_written(run, folder):
    (folder / "empty").mkdir()
    refused = run("card", "empty", "--out", "card.json", code=2)
    assert "no privacy statement" in refused.stderr
    for text, words in (("[]", "does not hold"), ("{}", "has format None"), ('{"format": 3}', "does not hold")):
        (folder / "x.json").write_text(text, encoding="utf-8")
        assert words in run("card", "x.json", "--out", "card.json", code=2).stderr
    assert not (folder / "card.json").exists()


def test_a_folder_is_not_overwritten_by_a_card(run, fitted, folder):
    (folder / "taken").mkdir()
    assert "it is a folder" in run("card", fitted / "ratings", "--page", "taken", code=2).stderr


FACTS = {
    "--name": "Films",
    "--curator": "A library",
    "--description": "Item vectors",
    "--intended-use": "recommendations",
    "--region": "generated",
    "--sector": "Technology",
    "--published": "2026-11-16",
    "--about-data": "ratings of films",
    "--releases": "one",
    "--later": "nothing else",
    "--refreshed": "static",
    "--exploration": "nothing",
    "--security": "an encrypted disk",
    "--reason": "an example",
    "--contact": "the library",
    "--source": "none",
    "--author": "the library",
}


def words_of(facts):
    return [word for pair in facts.items() for word in pair]


def test_a_record_for_a_registry_is_written(run, ratings, folder):
    run("fit", ratings, "--epsilon", 2, "--dimension", 2, "--rounds", 2, "--out", "m")
    result = run("card", "m", "--format", "registry", *words_of(FACTS), "--trust", "central", "--out", "films.yaml")
    assert result.stdout == "Record: films.yaml\n"
    text = (folder / "films.yaml").read_text(encoding="utf-8")
    assert text.startswith('url_slug: "films"\nstatus: "Draft"\ntier: 3\n')
    assert "Gaussian-DP μ = " in text


def test_facts_that_are_missing_are_named_in_one_sentence_and_nothing_is_written(run, ratings, folder):
    run("fit", ratings, "--epsilon", 2, "--dimension", 2, "--rounds", 2, "--out", "m")
    given = {flag: words for flag, words in FACTS.items() if flag not in ("--curator", "--contact")}
    refused = run("card", "m", "--format", "registry", *words_of(given), "--out", "films.yaml", code=2)
    assert "A registry asks for facts that no statement holds; give also --curator, --contact." in refused.stderr
    assert not (folder / "films.yaml").exists()


def test_facts_without_a_registry_are_refused(run, fitted):
    refused = run("card", fitted / "ratings", "--name", "Films", code=2)
    assert "--name is for a record of a registry; add --format registry." in refused.stderr


def test_a_model_of_seeded_noise_is_not_registered(run, fitted):
    refused = run("card", fitted / "ratings", "--format", "registry", *words_of(FACTS), code=2)
    assert "NOT FOR RELEASE" in refused.stderr
