"""Krichene et al., "Multi-Task Differential Privacy Under Distribution Skew" (2023), as published.

Alternating minimisation (Algorithm 3) with updates by sufficient statistics (DPALS) or by gradients (DPSGD), the exact
and the joint solution of the weights' optimisation problem (eq. 9), and what the theory predicts.
"""

from apportion.published.skew.alternating import AlternatingMinimisation
from apportion.published.skew.exact import CertifiedAllocation, Exact, exact_weights, solve_public_graph
from apportion.published.skew.joint import ExactJoint, Joint, joint_weights, solve_joint
from apportion.published.skew.predictions import ExponentAdvice, excess_risk, improvement, recommend_exponent
from apportion.published.skew.updates import GradientDescent, ItemUpdate, SufficientStatistics

__all__ = [
    "AlternatingMinimisation",
    "CertifiedAllocation",
    "Exact",
    "ExactJoint",
    "ExponentAdvice",
    "GradientDescent",
    "ItemUpdate",
    "Joint",
    "SufficientStatistics",
    "exact_weights",
    "excess_risk",
    "improvement",
    "joint_weights",
    "recommend_exponent",
    "solve_joint",
    "solve_public_graph",
]
