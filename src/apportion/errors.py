"""The errors that the library raises on purpose. Each is one clear sentence and derives from `ApportionError`."""

from __future__ import annotations

__all__ = ["ApportionError", "BudgetError", "EmptyCellError", "InputError"]


class ApportionError(Exception):
    """Base of every error that the library raises on purpose."""


class InputError(ApportionError, ValueError):
    """The data or an argument cannot be used. The message quotes the value and says where it is.

    Args:
        problem: what is wrong. A whole sentence or, if there is a remedy, its beginning without the full stop.
        argument: the Python name of the argument that caused the error; None if no argument did.
        remedy: what to do, up to the place where the argument's name belongs: "name it with".

    >>> error = InputError("No column looks like the user", argument="user", remedy="name it with")
    >>> str(error)
    'No column looks like the user; name it with user=.'
    >>> error.told("--user")
    'No column looks like the user; name it with --user.'
    """

    def __init__(self, problem: str, *, argument: str | None = None, remedy: str | None = None) -> None:
        self.problem, self.argument, self.remedy = problem, argument, remedy
        super().__init__(problem if remedy is None else f"{problem}; {remedy} {argument}=.")

    def told(self, name: str) -> str:
        """Return the message with another name for the argument, such as that of an option."""
        if self.argument is None:
            return self.problem
        return f"{name}: {self.problem}" if self.remedy is None else f"{self.problem}; {self.remedy} {name}."

    def inside(self, place: str) -> InputError:
        """Return the same error with the file or study where it occurred."""
        return type(self)(f"{place}: {self.problem}", argument=self.argument, remedy=self.remedy)


class EmptyCellError(InputError):
    """A cell is empty where rows with empty cells are refused."""


def require_format(what: str, stored: object, read: int) -> None:
    """Refuse a stored document of another format, in one sentence that says what to do.

    Args:
        what: the document, as the subject of the sentence.
        stored: the format that the document states.
        read: the only format that this version reads.
    """
    if stored == read:
        return
    newer = isinstance(stored, int) and stored > read
    advice = "install a newer apportion to read it" if newer else "create it again with this version"
    raise InputError(
        f"{what} has format {stored!r}, but this version of apportion reads format {read}: {advice}.", argument=None
    )


class BudgetError(ApportionError):
    """A release or a plan asks for more privacy budget than is left. Nothing was drawn."""
