"""Statistics of rows that belong to users: means, quantiles, covariances, statistics by group; user-level privacy."""

from apportion.statistics.covariance import UserCovariance
from apportion.statistics.groups import UserGroupBy, UserKeys
from apportion.statistics.mean import UserMean
from apportion.statistics.pca import UserPCA
from apportion.statistics.quantile import UserQuantile

__all__ = ["UserCovariance", "UserGroupBy", "UserKeys", "UserMean", "UserPCA", "UserQuantile"]
