"""Regression under user-level differential privacy: many tasks at once, with features per (user, task) pair."""

from apportion.regression.erm import MultiTaskERM
from apportion.regression.losses import Huber, Logistic, Loss, Squared
from apportion.regression.observations import Observations
from apportion.regression.ridge import MultiTaskRidge

__all__ = ["Huber", "Logistic", "Loss", "MultiTaskERM", "MultiTaskRidge", "Observations", "Squared"]
