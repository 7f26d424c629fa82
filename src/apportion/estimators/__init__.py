"""What estimators share: the scikit-learn interface, and how a private fit opens its session."""

from apportion.estimators.base import Estimator
from apportion.estimators.private import PrivateEstimator

__all__ = ["Estimator", "PrivateEstimator"]
