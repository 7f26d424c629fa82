"""What estimators share: scikit-learn's manners, and how a private fit opens its session."""

from apportion.estimators.base import Estimator
from apportion.estimators.private import PrivateEstimator

__all__ = ["Estimator", "PrivateEstimator"]
