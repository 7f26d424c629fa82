"""Budgets, bounded sums, releases and statements: the part of the library that carries the guarantee."""

from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.bounds import Labels, ObservationRows, Rows, Weights
from apportion.privacy.budget import Budget, Plan, Share
from apportion.privacy.noise import NoiseSource, SeededNoise, SystemNoise
from apportion.privacy.sampling import SampledShare
from apportion.privacy.session import Ledger, Session
from apportion.privacy.statement import Release, Statement

__all__ = [
    "BoundedSum",
    "Budget",
    "Labels",
    "Ledger",
    "NoiseSource",
    "ObservationRows",
    "Plan",
    "Release",
    "Rows",
    "SampledShare",
    "SeededNoise",
    "Session",
    "Share",
    "Statement",
    "SystemNoise",
    "Weights",
]
