"""Every byte that a command writes is a function of what was released: it is the same on neighbouring data.

Each command runs twice, in folders of its own: once on data, once on a neighbour, given what the first run released.
stdout and every file must be equal. Lines on stderr are for whoever may see the data and are not compared, nor are
refusals (docs/threat-model.md). Commands are found by enumeration: a new one is compared, or named here with a reason.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.auditing import AuditError
from apportion.cli.main import program
from command_runs import (
    FIT,
    NOT_COMPARED,
    OTHER_VALUES,
    WITHOUT_USERS,
    made_rows,
    turned,
    unequal,
    without,
    written,
    written_twice,
)
from same_releases import Releases

MANY = tuple(range(5, 60))
"""With the same releases no data may make a difference: these users leave together."""


@pytest.fixture(scope="module")
def rows():
    return made_rows()


@pytest.mark.parametrize("steps", WITHOUT_USERS.values(), ids=WITHOUT_USERS)
def test_nothing_differs_when_users_leave(steps, rows, tmp_path):
    first, second, ratios = written_twice(steps, rows, without(rows, *MANY), tmp_path)
    assert ratios
    assert unequal(first, second) == []


@pytest.mark.parametrize("steps", OTHER_VALUES.values(), ids=OTHER_VALUES)
def test_nothing_differs_when_values_change(steps, rows, tmp_path):
    first, second, ratios = written_twice(steps, rows, turned(rows, *MANY), tmp_path)
    assert ratios
    assert unequal(first, second) == []


@pytest.mark.parametrize("user", [7, 30])
@pytest.mark.parametrize("name", ["search", "ratings with features", "clicks, few users declared"])
def test_no_release_of_a_command_moves_by_more_than_its_sensitivity(name, user, rows, tmp_path):
    *_, ratios = written_twice(WITHOUT_USERS[name][:1], rows, without(rows, user), tmp_path)
    assert max(ratios.values()) <= 1 + 1e-6


def test_every_command_is_compared_or_named_with_a_reason():
    ran = {step[0] for steps in (*WITHOUT_USERS.values(), *OTHER_VALUES.values()) for step in steps}
    assert set(program.commands) == ran | set(NOT_COMPARED)
    assert not ran & set(NOT_COMPARED)


def test_the_threat_model_names_every_command_that_is_not_compared():
    text = (Path(__file__).parents[2] / "docs" / "threat-model.md").read_text(encoding="utf-8")
    assert [name for name in NOT_COMPARED if f"`{name}`" not in text] == []


def test_a_run_that_releases_something_else_is_found(rows, tmp_path):
    releases, other = Releases(), tuple("3" if step == "2" else step for step in FIT)
    with releases.recorded():
        written([FIT], rows, tmp_path / "one")
    with pytest.raises(AuditError, match="releases"), releases.given():
        written([other], rows, tmp_path / "two")
