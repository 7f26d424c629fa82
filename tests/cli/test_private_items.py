"""Without a list of items `fit` keeps it private, and says what that cost; a list from the data is said to leak."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from apportion.cli.main import program
from apportion.recommend import load

QUICK = ("--dimension", "2", "--rounds", "1", "--seed", "1")


def answered(*arguments, code=0):
    result = CliRunner().invoke(program, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.stderr
    return result


@pytest.fixture
def owned(write, rows):
    """The ratings, and one user with an item of its own."""
    return write("owned.csv", "user,item,rating", [*rows, (3, 777, 5)])


def test_the_default_is_a_private_list_and_the_terminal_says_what_it_cost(owned, ratings):
    said = answered("fit", owned, "--epsilon", 20, "--out", "m", *QUICK)
    model = load("m")
    assert 777 not in list(model.task_ids)
    assert model.n_tasks >= 10
    assert f"The list of items is private: {model.n_tasks} items are listed" in said.stderr
    assert "give it with --items FILE" in said.stderr
    assert "of delta" in said.stderr
    assert "Not protected" not in said.stdout


def test_a_list_from_the_data_is_said_to_protect_nobody_who_holds_an_item_alone(owned):
    said = answered("fit", owned, "--epsilon", 20, "--items", "from-data", "--out", "m", *QUICK)
    assert 777 in list(load("m").task_ids)
    assert "Not protected: who holds an item that nobody else holds." in said.stdout
    assert "No item list was given" not in said.stderr, "it was asked for"
    page = answered("audit", "m", "--data", owned, "--users", 1, "--canaries", 0)
    assert "the statement says that this is not protected" in page.stdout


def test_the_audit_of_a_private_list_takes_out_users_with_items_of_their_own(owned):
    answered("fit", owned, "--epsilon", 20, "--out", "m", *QUICK)
    found = answered("audit", "m", "--data", owned, "--users", 1, "--canaries", 200)
    assert "items of one user alone" in found.stdout
    assert "nothing that is written changed" in found.stdout
    assert "canary items" in found.stdout


def test_an_evaluation_of_a_private_list_counts_the_rows_outside_it(owned):
    said = answered("evaluate", owned, "--epsilon", 20, "--out", "e.html", *QUICK)
    assert "private" in said.stdout


def test_an_account_needs_a_part_of_delta_for_a_private_list(owned):
    common = ("--account", "a", "--epsilon", 30, "--delta", 1e-5)
    answered("ledger", "init", "plain.db", *common)
    refused = answered("fit", owned, "--epsilon", 20, "--ledger", "plain.db", "--account", "a", code=3)
    assert "keeps no part of its delta" in refused.stderr
    answered("ledger", "init", "keys.db", *common, "--keys-delta", 1e-6)
    answered("fit", owned, "--epsilon", 20, "--ledger", "keys.db", "--account", "a", "--out", "m", *QUICK)
    assert load("m").statement.ledger.entries > 3


def test_tuning_refuses_a_private_list(owned):
    refused = answered("tune", owned, "--epsilon", 5, "--items", "private", "--try", "rounds=1,2", code=2)
    assert "not accounted for here" in refused.stderr


@pytest.mark.parametrize("what", ["--ratings", "--clicks"])
def test_declared_users_who_are_too_few_for_a_list_are_told_before_anything_is_spent(ratings, what):
    answered("ledger", "init", "led.db", "--account", "a", "--epsilon", 10, "--delta", 1e-4, "--keys-delta", 1e-5)
    charged = ("--ledger", "led.db", "--account", "a", "--out", "m", *QUICK)
    said = answered("fit", ratings, what, "--epsilon", 0.02, "--n-users", 300, *charged, code=2)
    assert "300 users are too few for a private list of items at this budget" in said.stderr
    assert "Nothing was spent; if your catalogue is public, give it with --items" in said.stderr
    assert "Spent: epsilon 0 at" in answered("ledger", "status", "led.db").stdout
    answered("fit", ratings, what, "--epsilon", 8, "--n-users", 300, *charged)
