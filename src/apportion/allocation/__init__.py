"""How one user's unit of sensitivity is divided: over tasks here; over users and rounds beside it."""

from apportion.allocation.exact import CertifiedAllocation, Exact, exact_weights, solve_public_graph
from apportion.allocation.joint import ExactJoint, Joint, joint_weights, solve_joint
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
from apportion.allocation.predictions import ExponentAdvice, excess_risk, improvement, recommend_exponent
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
    "CertifiedAllocation",
    "ClosedForm",
    "EqualSplit",
    "Exact",
    "ExactJoint",
    "Expected",
    "ExponentAdvice",
    "Joint",
    "KnownCounts",
    "TailSample",
    "TaskCounts",
    "UniformSample",
    "Weights",
    "adaptive",
    "closed_form",
    "equal_split",
    "exact_weights",
    "excess_risk",
    "improvement",
    "joint_weights",
    "recommend_exponent",
    "solve_joint",
    "solve_public_graph",
    "tail_sample",
    "uniform_sample",
]
