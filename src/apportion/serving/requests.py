"""From the body of a request to what it asks for: strict about types, and clear about what is wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.recommend.model import ItemModel
from apportion.serving.limits import Limits
from apportion.serving.refusals import RefusedError, shown

FIELDS: Final = ("history", "k", "allow", "deny", "categories", "caps")
DEFAULT_K: Final = 10
_UNUSABLE: Final = 422


@dataclass(frozen=True, repr=False, eq=False)
class Asked:
    """What one client asks for. It is never printed.

    Attributes:
        history: values by item code; the last value for an item that is named twice.
        n_unknown: number of entries in the history with items that the model does not know.
        k: the number of items wanted.
        candidates: codes of the items that may be recommended, ascending; None for all.
        caps: how many of them may share a category.
    """

    history: Mapping[int, float]
    n_unknown: int
    k: int
    candidates: NDArray[np.int32] | None
    caps: Mapping[str, int]

    @property
    def is_plain(self) -> bool:
        """Whether the request can be answered together with others."""
        return self.candidates is None and not self.caps


class Reader:
    """Reads requests for one model.

    Args:
        model: the model.
        limits: the limits of a request.
    """

    def __init__(self, model: ItemModel, limits: Limits) -> None:
        self._model = model
        self._limits = limits
        self._codes: dict[int | str, int] = {item: code for code, item in enumerate(model.task_ids)}
        self._id_type: type[int] | type[str] = str if model.task_ids.holds_text else int
        self.needs_values = model.kind != "clicks"

    def read(self, body: bytes) -> Asked:
        """Return what the body asks for, or raise a `RefusedError`."""
        document = _parsed(body)
        if not isinstance(document, dict):
            raise RefusedError(_UNUSABLE, f'Expected an object with a "history", got {shown(document)}.')
        for name in document:
            if name not in FIELDS:
                raise RefusedError(_UNUSABLE, f"There is no field {shown(name)}; the fields are {', '.join(FIELDS)}.")
        history, n_unknown = self._history(document.get("history"))
        return Asked(history, n_unknown, self._k(document.get("k")), self._candidates(document), self._caps(document))

    def _history(self, given: Any) -> tuple[dict[int, float], int]:
        if not isinstance(given, list):
            raise RefusedError(_UNUSABLE, f'Expected "history" as a list of items, got {shown(given)}.')
        history: dict[int, float] = {}
        n_unknown = 0
        for number, entry in enumerate(given, 1):
            item, value = self._entry(entry, number)
            code = self._codes.get(item)
            if code is None:
                n_unknown += 1
            else:
                history[code] = value
        if not history:
            found = f"none of its {len(given)} items is known" if given else "it is empty"
            raise RefusedError(_UNUSABLE, f'Expected a "history" with an item that the model knows; {found}.')
        return history, n_unknown

    def _entry(self, entry: Any, number: int) -> tuple[int | str, float]:
        """Return the item and the value of an entry: an object or, for clicks, an id."""
        place = f'Entry {number} of "history"'
        if not isinstance(entry, dict):
            if self.needs_values:
                raise RefusedError(_UNUSABLE, f'{place}: expected {{"item": ..., "value": ...}}, got {shown(entry)}.')
            return self._id(entry, place), 1.0
        for name in entry:
            if name not in ("item", "value"):
                raise RefusedError(
                    _UNUSABLE, f'{place}: there is no field {shown(name)}; the fields are "item", "value".'
                )
        item = self._id(entry.get("item"), place)
        value = entry.get("value", None if self.needs_values else 1.0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not _fits_a_float(value):
            raise RefusedError(_UNUSABLE, f'{place}: expected a number for "value", got {shown(value)}.')
        return item, float(value)

    def _id(self, given: Any, place: str) -> int | str:
        if type(given) is not self._id_type:
            kind = "text" if self._id_type is str else "an integer"
            raise RefusedError(_UNUSABLE, f"{place}: expected {kind} for an item, got {shown(given)}.")
        found: int | str = given
        return found

    def _k(self, given: Any) -> int:
        most = self._limits.most_items
        if given is None:
            return min(DEFAULT_K, most)
        if type(given) is not int or not 1 <= given <= most:
            raise RefusedError(_UNUSABLE, f'Expected "k" as an integer from 1 to {most}, got {shown(given)}.')
        return given

    def _candidates(self, document: Mapping[str, Any]) -> NDArray[np.int32] | None:
        """Return codes of the items that pass all filters; None without any filter."""
        allow, deny, asked = (document.get(name) for name in ("allow", "deny", "categories"))
        if allow is None and deny is None and asked is None:
            return None
        kept = np.ones(self._model.n_tasks, bool)
        if allow is not None:
            kept[:] = False
            kept[self._listed("allow", allow)] = True
        if deny is not None:
            kept[self._listed("deny", deny)] = False
        if asked is not None:
            kept &= self._having(asked)
        return np.flatnonzero(kept).astype(np.int32)

    def _listed(self, name: str, given: Any) -> list[int]:
        """Return codes of listed items; unknown items cannot be recommended anyway."""
        if not isinstance(given, list):
            raise RefusedError(_UNUSABLE, f'Expected "{name}" as a list of items, got {shown(given)}.')
        ids = [self._id(each, f'Entry {number} of "{name}"') for number, each in enumerate(given, 1)]
        return [self._codes[each] for each in ids if each in self._codes]

    def _having(self, asked: Any) -> NDArray[np.bool_]:
        if not isinstance(asked, dict) or not all(
            isinstance(words, list) and words and all(isinstance(word, str) for word in words)
            for words in asked.values()
        ):
            raise RefusedError(_UNUSABLE, 'Expected "categories" as an object of lists of words, none of them empty.')
        if self._model.categories is None:
            raise RefusedError(_UNUSABLE, 'This model has no categories of its items: leave out "categories".')
        try:
            return self._model.categories.having(asked)
        except InputError as error:
            raise RefusedError(_UNUSABLE, str(error)) from None

    def _caps(self, document: Mapping[str, Any]) -> dict[str, int]:
        given = document.get("caps")
        if given is None:
            return {}
        if not isinstance(given, dict) or not all(type(most) is int and 0 < most < 2**31 for most in given.values()):
            raise RefusedError(_UNUSABLE, 'Expected "caps" as an object of integers of at least 1.')
        if given and self._model.categories is None:
            raise RefusedError(_UNUSABLE, 'This model has no categories of its items: leave out "caps".')
        for name in given:
            try:
                assert self._model.categories is not None
                self._model.categories.group(name)
            except InputError as error:
                raise RefusedError(_UNUSABLE, str(error)) from None
        return given


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=_no_number)
    except RecursionError:
        raise RefusedError(400, "The body is nested too deeply.") from None
    except (ValueError, UnicodeDecodeError) as error:
        where = f" at line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise RefusedError(400, f"The body is not a JSON document{where}.") from None


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number.")


def _fits_a_float(value: float) -> bool:
    """Whether a number is finite in single precision, in which models compute."""
    return -3e38 < value < 3e38 and math.isfinite(value)
