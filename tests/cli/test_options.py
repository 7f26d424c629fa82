"""Options name the same choices as the library, which they do not import before they are used."""

from __future__ import annotations

from typing import get_args

from apportion.cli import options
from apportion.data.repeats import REPEATS
from apportion.data.row_rules import MISSING


def test_rules_for_rows_are_those_of_the_library():
    assert get_args(options.Repeats) == REPEATS
    assert get_args(options.Missing) == MISSING
