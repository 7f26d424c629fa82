"""How one user's unit of sensitivity is divided: over tasks here, over users and rounds in submodules."""

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
    "EqualSplit",
    "Expected",
    "KnownCounts",
    "ReleasedCounts",
    "SplitEqually",
    "TailSample",
    "TaskFactors",
    "UniformSample",
    "adaptive",
    "closed_form",
    "tail_sample",
    "uniform_sample",
]
