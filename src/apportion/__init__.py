"""User-level differential privacy on long-tailed data: a private recommender and an honest statement."""

from __future__ import annotations

__version__ = "0.1.0"
