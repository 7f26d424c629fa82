"""Audits of the guarantee. They compare hidden values on neighbouring data, which no other layer can read."""

from apportion.auditing.canaries import CanaryFinding, audit_many_runs, audit_one_run, with_canaries
from apportion.auditing.likelihood import LikelihoodFinding, audit_likelihood
from apportion.auditing.replay import (
    AuditError,
    Finding,
    RecordingSession,
    ReplayingSession,
    audit,
    audit_neighbour,
)
from apportion.auditing.tester import TesterFinding, audit_mechanism, audit_outputs

__all__ = [
    "AuditError",
    "CanaryFinding",
    "Finding",
    "LikelihoodFinding",
    "RecordingSession",
    "ReplayingSession",
    "TesterFinding",
    "audit",
    "audit_likelihood",
    "audit_many_runs",
    "audit_mechanism",
    "audit_neighbour",
    "audit_one_run",
    "audit_outputs",
    "with_canaries",
]
