"""A row of the page of claims, and how figures of a stored result are written in its short cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Stored = dict[str, Any]
Cell = Callable[[Stored], str]


def _headline(stored: Stored) -> str:
    return str(stored["headline"])


def _nothing(stored: Stored) -> str:
    return "–"


@dataclass(frozen=True)
class Row:
    """One claim in a table.

    Attributes:
        measures: what is measured, in a few words.
        ours: what we measured, from the stored result.
        reference: what it is compared with or has to reach, from the stored result.
    """

    measures: str
    ours: Cell = _headline
    reference: Cell = _nothing


def in_order(values: dict[str, float], digits: int = 4) -> str:
    """The figures at each ε, separated by slashes, ordered by ε.

    >>> in_order({"5": 0.88, "1": 0.9248}, 3)
    '0.925 / 0.880'
    """
    return " / ".join(f"{values[epsilon]:.{digits}f}" for epsilon in sorted(values, key=float))


def gains(found: dict[str, dict[str, list[float]]]) -> str:
    """Return mean gains in percent at each ε, by kind of data."""
    shown = (f"{kind} {in_order({e: 100 * gain for e, (gain, _) in by.items()}, 1)}" for kind, by in found.items())
    return ", ".join(shown)


def best_of_six(stored: Stored, part: str) -> dict[str, float]:
    """Return the best figure of the six published methods at each ε: the least RMSE, or the largest recall."""
    six = [values for name, values in stored["value"][part].items() if name not in ("ours", "without privacy")]
    best = min if part == "ratings" else max
    return {epsilon: best(values[epsilon] for values in six) for epsilon in six[0]}


def span(values: dict[str, float], digits: int = 2) -> str:
    """Return the least and the largest figure."""
    return f"{min(values.values()):.{digits}f} to {max(values.values()):.{digits}f}"


def span_of(values: dict[str, float], kind: str) -> str:
    """Return the least and the largest of the figures whose names have this beginning."""
    return span({name: value for name, value in values.items() if name.startswith(kind)})


def rarest(stored: Stored, optimizer: str) -> float:
    """Return the accuracy of an optimizer in the rarest group at its lowest loss, in per cent."""
    found = stored["value"][f"{optimizer}, by loss"]
    return float(100 * (found["rarest"] if "rarest" in found else found["accuracy by group"][-1]))


def rivals(stored: Stored) -> str:
    """Return the accuracy of the other optimizers in the rarest group."""
    return ", ".join(f"{name} {rarest(stored, name):.1f} %" for name in ("DP-GD", "DP-GDM", "DP-Adam"))


def ordered(stored: Stored) -> str:
    """Return in how many pairs of clip norm and noise the optimizers have the paper's order."""
    orders = [found["rarest accuracy: AdamBC > GDM > GD"] for found in stored["value"]["orders"].values()]
    return f"{sum(orders)} of {len(orders)} pairs"


def rarest_of_text(stored: Stored, optimizer: str) -> str:
    """Return the accuracy of an optimizer in the rarest group of texts, if only the head of the model is trained."""
    return f"{100 * stored['value']['head']['accuracy by group'][optimizer][-1]:.1f} %"


def least(stored: Stored, beginning: str) -> float:
    """Return the least of all figures whose names have this beginning, over the parts of a value."""
    figures = [one for part in stored["value"].values() for one in part.items()]
    return min(float(value) for name, value in figures if name.startswith(beginning))
