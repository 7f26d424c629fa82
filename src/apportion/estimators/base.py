"""Scikit-learn's manners for estimators, without importing scikit-learn."""

from __future__ import annotations

import inspect
from typing import Any, Self


class Estimator:
    """A constructor that only stores, `get_params` and `set_params`, and a repr that shows them.

    `sklearn.base.clone` works on subclasses whose constructors store each argument under its own name.
    """

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments; `deep` is accepted for compatibility."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **parameters: Any) -> Self:
        """Set constructor arguments by name."""
        known = self._parameter_names()
        for name, value in parameters.items():
            if name not in known:
                raise ValueError(f"Expected a parameter among {', '.join(known)}, got {name!r}.")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({shown})"
