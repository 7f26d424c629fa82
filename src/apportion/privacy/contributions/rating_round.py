"""A user's part in a round on ratings: a contribution of a known shape, which the compiled kernel forms in one pass.

The user solves a small regression of its own ratings on released item parameters. It contributes residuals times
tastes, by task, and a vote on the moments that all tasks share (`linalg.rating_round`). The kernel clips both, cuts
them off to whole steps, and adds whole numbers; the NumPy form gives the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from apportion import linalg
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.contributions.base import Contribution, Kernels, Sums, UserRun, Weighting
from apportion.privacy.contributions.clipped import Output, sealed_output


@dataclass(frozen=True, eq=False)
class RatingParts(Contribution):
    """Rows of residuals times tastes, by task, and votes on shared moments.

    Attributes:
        about: what users are told; released or public.
        weights: how every user weighs its tasks.
        what: of the round, for the statement.
    """

    about: linalg.RatingRound
    weights: Weighting
    what: str

    @property
    def outputs(self) -> tuple[Output, Output]:
        """Rows by task, and votes over users."""
        about = self.about
        return (
            Output(about.width, about.clip_norm, True, f"{self.what}; {self.weights.description}"),
            Output(about.summary_width, about.summary_clip, False, f"{self.what}; {self.weights.description}"),
        )

    def partial(self, users: UserRun, kernels: Kernels) -> Sums:
        """The parts of these users, clipped and in whole steps."""
        rows, votes = self.outputs
        by_task, total = rows.zeros(users.n_tasks), votes.zeros(users.n_tasks)
        of_tasks = self.weights.of_tasks(users.n_tasks)
        weights = self.weights.of(users)._values if of_tasks is None else of_tasks
        kernels.rating_round(users, weights, self.about, by_task, total)
        return by_task, total

    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """The sums with the sensitivity that their clipping gives them."""
        pairs = zip(self.outputs, sums, strict=True)
        return tuple(sealed_output(output, total, self.weights.neighbours) for output, total in pairs)
