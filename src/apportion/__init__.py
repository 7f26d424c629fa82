"""User-level differential privacy on long-tailed data: a private recommender and an honest statement.

The names below are the main interface. Import everything else from its package, such as `apportion.evaluation`.
A module is loaded when one of its names is first used, so `import apportion` is fast.

Data and models: `Interactions`, `ItemFeatures`, `load`, `save`.
Recommenders: `PrivateRatingRecommender`, `PrivateClickRecommender`.
Statistics: `UserMean`, `UserQuantile`, `UserGroupBy`.
Regression: `LabelPrivateRegression`, `UserERM`, `MultiTaskRidge`.
Parties and networks: `ProtectedMultiTask`, `PrivateTrainer` (needs the extra `torch`).
Privacy: `Budget`, `Session`, `Ledger`.

Example:
    >>> import apportion
    >>> mean = apportion.UserMean(epsilon=1.0, value_range=(0, 5)).fit([4, 3, 5, 4], users=["ann", "ann", "bob", "cem"])
    >>> mean.statement_.epsilon
    1.0
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apportion.data import Interactions, ItemFeatures
    from apportion.parties import ProtectedMultiTask
    from apportion.privacy import Budget, Ledger, Session
    from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender, load, save
    from apportion.regression import LabelPrivateRegression, MultiTaskRidge, UserERM
    from apportion.statistics import UserGroupBy, UserMean, UserQuantile
    from apportion.training import PrivateTrainer

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "Interactions",
    "ItemFeatures",
    "LabelPrivateRegression",
    "Ledger",
    "MultiTaskRidge",
    "PrivateClickRecommender",
    "PrivateRatingRecommender",
    "PrivateTrainer",
    "ProtectedMultiTask",
    "Session",
    "UserERM",
    "UserGroupBy",
    "UserMean",
    "UserQuantile",
    "load",
    "save",
]

_PACKAGES = {
    "data": ("Interactions", "ItemFeatures"),
    "parties": ("ProtectedMultiTask",),
    "privacy": ("Budget", "Ledger", "Session"),
    "recommend": ("PrivateClickRecommender", "PrivateRatingRecommender", "load", "save"),
    "regression": ("LabelPrivateRegression", "MultiTaskRidge", "UserERM"),
    "statistics": ("UserGroupBy", "UserMean", "UserQuantile"),
    "training": ("PrivateTrainer",),
}
_PACKAGE_OF = {name: package for package, names in _PACKAGES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load the package of a name when the name is first used, and keep the name."""
    if name not in _PACKAGE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(f"{__name__}.{_PACKAGE_OF[name]}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
