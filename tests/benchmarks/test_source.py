"""Stored results carry the hash of the code they were measured on, and the table says which are older than it."""

from __future__ import annotations

import json

import pytest

from benchmarks import claim, source, table
from benchmarks.__main__ import CLAIMS


@pytest.fixture
def forget():
    """Forget what was read of files, before and after."""
    held = (source._file, source._imports, source._tree, source._code_hash)
    for each in held:
        each.cache_clear()
    yield lambda: [each.cache_clear() for each in held]
    for each in held:
        each.cache_clear()


@pytest.fixture
def tree(tmp_path, monkeypatch, forget):
    """A small package with a claim that imports half of it, and forgets what it read on every call."""
    files = {
        "benchmarks/small.py": "from apportion import fits\n\n\ndef measure():\n    from apportion.late import x\n",
        "src/apportion/__init__.py": '"""A package."""\n',
        "src/apportion/fits.py": "from apportion.linalg import kernel\n\nRATE = 1.0\n",
        "src/apportion/late.py": "x = 1\n",
        "src/apportion/linalg/__init__.py": "",
        "src/apportion/linalg/kernel.py": "LEVEL = 1\n",
        "src/apportion/linalg/_kernel.cpp": "int level = 1;\n",
        "src/apportion/linalg/_round.hpp": "int round = 1;\n",
        "src/apportion/pages.py": "TITLE = 'none of its business'\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(source, "ROOT", tmp_path)
    monkeypatch.setattr(source, "FOLDERS", (tmp_path / "src", tmp_path, tmp_path / "tests"))
    monkeypatch.setattr(source, "PACKAGE", tmp_path / "src" / "apportion")

    def changed(name, text):
        before = source.fingerprint("small")
        (tmp_path / name).write_text(text)
        forget()
        return source.fingerprint("small") != before

    return changed


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("benchmarks/small.py", "from apportion import fits, late\n"),
        ("src/apportion/fits.py", "from apportion.linalg import kernel\n\nRATE = 2.0\n"),
        ("src/apportion/late.py", "x = 2\n"),
        ("src/apportion/linalg/_kernel.cpp", "int level = 2;\n"),
        ("src/apportion/linalg/_round.hpp", "int round = 2;\n"),
    ],
)
def test_a_change_of_code_that_a_claim_reaches_changes_its_hash(tree, name, text):
    assert tree(name, text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/apportion/fits.py", '"""Words."""\n\nfrom apportion.linalg import kernel\n\nRATE = 1.0  # why\n'),
        ("src/apportion/pages.py", "TITLE = 'another'\n"),
    ],
)
def test_words_and_code_that_a_claim_does_not_reach_do_not(tree, name, text):
    assert not tree(name, text)


def test_every_claim_reaches_the_package():
    package = {path for path in source.PACKAGE.rglob("*.py")}
    for name in CLAIMS:
        assert len(source.reached(f"benchmarks.{name.replace('-', '_')}") & package) > 20, name


def test_a_result_is_stored_with_the_hash_and_marked_once_the_code_is_another(monkeypatch, tmp_path):
    for module in (claim, table):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    outcome = claim.Outcome({"csv_fit_gib": 1.0}, {"csv_fit_gib": 8.0}, True, "one")
    assert claim.run("memory", lambda quick: outcome, quick=False) == 0
    stored = json.loads((tmp_path / "memory.json").read_text())
    assert stored["source"] == source.fingerprint("memory")
    assert f"| yes | {table.NOW} |" in table.page(["memory"])
    monkeypatch.setattr(source, "fingerprint", lambda name: "another")
    assert f"| yes | {table.EARLIER} |" in table.page(["memory"])


def test_a_result_without_a_hash_is_marked(monkeypatch, tmp_path):
    monkeypatch.setattr(table, "RESULTS", tmp_path)
    old = {"claim": "mutants", "headline": "one", "holds": False, "machine": "some"}
    (tmp_path / "mutants.json").write_text(json.dumps(old))
    assert f"| **no** | {table.EARLIER} |" in table.page(["mutants"])


def test_the_hash_names_no_field_that_only_some_versions_of_python_have():
    plain = source._dumped(source.ast.parse("def f(): pass"))
    assert "type_params" not in plain
    assert "decorator_list=[]" in plain
