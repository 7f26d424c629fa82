"""Checks that the guarantee holds: looking inside on neighbouring data, which no other layer can do."""

from apportion.auditing.replay import AuditError, Finding, RecordingSession, ReplayingSession, audit

__all__ = ["AuditError", "Finding", "RecordingSession", "ReplayingSession", "audit"]
