"""Regression under user-level differential privacy: many tasks at once, or users with many rows."""

from apportion.regression.erm import MultiTaskERM
from apportion.regression.label_private import LabelPrivateRegression
from apportion.regression.observations import Observations
from apportion.regression.ridge import MultiTaskRidge
from apportion.regression.user_erm import UserERM

__all__ = [
    "LabelPrivateRegression",
    "MultiTaskERM",
    "MultiTaskRidge",
    "Observations",
    "UserERM",
]
