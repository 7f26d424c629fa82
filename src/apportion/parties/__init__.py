"""Multi-task learning across parties: no task's data or model leaks to the others beyond a stated bound."""

from apportion.parties.common import Common
from apportion.parties.curator import Answer, Curator, Released
from apportion.parties.estimator import ProtectedMultiTask
from apportion.parties.instance import InstanceGuarantee
from apportion.parties.parties import BayesParties, Parties, Party, ProximalParties, Sending
from apportion.parties.release import GaussianRelease, MatrixRelease

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
    "ProtectedMultiTask",
    "ProximalParties",
    "Released",
    "Sending",
]
