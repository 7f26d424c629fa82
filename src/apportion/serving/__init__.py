"""A small service over HTTP: post a history, get items. It needs the extra `serve` (uvicorn).

It is stateless. A history lives for as long as its request does: it is not stored, not logged, not counted.
"""

from __future__ import annotations

from apportion.serving.limits import Limits
from apportion.serving.service import Service

__all__ = ["Limits", "Service"]
