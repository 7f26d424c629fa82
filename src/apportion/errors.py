"""What the library raises when it refuses: one clear sentence, always derived from `ApportionError`."""

from __future__ import annotations


class ApportionError(Exception):
    """Base of every error that the library raises on purpose."""


class InputError(ApportionError, ValueError):
    """The data or an argument cannot be used; the message quotes the value and says where it is.

    Args:
        problem: what is wrong. A whole sentence; with a remedy only its beginning, without the full stop.
        argument: the argument that it is about, if it is about one, by its name in Python.
        remedy: what to do with the argument, up to the place where its name belongs: "name it with".

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
        """The message for people who know the argument by another name, such as that of an option."""
        if self.argument is None:
            return self.problem
        return f"{name}: {self.problem}" if self.remedy is None else f"{self.problem}; {self.remedy} {name}."

    def inside(self, place: str) -> InputError:
        """The same about a place: the file or the study that it was found in."""
        return InputError(f"{place}: {self.problem}", argument=self.argument, remedy=self.remedy)


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
