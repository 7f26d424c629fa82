"""Ids are what files say, character by character, and the same in every kind of file."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from apportion.recommend import load

SMALL = ("--dimension", "2", "--rounds", "2", "--seed", "1")
BARCODES = {item: f"{item:010d}" for item in range(40)}
"""Codes with zeros in front, as on goods."""


@pytest.fixture
def fits(run, folder, rows):
    """Fit the same rows from a CSV file and from Parquet files with text ids and, where they have any, integer ids."""

    def fitted(name_of, *options, forms):
        users, items, values = zip(*rows, strict=True)
        names = [name_of(item) for item in items]
        table = {"user": [str(user) for user in users], "item": names, "rating": values}
        lines = zip(*table.values(), strict=True)
        (folder / "csv").write_text("user,item,rating\n" + "".join(f"{u},{i},{v}\n" for u, i, v in lines))
        parquet.write_table(pa.table(table), folder / "texts")
        if "integers" in forms:
            parquet.write_table(pa.table(table | {"user": users, "item": items}), folder / "integers")
        for form in forms:
            run("fit", form, "--epsilon", 8, "--out", f"{form}-model", *options, *SMALL)
        return [(folder / f"{form}-model" / "model.safetensors").read_bytes() for form in forms]

    return fitted


@pytest.mark.parametrize("kind", ["--ratings", "--clicks"])
@pytest.mark.parametrize("items", ["private", "from-data"])
def test_codes_with_zeros_in_front_give_the_same_model_from_csv_and_parquet(fits, kind, items):
    one, two = fits(BARCODES.__getitem__, kind, "--items", items, forms=["csv", "texts"])
    assert one == two
    known = list(load("csv-model").task_ids)
    assert known == list(load("texts-model").task_ids)
    assert set(known) <= set(BARCODES.values())


@pytest.mark.parametrize("kind", ["--ratings", "--clicks"])
def test_plain_numbers_give_the_same_model_from_csv_and_parquet(fits, write, kind):
    listed = write("items.csv", "item", [[item] for item in range(40)])
    for items in ("private", listed):
        one, two, three = fits(str, kind, "--items", items, forms=["csv", "integers", "texts"])
        assert one == two == three
    one, two = fits(str, kind, "--items", "from-data", forms=["csv", "integers"])
    assert one == two


@pytest.mark.parametrize(("fitted_from", "history"), [("csv", "texts"), ("texts", "csv"), ("texts", "integers")])
def test_histories_and_titles_match_by_text_where_files_differ_in_type(fits, run, write, fitted_from, history):
    fits(str, "--items", "from-data", forms=["csv", "integers", "texts"])
    titles = write("titles.csv", "id,title", [[item, f"Title of {item}"] for item in range(40)])
    said = run("recommend", f"{fitted_from}-model", history, "--titles", titles, "--json")
    assert "left out" not in said.stderr
    assert "Title of" in said.stdout


@pytest.mark.parametrize("kind", ["--ratings", "--clicks"])
def test_rows_of_unlisted_items_can_be_left_out_and_the_statement_says_so(run, write, rows, kind):
    listed = write("items.csv", "item", [[item] for item in range(25)])
    few = write("few.csv", "user,item,rating", [row for row in rows if row[1] < 25])
    every = write("all.csv", "user,item,rating", rows)
    asked = ("--epsilon", 8, "--items", listed, kind, "--n-users", 300, *SMALL)
    assert "of the public list" in run("fit", every, *asked, code=2).stderr
    said = run("fit", every, *asked, "--unlisted", "drop")
    n_dropped = sum(row[1] >= 25 for row in rows)
    assert f"{n_dropped} of {len(rows)} rows are for items outside the list; they were left out" in said.stderr
    rule = "that rows of items outside the list were left out"
    assert rule in said.stdout
    assert str(n_dropped) not in said.stdout
    assert "left out" not in run("fit", few, *asked).stderr
    assert list(load("all-model").task_ids) == list(load("few-model").task_ids)
    np.testing.assert_allclose(load("all-model").vectors, load("few-model").vectors, rtol=1e-5, atol=1e-6)
    assert "needs --items FILE" in run("fit", every, "--epsilon", 8, "--unlisted", "drop", code=2).stderr


def test_an_item_list_matches_by_text_and_zeros_in_front_count(fits, run, write):
    fits(str, forms=["csv", "texts"])
    listed = write("items.csv", "item", [[item] for item in range(40)])
    run("fit", "texts", "--epsilon", 8, "--items", listed, "--out", "listed", *SMALL)
    assert list(load("listed").task_ids) == list(range(40))
    barcodes = write("barcodes.csv", "item", [[name] for name in BARCODES.values()])
    assert "of the public list" in run("fit", "csv", "--epsilon", 8, "--items", barcodes, *SMALL, code=2).stderr
