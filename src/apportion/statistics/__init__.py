"""Statistics of rows that belong to users: means, quantiles and statistics by group, under user-level privacy."""

from apportion.statistics.groups import UserGroupBy
from apportion.statistics.mean import UserMean
from apportion.statistics.quantile import UserQuantile

__all__ = ["UserGroupBy", "UserMean", "UserQuantile"]
