"""What the library raises when it refuses: one clear sentence, always derived from `ApportionError`."""

from __future__ import annotations


class ApportionError(Exception):
    """Base of every error that the library raises on purpose."""


class InputError(ApportionError, ValueError):
    """The data or an argument cannot be used; the message quotes the value and says where it is."""


def require_format(what: str, found: object, read: int) -> None:
    """Refuse a stored document of another format, in one sentence that says what to do.

    Args:
        what: the document, as the subject of the sentence.
        found: the format that it says it has.
        read: the only format that this version reads.
    """
    if found == read:
        return
    newer = isinstance(found, int) and found > read
    advice = "install a newer apportion to read it" if newer else "make it again with this version"
    raise InputError(f"{what} has format {found!r}, and this version of apportion reads format {read}: {advice}.")


class BudgetError(ApportionError):
    """A release or a plan asks for more privacy budget than is left; nothing was drawn."""
