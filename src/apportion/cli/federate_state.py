"""What a client's desk wrote down: read from its state, without the secrets of the pass under way."""

from __future__ import annotations

from pathlib import Path

from apportion.federated.desk import DeskState, Entry, state_from


def state_at(path: Path) -> DeskState:
    """Return the state that a client keeps at a path; an empty one if it has answered nothing yet."""
    return state_from(path.read_bytes()) if path.exists() else DeskState()


def journal_of(path: Path) -> tuple[Entry, ...]:
    """Return every pass that a client answered."""
    return state_at(path).journal
