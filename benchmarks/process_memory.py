"""How much memory this process takes, as the kernel counts it (Linux).

`getrusage` is not used: its peak survives `exec`, so a child would report the peak of the process that started it.
"""

from __future__ import annotations

from pathlib import Path


def peak_bytes() -> int:
    """The most memory that was resident since the process began, or since `forget_peak`."""
    return _status("VmHWM")


def resident_bytes() -> int:
    """The memory that is resident now."""
    return _status("VmRSS")


def forget_peak() -> None:
    """Let the peak count from here."""
    Path("/proc/self/clear_refs").write_text("5")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024
