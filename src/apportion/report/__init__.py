"""Pages about a model: one that may be shared, and one that must not."""

from __future__ import annotations

from apportion.report.internal import Roles, internal_page
from apportion.report.public import public_page

__all__ = ["Roles", "internal_page", "public_page"]
