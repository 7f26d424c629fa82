"""The scikit-learn interface for estimators, without importing scikit-learn."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, Self

_ROUTED_METHODS = ("fit", "predict", "decision_function", "score")
_ROUTED_COLUMNS = {"users": True, "tasks": True, "parties": True, "groups": False}  # a search's groups make its folds


class Estimator:
    """Base class with `get_params`, `set_params` and a repr that shows the parameters. Constructors only store.

    `sklearn.base.clone` works on subclasses whose constructors store each argument under its own name. Those with
    X and y work in scikit-learn's pipelines and searches, too.
    """

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return list(defaults_of(cls))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments; `deep` is accepted for compatibility."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **parameters: Any) -> Self:
        """Set constructor arguments by name."""
        known = self._parameter_names()
        for name, value in parameters.items():
            if name not in known:
                raise ValueError(f"Expected one of the parameters {', '.join(known)}, got {name!r}.")
            setattr(self, name, value)
        return self

    @property
    def _predicts(self) -> Literal["classes", "numbers", "nothing"]:
        """What `predict` takes X alone for."""
        return "nothing"

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn's own tools ask of an estimator. Nobody else calls this."""
        from sklearn.utils import ClassifierTags, RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type={"classes": "classifier", "numbers": "regressor"}.get(self._predicts),
            target_tags=TargetTags(required=self._predicts != "nothing"),
            classifier_tags=ClassifierTags(multi_class=False) if self._predicts == "classes" else None,
            regressor_tags=RegressorTags() if self._predicts == "numbers" else None,
        )

    def get_metadata_routing(self) -> Any:
        """Return which columns of rows scikit-learn's own tools pass on, if their metadata routing is enabled."""
        from sklearn.utils.metadata_routing import MetadataRequest

        requests = MetadataRequest(owner=self)
        for method in _ROUTED_METHODS:
            taken = inspect.signature(getattr(self, method)).parameters if hasattr(self, method) else ()
            for column in _ROUTED_COLUMNS.keys() & set(taken):
                getattr(requests, method).add_request(param=column, alias=_ROUTED_COLUMNS[column])
        return requests

    _get_default_requests = get_metadata_routing  # what scikit-learn 1.6 asks for

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({shown})"


def defaults_of(estimator: Estimator | type[Estimator]) -> dict[str, Any]:
    """Return the names of a constructor's arguments and their defaults."""
    return _looked_up(estimator.__init__ if isinstance(estimator, type) else type(estimator).__init__)


@cache
def _looked_up(constructor: Callable[..., None]) -> dict[str, Any]:
    parameters = inspect.signature(constructor).parameters
    return {name: parameter.default for name, parameter in parameters.items() if name != "self"}
