"""What the library raises when it refuses: one clear sentence, always derived from `ApportionError`."""

from __future__ import annotations


class ApportionError(Exception):
    """Base of every error that the library raises on purpose."""


class InputError(ApportionError, ValueError):
    """The data or an argument cannot be used; the message quotes the value and says where it is."""


class BudgetError(ApportionError):
    """A release or a plan asks for more privacy budget than is left; nothing was drawn."""
