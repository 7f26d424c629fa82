"""How to divide a user's unit of sensitivity over tasks, weigh the rows of users, and divide a budget over rounds.

Allocations (`Adaptive`, ...) are for the argument `allocation=` of recommenders and multi-task estimators. Contribution
policies (`Smooth`, ...) are for `bounding=` of statistics, and round schedules (`Power`, ...) for `schedule=`.
"""

from apportion.allocation.policies import (
    Adaptive,
    Allocation,
    ClosedForm,
    EqualSplit,
    Expected,
    KnownCounts,
    ReleasedCounts,
    TailSample,
    UniformSample,
)
from apportion.allocation.rounds import Geometric, Power, RoundSchedule, Uniform
from apportion.allocation.users import ContributionPolicy, SampleLimit, Smooth, Unbounded
from apportion.allocation.weightings import (
    SplitByValue,
    SplitEqually,
    TaskFactors,
    adaptive,
    closed_form,
    tail_sample,
    uniform_sample,
)

__all__ = [
    "Adaptive",
    "Allocation",
    "ClosedForm",
    "ContributionPolicy",
    "EqualSplit",
    "Expected",
    "Geometric",
    "KnownCounts",
    "Power",
    "ReleasedCounts",
    "RoundSchedule",
    "SampleLimit",
    "Smooth",
    "SplitByValue",
    "SplitEqually",
    "TailSample",
    "TaskFactors",
    "Unbounded",
    "Uniform",
    "UniformSample",
    "adaptive",
    "closed_form",
    "tail_sample",
    "uniform_sample",
]
