"""Multi-task learning across parties: no task's data or model leaks to the others beyond a stated bound."""

from apportion.protected.curator import Curator, Released
from apportion.protected.estimator import ProtectedMultiTask
from apportion.protected.instance import InstanceGuarantee
from apportion.protected.parties import BayesParties, Parties, Party, ProximalParties, Sending

__all__ = [
    "BayesParties",
    "Curator",
    "InstanceGuarantee",
    "Parties",
    "Party",
    "ProtectedMultiTask",
    "ProximalParties",
    "Released",
    "Sending",
]
