"""Record and replay: does a neighbouring run differ by more than it declares?

The first run is recorded: names, hidden sums, released values. The second run, on data without one user, is fed the
released values of the first, so both see the same world up to each release. Then, if the guarantee holds, (1) the
second run asks for the same releases in the same order with the same sensitivities and shares, and (2) each hidden
sum differs from the recorded one by at most its declared sensitivity. That is the premise of adaptive composition,
checked release by release; it catches clipping that does not clip, unreleased quantities that steer the run, and
parts of one user that reach another's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from apportion.auditing.door import peek, scaled_distance
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.session import Session


@dataclass(frozen=True)
class Record:
    """One release of the first run."""

    name: str
    sensitivity: float
    stddev: float
    hidden: NDArray[Any]
    released: Any


@dataclass(frozen=True)
class Comparison:
    """One release in two neighbouring runs: how far the hidden sums are apart, in sensitivities."""

    name: str
    ratio: float


class RecordingSession(Session):
    """A session that remembers hidden and released values, in the auditor's memory only."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.records: list[Record] = []

    def _draw(self, name: str, statistic: BoundedSum, stddev: float) -> Any:
        released = super()._draw(name, statistic, stddev)
        self.records.append(Record(name, statistic.l2_sensitivity, stddev, peek(statistic).copy(), released))
        return released


class ReplayingSession(Session):
    """A session that releases what another run released, and compares the hidden sums."""

    def __init__(self, records: list[Record], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._records = records
        self.comparisons: list[Comparison] = []

    def _draw(self, name: str, statistic: BoundedSum, stddev: float) -> Any:
        record = self._expected(name)
        seen = (name, statistic.l2_sensitivity, stddev, statistic.shape)
        wanted = (record.name, record.sensitivity, record.stddev, record.hidden.shape)
        if seen != wanted:
            raise AssertionError(f"The neighbouring run released {seen} where the first released {wanted}.")
        ratio = scaled_distance(statistic, record.hidden) / statistic.l2_sensitivity
        self.comparisons.append(Comparison(name, ratio))
        return record.released

    def _expected(self, name: str) -> Record:
        if len(self.comparisons) >= len(self._records):
            raise AssertionError(f"The neighbouring run makes a release {name!r} that the first did not.")
        return self._records[len(self.comparisons)]


def compare(
    fit: Callable[[Any, Session], object], data: Any, neighbour: Any, session_arguments: dict[str, Any]
) -> list[Comparison]:
    """Fit on data, replay on its neighbour, and return how far each hidden sum moved.

    Args:
        fit: runs the estimator on (data, session).
        data: the data set.
        neighbour: the same data without one user.
        session_arguments: what both sessions are built with.
    """
    first = RecordingSession(**session_arguments)
    fit(data, first)
    second = ReplayingSession(first.records, **session_arguments)
    fit(neighbour, second)
    if len(second.comparisons) != len(first.records):
        missing = first.records[len(second.comparisons)].name
        raise AssertionError(f"The neighbouring run never made the release {missing!r}.")
    return second.comparisons
