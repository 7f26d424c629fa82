"""Pages about a model: one that may be shared, and others that must not be shared."""

from __future__ import annotations

from apportion.report.comparison import comparison_csv, comparison_page, comparison_tables
from apportion.report.internal import NewItems, Roles, internal_page
from apportion.report.public import public_page

__all__ = [
    "NewItems",
    "Roles",
    "comparison_csv",
    "comparison_page",
    "comparison_tables",
    "internal_page",
    "public_page",
]
