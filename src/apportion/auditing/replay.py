"""Record and replay: does a neighbouring run differ by more than it declares?

The first run, on D, is recorded: names, hidden sums, released values. Then the run is repeated on other data sets with
the released values of the first, so that all see the same history at each release:

- on D without user j, once with j's rows removed and once rebuilt from scratch, so that codes, vocabularies and chunk
  boundaries move as they would for a data set without j;
- on user j alone, and on no users at all.

If the guarantee holds, then (1) every run asks for the same releases in the same order with the same shapes,
sensitivities and noise; (2) each hidden sum moves by at most its declared sensitivity; (3) it is a sum over users, so
the sum without j and the sum of j alone add up to the whole; (4) the result of the run is a function of the released
values, so all runs return the same; and (5) a release on a sample of the users does not move at all if a user leaves
who was not in the sample. (1), (2) and (5) are the premise of adaptive composition. (3) and (4) catch what a bound
alone would miss: counts, maxima, seeds or settings that reach a formula or the model without a release.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.auditing.hidden_values import Raw, distance, raw_copy, scales_of
from apportion.data import Interactions
from apportion.data.user_keys import sampling_keys
from apportion.privacy.charges import Pending
from apportion.privacy.keys import KeyedValues
from apportion.privacy.mechanisms import Mechanism
from apportion.privacy.mechanisms.thresholded import aligned
from apportion.privacy.sampling import Sample
from apportion.privacy.session import Session
from apportion.privacy.statement import Release

Fit = Callable[[Any, Session], Mapping[str, Any]]
"""Runs an estimator on (data, session) and returns everything that it would publish, by name."""


@dataclass(frozen=True)
class Record:
    """One release of the first run."""

    release: Release
    mechanism: Mechanism[Any]
    scale: float
    scales: NDArray[Any] | None
    hidden: Raw
    released: Any

    @property
    def name(self) -> str:
        """The name of the release."""
        return self.release.name

    def log_density(self, hidden: Raw) -> float:
        """Return the log-density of the release given a hidden value, up to a constant common to all hidden values."""
        return self.mechanism.log_density(self.released, hidden, self.scales, self.scale)


@dataclass(frozen=True)
class Finding:
    """One release under audit.

    Attributes:
        name: the name of the release.
        ratio: how far the hidden sum moved without the user, in declared sensitivities.
        gap: relative difference between the whole and the sum without the user plus the sum of the user alone.
    """

    name: str
    ratio: float
    gap: float


class AuditError(AssertionError):
    """Two runs that must agree did not."""


class RecordingSession(Session):
    """A session that keeps hidden and released values, only in the auditor's memory."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.records: list[Record] = []
        self.secrets: dict[str, bytes] = {}
        self.samples: dict[str, Sample] = {}

    def _sample(self, name: str, probability: float) -> Sample:
        self.samples[name] = super()._sample(name, probability)
        return self.samples[name]

    def _secret(self, name: str) -> bytes:
        self.secrets[name] = super()._secret(name)
        return self.secrets[name]

    def _draw(self, pending: Pending) -> Any:
        released = super()._draw(pending)
        hidden = raw_copy(pending.statistic)
        scales, kept = scales_of(pending.statistic), copy.copy(released)
        self.records.append(Record(pending.release, pending.mechanism, pending.scale, scales, hidden, kept))
        return released


