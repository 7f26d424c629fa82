"""How one user's unit of sensitivity is divided: over tasks here; over users and rounds beside it."""

from apportion.allocation.policies import (
    Adaptive,
    Allocation,
    ClosedForm,
    EqualSplit,
    Expected,
    KnownCounts,
    TailSample,
    TaskCounts,
    UniformSample,
)
from apportion.allocation.tasks import (
    adaptive,
    closed_form,
    equal_split,
    tail_sample,
    uniform_sample,
)
from apportion.privacy.bounds import Weights

__all__ = [
    "Adaptive",
    "Allocation",
    "ClosedForm",
    "EqualSplit",
    "Expected",
    "KnownCounts",
    "TailSample",
    "TaskCounts",
    "UniformSample",
    "Weights",
    "adaptive",
    "closed_form",
    "equal_split",
    "tail_sample",
    "uniform_sample",
]
