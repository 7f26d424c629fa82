"""What an export needs: a library from an extra, a statement and, for some, a least-squares regression."""

from __future__ import annotations

import importlib
from typing import Any

from apportion.errors import InputError
from apportion.privacy.statement import Statement
from apportion.recommend.model import ClickModel, ItemModel, RatingModel


def library(name: str, extra: str) -> Any:
    """Import a library. If it is missing, say which extra provides it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(
            f"This export needs {name}; install it with: pip install 'apportion[{extra}]'.", argument=None
        ) from None


def statement_of(model: ItemModel) -> Statement:
    """Return the statement that travels with every export; refuse a model without one."""
    if model.statement is None:
        raise InputError(
            "This model was fitted without privacy: it has no statement, which every export must include.",
            argument="model",
        )
    return model.statement


def refuse_unless_solvable(model: ItemModel) -> None:
    """Refuse a model whose users minimise a loss other than squares: only a ridge regression can be exported."""
    if not isinstance(model, RatingModel | ClickModel):
        raise InputError(f"Expected a model of ratings or clicks, got one of kind {model.kind!r}.", argument="model")
