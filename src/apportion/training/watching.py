"""Looks at raw rows while a module is trained, for people who may see the rows. Not covered by ε."""

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

_ALIGNED = 520  # number of rows whose gradients are compared pairwise, as in fig. 1 of the heavy-tail paper


@dataclass(frozen=True)
class Seen:
    """What was recorded from raw rows during training. Not covered by ε, whatever the module's statement says.

    Attributes:
        step: how many steps had been taken.
        scores: losses and accuracies, by group.
        clip_norm: the clip norm of the coming step; released.
        clipped: fraction of the watched units (users or rows) whose gradients the coming step would clip, with the
            current scales and clip norm; None if gradients were not examined.
        noise_to_signal: length of the coming step's noise over that of each group's part of the mean clipped gradient;
            None if not examined.
        alignment: mean cosine of rows' gradients within a class and across classes; None if not examined, or if a row
            has several targets.
        law: gradients and Hessians by class, compared with the law of section 2; None if not examined, or if the module
            does not end in a linear layer with one score for each class.
        note: a warning that raw data were used.
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
    """Raw rows to look at during training.

    Everything it records is computed from raw rows without noise and is NOT covered by ε. Keep it where the rows may be
    seen, and do not publish it with the module. The statement of a watched training says that rows were looked at:
    settings changed after a look were chosen on these rows.

    Args:
        inputs: rows of model inputs.
        targets: their targets.
        class_groups: the group of each target, from 0.
        n_class_groups: the number of groups.
        every: number of steps between two looks.
        gradients: whether to examine gradients too: which units are clipped, the noise relative to each group's part,
            alignment, and the law of section 2 for a linear softmax head.
        users: the user of each row, as for `UserRows`; required to examine gradients if users are the units, because
            users are then clipped. The figures use the watched rows of a user, so watch all of them.
        scored_by: the loss for scoring rows; None for the training loss.
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
            raise InputError(
                f"Expected every and n_class_groups of at least 1, got {every} and {n_class_groups}.", argument=None
            )
        places = np.asarray(class_groups, np.int64)
        if places.size and not 0 <= places.min() <= places.max() < n_class_groups:
            got = f"{places.min()} to {places.max()}"
            raise InputError(
                f"Expected class_groups from 0 to {n_class_groups - 1}, got {got}.", argument="class_groups"
            )
        self.every = every
        self._rows = inputs, targets
        self._class_groups = places
        self._n_class_groups = n_class_groups
        self._units = WatchedRows(inputs, targets, places, users)
        self._gradients = gradients
        self._scored_by = scored_by

    @classmethod
    def by_frequency(cls, inputs: Tensor, targets: Tensor, edges: ArrayLike, **settings: Any) -> Watch:
        """Watch groups of classes by their frequency in the watched targets, the most frequent first.

        Args:
            inputs: rows of model inputs.
            targets: their classes, from 0.
            edges: numbers of targets, descending; group k has classes below edge k - 1 and not below edge k.
            settings: further arguments of `Watch`.
        """
        class_groups = frequency_groups(targets.cpu().numpy(), edges)
        return cls(inputs, targets, class_groups, np.size(edges) + 1, **settings)

    def check(self, units: Units) -> None:
        """Refuse to examine gradients of other units than those that training clips."""
        if self._gradients and isinstance(units, UserRows) != isinstance(self._units.units, UserRows):
            given = "users" if isinstance(self._units.units, UserRows) else "none"
            wanted = "users of the watched rows" if isinstance(units, UserRows) else "no users of the watched rows"
            raise InputError(f"Expected {wanted}, because training clips {units.name}, got {given}.", argument="users")

    def look(self, module: nn.Module, loss: Loss, steps: int, coming: ComingStep) -> Seen:
        """Score the module after so many steps, before a step that clips and adds noise as given.

        What the passes write into the module's buffers is undone, because those are released with it.
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
        """Return alignment and the law, if each row has one class."""
        inputs, targets = self._rows
        if targets.dim() != 1 or targets.is_floating_point():
            return None, None
        some = slice(None, None, -(-len(inputs) // _ALIGNED) or 1)
        aligned = gradient_alignment(module, loss, inputs[some], targets[some])
        return (aligned.within, aligned.across), law_of_head(module, inputs, targets)
