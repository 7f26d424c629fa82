"""Budgets, bounded sums, releases and statements: the part of the library that carries the guarantee."""

from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.bounds import Labels, ObservationRows, Rows, Weights
from apportion.privacy.budget import Budget, Plan, Share
from apportion.privacy.checkpoints import Checkpoint
from apportion.privacy.contributions import BoxedValues, PrivateRowWeights, PublicRowWeights
from apportion.privacy.ledger import Account, Ledger, LedgerError
from apportion.privacy.mechanisms import Gaussian, Laplace, Mechanism, PlannedMechanism, PlannedShare, SampledGaussian
from apportion.privacy.neighbours import (
    ADD_REMOVE,
    ADD_REMOVE_EXAMPLE,
    ADD_REMOVE_TASK,
    REPLACE_LABELS,
    REPLACE_TASK,
    REPLACE_VALUES,
    REPLACE_VALUES_PUBLIC_GRAPH,
    Neighbours,
)
from apportion.privacy.noise import NoiseSource, SeededNoise, SystemNoise
from apportion.privacy.purposes import Purpose, ReleaseName, Stage
from apportion.privacy.ranks import Base, RankedRows, UniformBase
from apportion.privacy.session import Session
from apportion.privacy.statement import Release, Statement

__all__ = [
    "ADD_REMOVE",
    "ADD_REMOVE_EXAMPLE",
    "ADD_REMOVE_TASK",
    "REPLACE_LABELS",
    "REPLACE_TASK",
    "REPLACE_VALUES",
    "REPLACE_VALUES_PUBLIC_GRAPH",
    "Account",
    "Base",
    "BoundedSum",
    "BoxedValues",
    "Budget",
    "Checkpoint",
    "Gaussian",
    "Labels",
    "Laplace",
    "Ledger",
    "LedgerError",
    "Mechanism",
    "Neighbours",
    "NoiseSource",
    "ObservationRows",
    "Plan",
    "PlannedMechanism",
    "PlannedShare",
    "PrivateRowWeights",
    "PublicRowWeights",
    "Purpose",
    "RankedRows",
    "Release",
    "ReleaseName",
    "Rows",
    "SampledGaussian",
    "SeededNoise",
    "Session",
    "Share",
    "Stage",
    "Statement",
    "SystemNoise",
    "UniformBase",
    "Weights",
]
