"""From requests to items. Plain requests that arrive together are solved and ranked together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np

from apportion.data import Interactions, Vocabulary
from apportion.recommend.model import ItemModel, Recommendations
from apportion.serving.requests import Asked


class Answers:
    """Answers of one model, as JSON.

    Args:
        model: the model.
        titles: titles of items; answers include them.
    """

    def __init__(self, model: ItemModel, titles: Mapping[int | str, str] | None = None) -> None:
        self._model = model
        named = titles or {}
        self._items = [
            _compact({"item": item, **({"title": named[item]} if item in named else {})})[:-1]
            for item in model.task_ids
        ]

    def solve(self, asked: Sequence[Asked]) -> list[bytes]:
        """Return the answer to each request, in order."""
        answers: dict[int, bytes] = {}
        plain = [number for number, each in enumerate(asked) if each.is_plain]
        alone = [[number] for number, each in enumerate(asked) if not each.is_plain]
        for together in [plain, *alone] if plain else alone:
            group = [asked[number] for number in together]
            for number, answer in zip(together, self._together(group), strict=True):
                answers[number] = answer
        return [answers[number] for number in range(len(asked))]

    def _together(self, group: Sequence[Asked]) -> list[bytes]:
        """Answer requests that share their filters."""
        first, most = group[0], min(max(each.k for each in group), self._model.n_tasks)
        history = self._as_history(group)
        (found,) = self._model.recommend_in_parts(history, most, candidates=first.candidates, caps=first.caps)
        return [self._as_json(each, found, row) for row, each in enumerate(group)]

    def _as_history(self, group: Sequence[Asked]) -> Interactions:
        sizes = [len(each.history) for each in group]
        codes = np.fromiter((code for each in group for code in each.history), np.int32, sum(sizes))
        values = np.fromiter((value for each in group for value in each.history.values()), np.float32, sum(sizes))
        users = np.repeat(np.arange(len(group), dtype=np.int32), sizes)
        names = Vocabulary.of_range(len(group), name="request")
        return Interactions.from_codes(users, codes, values, user_ids=names, task_ids=self._model.task_ids)

    def _as_json(self, asked: Asked, found: Recommendations, row: int) -> bytes:
        pairs = zip(found.tasks[row, : asked.k].tolist(), found.scores[row, : asked.k].tolist(), strict=True)
        items = ",".join(f'{self._items[task]},"score":{_digits(score)}}}' for task, score in pairs if task >= 0)
        return f'{{"items":[{items}],"known":{len(asked.history)},"unknown":{asked.n_unknown}}}'.encode("ascii")


def _compact(entry: dict[str, int | str]) -> str:
    return json.dumps(entry, separators=(",", ":"))


def _digits(score: float) -> str:
    """Format a score with the digits of single precision."""
    return f"{score:.7g}"
