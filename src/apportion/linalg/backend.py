"""Which code does the work: the compiled kernel if it was built, otherwise NumPy.

`use_backend` overrides the choice, for tests and measurements.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from apportion.errors import InputError
from apportion.linalg import kernel

BACKENDS = ("numpy", "compiled")
_chosen: ContextVar[str | None] = ContextVar("apportion_linalg_backend", default=None)


def compiled_available() -> bool:
    """Whether the compiled kernel was built and can be loaded."""
    return kernel.library() is not None


def active_backend() -> str:
    """Return the backend that a call would use now."""
    return _chosen.get() or ("compiled" if compiled_available() else "numpy")


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Use one backend inside the block.

    Args:
        name: "numpy" or "compiled".

    Raises:
        InputError: if there is no such backend, or the kernel was not built.
    """
    if name not in BACKENDS:
        raise InputError(f"Expected one of the backends {BACKENDS}, got {name!r}.", argument="name")
    if name == "compiled" and not compiled_available():
        raise InputError("The compiled kernel was not built on this machine; use the 'numpy' backend.", argument="name")
    token = _chosen.set(name)
    try:
        yield
    finally:
        _chosen.reset(token)
