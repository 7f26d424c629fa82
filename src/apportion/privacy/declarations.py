"""What is declared about a session and written in its statement. No release pays for it, and nothing checks it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apportion.privacy.statement import DEFAULTS, Tuning


class Declarations:
    """Sentences for the statement: what is public, what is not protected, and how settings were chosen."""

    def __init__(self, public: Sequence[str], tuning: str | None, window: str) -> None:
        self._public = list(public)
        self._rules: list[str] = []
        self._unprotected: list[str] = []
        self._tuning: dict[str, Tuning] = {} if tuning is None else {tuning: Tuning.DECLARED}
        self._declared_users: int | None = None
        self._window = window

    def assume_public(self, sentence: str, *, of_rows: bool = False) -> None:
        """Add a sentence to the statement's public assumptions, or to its rules for rows."""
        listed = self._rules if of_rows else self._public
        if sentence not in listed:
            listed.append(sentence)

    def declare_unprotected(self, sentence: str) -> None:
        """Declare something that this session does not protect. Pages and cards show it in their headline."""
        if sentence not in self._unprotected:
            self._unprotected.append(sentence)

    def declare_users(self, n_users: int, what: str = "users") -> None:
        """Declare the number of users, or of other units, public."""
        self._declared_users = n_users
        self.assume_public(f"the number of {what}, declared as {n_users}")

    def declare_tuning(self, sentence: str, kind: Tuning = Tuning.DECLARED) -> None:
        """Add a sentence on how settings were chosen to the statement."""
        self._tuning.setdefault(sentence, kind)

    def _declared(self) -> dict[str, Any]:
        """Return the fields of the statement that were declared."""
        chosen = (kind for kind in self._tuning.values() if kind != Tuning.DEFAULTS)
        return {
            "public": tuple(self._public),
            "rules": tuple(self._rules),
            "unprotected": tuple(self._unprotected),
            "tuning": "; ".join(self._tuning) or DEFAULTS,
            "tuning_kind": next(chosen, Tuning.DEFAULTS),
            "declared_users": self._declared_users,
            "window": self._window,
        }
