"""Checks that the guarantee holds: looking inside on neighbouring data, which no other layer can do."""

from apportion.auditing.likelihood import LikelihoodFinding, audit_likelihood
from apportion.auditing.replay import (
    AuditError,
    Finding,
    RecordingSession,
    ReplayingSession,
    audit,
    audit_neighbour,
)

__all__ = [
    "AuditError",
    "Finding",
    "LikelihoodFinding",
    "RecordingSession",
    "ReplayingSession",
    "audit",
    "audit_likelihood",
    "audit_neighbour",
]
