"""Looks at raw rows while a module is trained: what is seen is for whoever may see the rows. Not covered by ε."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor, nn

from apportion.errors import InputError
from apportion.training.clipped_units import WatchedRows, clip_factors, noise_to_signal
from apportion.training.clipping import ComingStep
from apportion.training.diagnostics import (
    NOT_COVERED,
    ClassLaw,
    Floats,
    GroupScores,
    frequency_groups,
    gradient_alignment,
    law_of_head,
    scores_by_group,
)
from apportion.training.module_state import unchanged
from apportion.training.per_unit import Loss
from apportion.training.units import Units, UserRows

_ALIGNED = 520  # rows whose gradients are compared by pairs, as in fig. 1 of the heavy-tail paper


@dataclass(frozen=True)
class Seen:
    """What was seen of raw rows during training. Not covered by ε, whatever the module's statement says.

    Attributes:
        step: how many steps had been taken.
        scores: losses and accuracies, by group.
        clip_norm: of the coming step; released.
        clipped: fraction of the watched units (users, or rows where rows are the units) whose gradients the coming step
            would clip, with the scales and the clip norm in force; None if gradients were not looked at.
        noise_to_signal: length of the coming step's noise over that of each group's part of the mean clipped gradient;
            None if not looked at.
        alignment: mean cosine of rows' gradients within a class and across classes; None if not looked at, or where
            a row has several targets.
        law: gradients and Hessians by class beside the law of section 2; None if not looked at, or where the module
            does not end in a linear layer with one score for each class.
        note: what all of it is.
    """

    step: int
    scores: GroupScores
    clip_norm: float
    clipped: float | None = None
    noise_to_signal: Floats | None = None
    alignment: tuple[float, float] | None = None
    law: ClassLaw | None = None
    note: str = NOT_COVERED


class Watch:
    """Raw rows that are looked at during training.

    Everything it shows is computed from raw rows without noise, and is NOT covered by ε: keep it where the rows may be
    seen, and do not publish it with the module. The statement of a watched training says that rows were looked at;
    settings that are changed after a look were chosen on these rows.

    Args:
        inputs: rows of model inputs.
        targets: their targets.
        class_groups: the group of each target, from 0.
        n_class_groups: how many of these groups there are.
        every: how many steps lie between two looks.
        gradients: whether to look at gradients, too: which units are clipped, the noise beside what each group adds,
            alignment, and the law of section 2 for a linear softmax head.
        users: whose row each is, as for `UserRows`; needed to look at gradients where users are trained on, since they
            are what is clipped. The figures are about the watched rows of a user: watch all of them.
        scored_by: the loss that rows are scored by; None for the one that is trained with.
    """

    def __init__(
        self,
        inputs: Tensor,
        targets: Tensor,
        class_groups: ArrayLike,
        n_class_groups: int,
        every: int = 10,
        *,
        gradients: bool = False,
        users: ArrayLike | None = None,
        scored_by: Loss | None = None,
    ) -> None:
        if every < 1 or n_class_groups < 1:
            raise InputError(f"Expected every and n_class_groups of at least 1, got {every} and {n_class_groups}.")
        places = np.asarray(class_groups, np.int64)
        if places.size and not 0 <= places.min() <= places.max() < n_class_groups:
            got = f"{places.min()} to {places.max()}"
            raise InputError(f"Expected class_groups from 0 to {n_class_groups - 1}, got {got}.")
        self.every = every
        self._rows = inputs, targets
        self._class_groups = places
        self._n_class_groups = n_class_groups
        self._units = WatchedRows(inputs, targets, places, users)
        self._gradients = gradients
        self._scored_by = scored_by

    @classmethod
    def by_frequency(cls, inputs: Tensor, targets: Tensor, edges: ArrayLike, **settings: Any) -> Watch:
        """Watch groups of classes by how often they occur in the watched targets, the most frequent first.

        Args:
            inputs: rows of model inputs.
            targets: their classes, from 0.
            edges: numbers of targets, falling; group k has classes below edge k - 1 and not below edge k.
            settings: as for a `Watch`.
        """
        class_groups = frequency_groups(targets.cpu().numpy(), edges)
        return cls(inputs, targets, class_groups, np.size(edges) + 1, **settings)

    def check(self, units: Units) -> None:
        """Refuse to look at other units' gradients than those that are clipped in training."""
        if self._gradients and isinstance(units, UserRows) != isinstance(self._units.units, UserRows):
            given = "users" if isinstance(self._units.units, UserRows) else "none"
            wanted = "users of the watched rows" if isinstance(units, UserRows) else "no users of the watched rows"
            raise InputError(f"Expected {wanted}, since {units.name} are what is clipped in training, got {given}.")

    def look(self, module: nn.Module, loss: Loss, steps: int, coming: ComingStep) -> Seen:
        """Score the module as it is, after so many steps and before one that clips and adds noise like this.

        What the passes write into the module's buffers is undone: those are released with it.
        """
        with unchanged(module):
            scored_by = self._scored_by or loss
            scores = scores_by_group(module, scored_by, *self._rows, self._class_groups, self._n_class_groups)
            if not self._gradients:
                return Seen(steps, scores, coming.clip_norm)
            factors = clip_factors(module, loss, self._units, coming)
            ratios = noise_to_signal(module, loss, self._units, self._n_class_groups, coming, factors)
            clipped = float((factors < 1).mean()) if len(factors) else 0.0
            return Seen(steps, scores, coming.clip_norm, clipped, ratios, *self._by_class(module, loss))

    def _by_class(self, module: nn.Module, loss: Loss) -> tuple[tuple[float, float] | None, ClassLaw | None]:
        """Alignment and the law, where each row has one class."""
        inputs, targets = self._rows
        if targets.dim() != 1 or targets.is_floating_point():
            return None, None
        some = slice(None, None, -(-len(inputs) // _ALIGNED) or 1)
        aligned = gradient_alignment(module, loss, inputs[some], targets[some])
        return (aligned.within, aligned.across), law_of_head(module, inputs, targets)
