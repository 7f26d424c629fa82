"""Statistics of rows that belong to users: means and quantiles under user-level differential privacy."""

from apportion.statistics.mean import UserMean
from apportion.statistics.quantile import UserQuantile

__all__ = ["UserMean", "UserQuantile"]
