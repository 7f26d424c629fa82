"""How one user's unit of sensitivity is divided over tasks, rows of a user are weighed, and a budget over rounds.

Allocations (`Adaptive`, ...) are the argument `allocation=` of recommenders and multi-task estimators, contribution
policies (`Smooth`, ...) the argument `bounding=` of statistics, and round schedules (`Power`, ...) `schedule=`.
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
