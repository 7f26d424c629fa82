"""Mutants: every operator finds a place, every change parses and differs, a sample takes from all of them."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import apportion
from mutation.audits import selected
from mutation.judge import same
from mutation.live import changed_functions, give, note_living, statement_lines
from mutation.operators import OPERATORS
from mutation.sources import Mutant, every_mutant, sampled, source_of
from mutation.strata import Strata

ROOT = Path(apportion.__file__).parent


@pytest.fixture(scope="module")
def mutants():
    return every_mutant(ROOT)


def test_there_are_forty_operators_and_nearly_all_find_a_place(mutants):
    assert len(OPERATORS) >= 40
    assert len({mutant.operator for mutant in mutants}) >= 0.95 * len(OPERATORS)
    assert len(mutants) > 10_000


def test_every_change_parses_and_differs(mutants):
    for mutant in sampled(mutants, 20, seed=3):
        path = ROOT.parent / Path(*mutant.module.split(".")).with_suffix(".py")
        changed = source_of(mutant, path)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(path.read_text(encoding="utf-8"))), mutant


def test_a_sample_is_seeded_and_takes_from_every_package(mutants):
    one, again, other = (sampled(mutants, 300, seed) for seed in (1, 1, 2))
    assert one == again != other
    packages = Counter(mutant.package for mutant in one)
    assert len(packages) == 11
    assert min(packages.values()) >= 10


def test_strata_are_drawn_from_by_seed_and_more_often_where_privacy_was_broken(mutants):
    def drawn(seed, breaking="one_less"):
        strata, found = Strata(mutants[::10], seed, lambda mutant: mutant.place // 200), []
        for _ in range(300):
            found.append(strata.draw())
            strata.tell(found[-1], breaks=found[-1].operator == breaking)
        return found

    one, again, other = drawn(1), drawn(1), drawn(2)
    assert one == again != other
    assert len({mutant.package for mutant in one}) == 11
    assert len({mutant.operator for mutant in one}) > 20
    often, seldom = (
        sum(mutant.operator == "one_less" for seed in range(1, 6) for mutant in drawn(seed, breaking))
        for breaking in ("one_less", "none")
    )
    assert often > 1.5 * seldom


SOURCE = """
BOUND = 1 + 1

class Clip:
    norm = 2.0

    def __call__(self, x, most=3):
        return x + max(self.norm, 1)

def f(x):
    return [y - 1 for y in x]
"""


def test_a_change_in_a_function_is_given_to_living_functions_and_others_are_not(tmp_path):
    path = tmp_path / "privacy" / "one.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    named = {}
    lines = statement_lines(path)
    for mutant in every_mutant(tmp_path, ["privacy"]):
        codes = changed_functions(mutant, path)
        named.setdefault(lines[mutant.place].first, set()).add(None if codes is None else tuple(sorted(codes)))
    inside = {(("Clip.__call__", 7),)}
    assert named[2] == named[5] == {None}  # a module's and a class's own numbers
    assert named[8] == inside
    assert inside < named[7]  # the default is no part of the function's code
    assert named[11] == {(("f", 10), ("f.<locals>.<listcomp>", 11))}
    assert {held.function for held in lines.values()} == {0, 7, 10}


def test_living_functions_get_the_code_of_a_change(tmp_path):
    path = tmp_path / "privacy" / "one.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    names = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    note_living(str(tmp_path))
    (mutant,) = [m for m in every_mutant(tmp_path, ["privacy"]) if m.operator == "minus becomes plus"]
    assert names["f"]([1]) == [0]
    give(changed_functions(mutant, path), path)
    assert names["f"]([1]) == [2]


def test_two_fits_are_the_same_only_to_the_last_bit():
    one = {"a": [np.array([1.0, np.nan]), "x"], "b": Mutant("m", "o", 1)}
    assert same(one, {"a": [np.array([1.0, np.nan]), "x"], "b": Mutant("m", "o", 1)})
    for other in (np.array([1.0 + 2e-16 * 2, np.nan]), np.array([1.0, np.nan], np.float32), [1.0, np.nan]):
        assert not same(one, {**one, "a": [other, "x"]})
    assert not same(one, {**one, "b": Mutant("m", "o", 2)})


def test_a_mutant_is_given_to_the_shortest_tests_for_twenty_seconds():
    traced = {name: {"seconds": seconds} for name, seconds in (("a", 9.0), ("b", 0.1), ("c", 8.0), ("d", 7.0))}
    assert selected(list(traced), traced) == ["b", "d", "c"]


def test_a_mutant_is_known_by_its_name(mutants):
    assert all(Mutant.parse(str(mutant)) == mutant for mutant in sampled(mutants, 50, seed=1))


def test_documentation_annotations_and_messages_are_left_alone(tmp_path):
    (tmp_path / "privacy").mkdir()
    (tmp_path / "privacy" / "one.py").write_text(
        '"""Text 1."""\n\ndef f(x: "1 + 1") -> "2 - 2":\n    """Text 3."""\n    raise ValueError(1 + 1)\n'
    )
    assert every_mutant(tmp_path, ["privacy"]) == []
