"""Two runs that release the same values, whatever their data: what they write may then differ in no byte.

The first run is recorded, at every session that is opened anywhere. The second is given what the first released. If it
asks for other releases, or writes other bytes, something left that was not released.
"""

from __future__ import annotations

import copy
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

from apportion.auditing import AuditError
from apportion.auditing.hidden_values import distance, raw_copy
from apportion.privacy import Session
from apportion.privacy.seen_keys import Seen


@dataclass
class Releases:
    """What a run released, in order, with the names and the secrets of its samples.

    Attributes:
        values: (release, hidden value, released value).
        secrets: (name, secret).
        ratios: by how many declared sensitivities each hidden value of the second run differs.
    """

    values: list = field(default_factory=list)
    secrets: list = field(default_factory=list)
    ratios: dict = field(default_factory=dict)

    @contextmanager
    def recorded(self):
        """Every session of a run notes what it releases."""
        draw, secret = Session._draw, Session._secret

        def note(session, pending):
            released = draw(session, pending)
            self.values.append((pending.release, raw_copy(pending.statistic), _copied(released)))
            return released

        def note_secret(session, name):
            self.secrets.append((name, secret(session, name)))
            return self.secrets[-1][1]

        with mock.patch.object(Session, "_draw", note), mock.patch.object(Session, "_secret", note_secret):
            yield

    @contextmanager
    def given(self):
        """Every session of another run releases the same."""
        values, secrets, draw = iter(self.values), iter(self.secrets), Session._draw

        def same(session, pending):
            draw(session, pending)  # a seeded source goes on as in the first run
            release, hidden, released = next(values, (None, None, None))
            if pending.release != release:
                raise AuditError(f"The neighbouring run releases {pending.release}, the first {release}.")
            moved = distance(pending.statistic, hidden, pending.mechanism) / release.sensitivity
            self.ratios[release.name] = max(moved, self.ratios.get(release.name, 0.0))
            return _copied(released)

        def same_secret(_session, name):
            first, secret = next(secrets, (None, b""))
            if name != first:
                raise AuditError(f"The neighbouring run draws a sample for {name!r}, the first for {first!r}.")
            return secret

        with mock.patch.object(Session, "_draw", same), mock.patch.object(Session, "_secret", same_secret):
            yield
        if next(values, None) is not None:
            raise AuditError("The neighbouring run makes fewer releases.")


def _copied(released):
    """A copy; what a first round of keys leaves hidden cannot be copied, and is the same in both runs."""
    return released if isinstance(released, Seen) else copy.deepcopy(released)


def files_of(folder):
    """Every file below a folder, by name, as bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
