"""Statistics by group: counts, users, sums, means, variances, histograms and quantiles, under one bound a user."""

from apportion.statistics.groups.group_by import UserGroupBy
from apportion.statistics.groups.planning import GroupPlan, plan_groups
from apportion.statistics.groups.user_keys import UserKeys

__all__ = ["GroupPlan", "UserGroupBy", "UserKeys", "plan_groups"]
