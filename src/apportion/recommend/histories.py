"""Checks of what a model is asked about: a history has the model's items, and targets have the history's users."""

from __future__ import annotations

from apportion.data import Interactions, Vocabulary
from apportion.errors import InputError


def check_history(history: object, task_ids: Vocabulary) -> None:
    """Refuse anything but interactions with this list of items."""
    _refuse_others(history, "history")
    assert isinstance(history, Interactions)
    if not _same(history.task_ids, task_ids):
        raise InputError(
            f"The history's list of {history.n_tasks} items is not the model's ({len(task_ids)}); "
            "build it with task_ids=model.task_ids.ids.",
            argument="history",
        )


def check_targets(history: Interactions, targets: object) -> None:
    """Refuse targets whose codes stand for other users or items than those of the history."""
    _refuse_others(targets, "targets")
    assert isinstance(targets, Interactions)
    check_same_ids(history, targets)


def check_same_ids(history: Interactions, targets: Interactions) -> None:
    """Refuse two sets of rows whose codes stand for different users or items."""
    for ids, others, name in (
        (targets.user_ids, history.user_ids, "user"),
        (targets.task_ids, history.task_ids, "item"),
    ):
        if not _same(ids, others):
            raise InputError(
                f"The targets' list of {len(ids)} {name}s is not the history's ({len(others)}); "
                "split both from one set of rows, or build them with the same lists of ids.",
                argument="targets",
            )


def _refuse_others(given: object, argument: str) -> None:
    if not isinstance(given, Interactions):
        raise InputError(
            f"Expected the {argument} as Interactions, such as Interactions.from_frame(frame, "
            f"task_ids=model.task_ids.ids), got {type(given).__module__}.{type(given).__name__}.",
            argument=argument,
        )


def _same(some: Vocabulary, others: Vocabulary) -> bool:
    return some is others or some == others
