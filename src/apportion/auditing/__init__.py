"""Checks that the guarantee holds: looking inside on neighbouring data, which no other layer can do."""

from apportion.auditing.replay import Comparison, RecordingSession, ReplayingSession, compare

__all__ = ["Comparison", "RecordingSession", "ReplayingSession", "compare"]
