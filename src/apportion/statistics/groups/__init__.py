"""Statistics by group: counts, users, sums, means, variances, histograms and quantiles, under one bound a user."""

from apportion.statistics.groups.group_by import UserGroupBy

__all__ = ["UserGroupBy"]