class ReplayingSession(Session):
    """A session that repeats the releases of another run and compares the hidden sums."""

    def __init__(self, first: RecordingSession, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._records = first.records
        self._secrets = first.secrets
        self.hidden: list[Raw] = []
        self.ratios: list[float] = []

    def _secret(self, name: str) -> bytes:
        if name not in self._secrets:
            raise AuditError(f"The neighbouring run draws a sample for {name!r} that the first did not.")
        return self._secrets[name]

    def _draw(self, pending: Pending) -> Any:
        record, statistic = pending.release, pending.statistic
        if len(self.hidden) >= len(self._records):
            raise AuditError(f"The neighbouring run makes a release {record.name!r} that the first did not.")
        first = self._records[len(self.hidden)]
        if record != first.release or not _same(scales_of(statistic), first.scales):
            raise AuditError(f"The neighbouring run released {record} where the first released {first.release}.")
        self.ratios.append(distance(statistic, first.hidden, pending.mechanism) / record.sensitivity)
        self.hidden.append(raw_copy(statistic))
        return copy.copy(first.released)


def audit(fit: Fit, data: Interactions, user: int, session_arguments: Mapping[str, Any]) -> list[Finding]:
    """Run on the data, on the data without one user and on that user alone; raise or return the findings.

    Args:
        fit: runs the estimator and returns what it would publish.
        data: the data set; its task list is assumed public.
        user: code of the user to leave out.
        session_arguments: arguments of the sessions, including a seeded noise source.

    Raises:
        AuditError: if the runs ask for different releases or return different results.
    """
    first = RecordingSession(**session_arguments)
    published = fit(data, first)

    def replay(other: Interactions) -> ReplayingSession:
        return _replayed(fit, other, first, published, session_arguments)

    removed = replay(data.without(user))
    rebuilt = replay(_rebuilt(data, user, keep_list=not session_arguments["budget"].keys_delta))
    _require_samples(first, removed, data, user)
    alone = replay(data.where(data.users == user))
    replay(data.where(np.zeros(data.n_observations, bool)))
    return [
        Finding(
            record.name, max(removed.ratios[k], rebuilt.ratios[k]), _gap(record, rebuilt.hidden[k], alone.hidden[k])
        )
        for k, record in enumerate(first.records)
    ]


def audit_neighbour(fit: Fit, data: Any, neighbour: Any, session_arguments: Mapping[str, Any]) -> dict[str, float]:
    """Run on the data and on a neighbour of any kind; raise, or return how far each release moved.

    Args:
        fit: runs the estimator and returns what it would publish.
        data: the data for `fit`.
        neighbour: neighbouring data, under the session's relation.
        session_arguments: arguments of the sessions: the budget, the relation, a seeded noise source.

    Returns:
        For each release, the distance between the two hidden values, in declared sensitivities.

    Raises:
        AuditError: if the runs ask for different releases or return different results.
    """
    return replays(fit, data, session_arguments)(neighbour)


def replays(fit: Fit, data: Any, session_arguments: Mapping[str, Any]) -> Callable[[Any], dict[str, float]]:
    """Run on the data once; return a function that does what `audit_neighbour` does for one neighbour after the other.

    Args:
        fit: see `audit_neighbour`, and so are the others.
        data: see `fit`.
        session_arguments: see `fit`.
    """
    first = RecordingSession(**session_arguments)
    published = fit(data, first)

    def replay(neighbour: Any) -> dict[str, float]:
        session = _replayed(fit, neighbour, first, published, session_arguments)
        return {record.name: ratio for record, ratio in zip(first.records, session.ratios, strict=True)}

    return replay


def _replayed(
    fit: Fit,
    data: Any,
    first: RecordingSession,
    published: Mapping[str, Any],
    session_arguments: Mapping[str, Any],
) -> ReplayingSession:
    """Repeat the run with the first run's releases. It must ask for the same releases and return the same results."""
    session = ReplayingSession(first, **session_arguments)
    _require_same(published, fit(data, session))
    if len(session.hidden) != len(first.records):
        missing = first.records[len(session.hidden)].name
        raise AuditError(f"The neighbouring run never made the release {missing!r}.")
    return session


def _require_samples(first: RecordingSession, removed: ReplayingSession, data: Interactions, user: int) -> None:
    """Check that a release on a sample does not move if a user leaves who was not in the sample."""
    keys = sampling_keys(data.user_ids)[user : user + 1]
    for record, ratio in zip(first.records, removed.ratios, strict=True):
        outside = record.name in first.samples and not first.samples[record.name].members(keys)[0]
        if outside and ratio > 1e-12:
            raise AuditError(f"{record.name!r} moved when a user left who was not in its sample.")


def _rebuilt(data: Interactions, user: int, *, keep_list: bool) -> Interactions:
    """Return the data as they would be read without this user. A list that is not private stays."""
    kept = data.users != user
    return Interactions.from_arrays(
        data.user_ids.ids_of(data.users[kept]),
        data.task_ids.ids_of(data.tasks[kept]),
        data.values[kept],
        task_ids=data.task_ids if keep_list else None,
        single_user=True,
    )


def _gap(record: Record, without: Raw, alone: Raw) -> float:
    whole = record.hidden
    if isinstance(whole, KeyedValues) and isinstance(without, KeyedValues) and isinstance(alone, KeyedValues):
        whole, without, alone = aligned(whole, without, alone)
    if not (isinstance(whole, np.ndarray) and isinstance(without, np.ndarray) and isinstance(alone, np.ndarray)):
        raise AuditError(f"{record.name!r} is a choice by rank, not a sum over users; use `audit_neighbour` for it.")
    missed = np.abs(whole - without - alone).max(initial=0.0)
    return float(missed / max(1.0, np.abs(whole).max(initial=0.0)))


def _require_same(first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
    if first.keys() != second.keys():
        raise AuditError(f"The neighbouring run published {sorted(second)}, the first {sorted(first)}.")
    for name, value in first.items():
        if not _same(value, second[name]):
            raise AuditError(f"{name!r} differs between neighbouring runs with the same releases.")


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.shape == other.shape and bool(np.array_equal(one, other))
    return bool(one == other)
