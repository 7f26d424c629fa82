"""Counts and durations of requests for Prometheus; nothing about their contents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Requests by route and status, and how long they took."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._within: Counter[tuple[str, float]] = Counter()
        self._seconds: Counter[str] = Counter()

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._requests[route, status] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]
        bound = next((bound for bound in _BOUNDS if seconds <= bound), float("inf"))
        self._within[route, bound] += 1

    def text(self, gauges: Mapping[str, float]) -> str:
        """Return all figures, together with some current gauges."""
        return "\n".join([*self._counts(), *self._histogram(), *_gauges({**gauges, **_memory()})]) + "\n"

    def _counts(self) -> Iterator[str]:
        yield "# HELP apportion_requests_total Requests that were answered."
        yield "# TYPE apportion_requests_total counter"
        for (route, status), count in sorted(self._requests.items()):
            yield f'apportion_requests_total{{route="{route}",status="{status}"}} {count}'

    def _histogram(self) -> Iterator[str]:
        yield "# HELP apportion_request_seconds Seconds from the head of a request to its answer."
        yield "# TYPE apportion_request_seconds histogram"
        for route in sorted(self._seconds):
            total = 0
            for bound in (*_BOUNDS, float("inf")):
                total += self._within[route, bound]
                edge = "+Inf" if bound == float("inf") else f"{bound:g}"
                yield f'apportion_request_seconds_bucket{{route="{route}",le="{edge}"}} {total}'
            yield f'apportion_request_seconds_sum{{route="{route}"}} {self._seconds[route]:.6f}'
            yield f'apportion_request_seconds_count{{route="{route}"}} {total}'


def _gauges(values: Mapping[str, float]) -> Iterator[str]:
    for name, value in values.items():
        yield f"# TYPE {name} gauge"
        yield f"{name} {value:g}" if value != int(value) else f"{name} {int(value)}"


def _memory() -> dict[str, float]:
    """Return resident memory, if the system reports it."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        kilobytes = next(line for line in lines if line.startswith("VmRSS")).split()[1]
    except (OSError, StopIteration):
        return {}
    return {"process_resident_memory_bytes": 1024.0 * int(kilobytes)}
