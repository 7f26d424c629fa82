"""What an export needs: a library that an extra brings, a statement, and for some a regression of squares."""

from __future__ import annotations

import importlib
from typing import Any

from apportion.errors import InputError
from apportion.privacy.statement import Statement
from apportion.recommend.model import ClickModel, ItemModel, RatingModel


def library(name: str, extra: str) -> Any:
    """Import a library, or say which extra brings it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(f"This export needs {name}; install it with: pip install 'apportion[{extra}]'.") from None


def statement_of(model: ItemModel) -> Statement:
    """The statement that travels with every export; a model without one is refused."""
    if model.statement is None:
        raise InputError("This model was fitted without privacy: it has no statement to travel with it.")
    return model.statement


def refuse_unless_solvable(model: ItemModel) -> None:
    """Refuse a model whose users minimise another loss than squares: only a ridge regression is written down."""
    if not isinstance(model, RatingModel | ClickModel):
        raise InputError(f"Expected a model of ratings or clicks, got one of kind {model.kind!r}.")
