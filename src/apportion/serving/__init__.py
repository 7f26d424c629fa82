"""A small service over HTTP: post a history, get items. It needs the extra `serve` (uvicorn).

It is stateless. A history exists only as long as its request: it is not stored, logged or counted.
"""

from __future__ import annotations

from apportion.serving.limits import Limits
from apportion.serving.service import Service

__all__ = ["Limits", "Service"]
