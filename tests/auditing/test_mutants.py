"""Mutants: every operator finds a place, every change parses and differs, a sample takes from all of them."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

import apportion
from mutation.operators import OPERATORS
from mutation.sources import Mutant, every_mutant, sampled, source_of

ROOT = Path(apportion.__file__).parent


@pytest.fixture(scope="module")
def mutants():
    return every_mutant(ROOT)


def test_there_are_forty_operators_and_nearly_all_find_a_place(mutants):
    assert len(OPERATORS) >= 40
    assert len({mutant.operator for mutant in mutants}) >= 0.95 * len(OPERATORS)
    assert len(mutants) > 10_000


def test_every_change_parses_and_differs(mutants):
    for mutant in sampled(mutants, 40, seed=3):
        path = ROOT.parent / Path(*mutant.module.split(".")).with_suffix(".py")
        changed = source_of(mutant, path)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(path.read_text(encoding="utf-8"))), mutant


def test_a_sample_is_seeded_and_takes_from_every_package(mutants):
    one, again, other = (sampled(mutants, 300, seed) for seed in (1, 1, 2))
    assert one == again != other
    packages = Counter(mutant.package for mutant in one)
    assert len(packages) == 9
    assert min(packages.values()) >= 10


def test_a_mutant_is_known_by_its_name(mutants):
    assert all(Mutant.parse(str(mutant)) == mutant for mutant in sampled(mutants, 50, seed=1))


def test_documentation_annotations_and_messages_are_left_alone(tmp_path):
    (tmp_path / "privacy").mkdir()
    (tmp_path / "privacy" / "one.py").write_text(
        '"""Text 1."""\n\ndef f(x: "1 + 1") -> "2 - 2":\n    """Text 3."""\n    raise ValueError(1 + 1)\n'
    )
    assert every_mutant(tmp_path, ["privacy"]) == []
