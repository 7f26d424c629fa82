"""The data of a study: divided into training, validation and test, with popularity slices and a hash."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

import numpy as np

from apportion.data import HeldOut, Interactions
from apportion.data.splits import MIN_OBSERVATIONS_HELD_OUT
from apportion.evaluation.slices import PopularitySlices, popularity_slices
from apportion.evaluation.study.description import Study

Part = Literal["validation", "test"]


@dataclass(frozen=True)
class Parts:
    """The training data, and the shown and hidden rows of validation and test."""

    train: Interactions
    validation: HeldOut | None
    test: HeldOut
    words: str

    def held_out(self, part: Part) -> HeldOut:
        """Return the part to measure on."""
        held_out = self.test if part == "test" else self.validation
        assert held_out is not None
        return held_out


def split_study(study: Study, data: Interactions) -> Parts:
    """Divide the data as the study says: rows for ratings, whole users for clicks."""
    plan, rng = study.split, np.random.default_rng(study.split.seed)
    if study.kind == "ratings":
        train, validation, test = data.split_by_value(
            rng, (1 - plan.validation - plan.test, plan.validation, plan.test)
        )
        words = (
            f"random rows: {plan.validation:.0%} for validation, {plan.test:.0%} for test, the others "
            f"for training; split seed {plan.seed}"
        )
        return Parts(train, HeldOut(train, validation) if plan.validation else None, HeldOut(train, test), words)
    n_eligible = int((data.by_user.counts >= MIN_OBSERVATIONS_HELD_OUT).sum())
    n_validation, n_test = (
        int(size) if size >= 1 else max(1, round(size * n_eligible)) if size else 0
        for size in (plan.validation, plan.test)
    )
    parts = data.split_by_users(rng, n_validation, n_test, plan.history)
    words = (
        f"random whole users: {n_validation:,} for validation, {n_test:,} for test, the others for "
        f"training; {plan.history:.0%} of a held-out user's rows are shown and the others are to "
        f"be predicted; split seed {plan.seed}"
    )
    return Parts(parts.train, parts.validation if n_validation else None, parts.test, words)


def study_slices(study: Study, train: Interactions) -> PopularitySlices:
    """Return the study's popularity slices, by counts of the training part."""
    return popularity_slices(train.by_task.counts, study.measures.slices)


def fingerprint(data: Interactions) -> str:
    """Return a hash of the data."""
    digest = hashlib.sha256(f"{data.n_users} {data.n_tasks}".encode())
    for array in (data.users, data.tasks, data.values):
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()
