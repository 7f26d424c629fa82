"""Multi-task learning across parties: no task's data or model leaks to the others beyond a stated bound."""

from apportion.parties.common import Common
from apportion.parties.curator import Answer, Curator, Released
from apportion.parties.elsewhere import SharedLearning, learn_elsewhere, parties_of
from apportion.parties.estimator import ProtectedMultiTask
from apportion.parties.instance import InstanceGuarantee
from apportion.parties.parties import BayesParties, Parties, Party, ProximalParties, Sending
from apportion.parties.release import GaussianRelease, MatrixRelease
from apportion.parties.side import PartySide

__all__ = [
    "Answer",
    "BayesParties",
    "Common",
    "Curator",
    "GaussianRelease",
    "InstanceGuarantee",
    "MatrixRelease",
    "Parties",
    "Party",
    "PartySide",
    "ProtectedMultiTask",
    "ProximalParties",
    "Released",
    "Sending",
    "SharedLearning",
    "learn_elsewhere",
    "parties_of",
]
