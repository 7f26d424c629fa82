"""`apportion export`: files in their place, whole or not at all."""

from __future__ import annotations

import pyarrow.parquet as parquet
import pytest


def test_parquet_is_written_where_asked_and_marked(run, fitted, folder):
    result = run("export", fitted / "ratings", "--to", "parquet", "--out", "a/items.parquet")
    assert parquet.read_table(folder / "a/items.parquet").num_rows == 40
    assert result.stdout == "Written: a/items.parquet\n"
    assert "NOT FOR RELEASE" in result.stderr


@pytest.mark.parametrize("form", ["onnx", "faiss", "huggingface", "mlflow"])
def test_every_form_has_a_default_place(run, fitted, folder, form):
    pytest.importorskip({"huggingface": "json"}.get(form, form))
    written = run("export", fitted / "clicks", "--to", form, "--json").json
    assert (folder / written["written"]).exists()
    assert written["releasable"] is False
    assert [path.name for path in folder.iterdir()] == [written["written"]]


def test_what_is_there_is_not_replaced(refused, fitted, folder):
    (folder / "items.parquet").write_text("mine", encoding="utf-8")
    sentence = refused("export", fitted / "ratings", "--to", "parquet", "--out", "items.parquet")
    assert "Refusing to replace" in sentence
    assert (folder / "items.parquet").read_text(encoding="utf-8") == "mine"
