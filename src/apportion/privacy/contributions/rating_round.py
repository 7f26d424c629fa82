"""A user's part in one round on ratings, in a known form that the compiled kernel computes in one pass.

The user solves a small regression of its own ratings on released item parameters. It contributes residuals times
tastes, by task, and a vote on the moments that all tasks share (`linalg.rating_round`). The kernel clips both,
truncates them to whole steps, and adds whole numbers. The NumPy reference gives the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from apportion import linalg
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.contributions.base import Contribution, Kernels, Sums, UserRun, Weighting
from apportion.privacy.contributions.clipped import Output, sealed_output


@dataclass(frozen=True, eq=False)
class RatingParts(Contribution):
    """Residuals times tastes, by task, and votes on shared moments.

    Attributes:
        round: the numbers that users receive in this round; released or public.
        weights: how every user weighs its tasks.
        what: the round in words, for the statement.
    """

    round: linalg.RatingRound
    weights: Weighting
    what: str

    @property
    def outputs(self) -> tuple[Output, Output]:
        """The rows by task, and the votes over users."""
        settings = self.round
        return (
            Output(settings.width, settings.clip_norm, True, f"{self.what}; {self.weights.description}"),
            Output(settings.summary_width, settings.summary_clip, False, f"{self.what}; {self.weights.description}"),
        )

    def partial(self, users: UserRun, kernels: Kernels) -> Sums:
        """Return the sums over these users, clipped and in whole steps."""
        rows, votes = self.outputs
        by_task, total = rows.zeros(users.n_tasks), votes.zeros(users.n_tasks)
        of_tasks = self.weights.of_tasks(users.n_tasks)
        weights = self.weights.of(users)._values if of_tasks is None else of_tasks
        kernels.rating_round(users, weights, self.round, by_task, total)
        return by_task, total

    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """Seal the sums with the sensitivity that their clipping gives them."""
        pairs = zip(self.outputs, sums, strict=True)
        return tuple(sealed_output(output, total, self.weights.neighbours) for output, total in pairs)
