"""What a session refuses before it charges: statistics, shares and plans that do not fit it.

A refusal here costs nothing: it depends only on the arguments and on what the session declared when it was opened.
"""

from __future__ import annotations

from typing import Any

from apportion.errors import BudgetError, InputError
from apportion.privacy.budget import Budget, Share
from apportion.privacy.mechanisms import Mechanism, PlannedMechanism, PlannedShare, Statistic
from apportion.privacy.neighbours import Neighbours
from apportion.privacy.ranks import RankScores


def require_statistic(
    name: str, mechanism: Mechanism[Any], statistic: Statistic, neighbours: Neighbours, exact: bool
) -> None:
    """Refuse a statistic of the wrong class, for other neighbours, or, in exact arithmetic, off the lattice."""
    if not isinstance(statistic, mechanism.takes):
        taken, got = mechanism.takes.__name__, type(statistic).__name__
        raise BudgetError(f"Release {name!r} ({mechanism.words}) needs class {taken}, got {got}.")
    require_neighbours(name, statistic.neighbours, neighbours)
    if not isinstance(statistic, RankScores) and statistic.in_shares and not mechanism.in_shares:
        raise BudgetError(
            f"Release {name!r} ({mechanism.words}) needs the sum itself, and clients send it with Gaussian noise only."
        )
    if not exact:
        return
    if not mechanism.exact:
        raise BudgetError(
            f"Release {name!r} ({mechanism.words}) has no form in exact arithmetic; use noise that is not exact."
        )
    if isinstance(statistic, RankScores) or statistic.step is None:
        raise BudgetError(f"Release {name!r} is not a sum on a lattice, which exact arithmetic needs.")


def require_share(mechanism: Mechanism[Any], share: Share | PlannedShare[Any], budget: Budget) -> None:
    """Refuse a share planned for another mechanism, or of another kind of budget."""
    asked = mechanism if isinstance(mechanism, PlannedMechanism) else None
    if asked != (share.mechanism if isinstance(share, PlannedShare) else None):
        raise BudgetError(f"Expected a share that this session planned for {mechanism.words}, got {share}.")
    if isinstance(share, Share) and share.of.pure != budget.pure:
        raise BudgetError(f"Expected a share of this session's budget, got {share}.")
    if budget.pure and not mechanism.pure:
        raise InputError(
            f"Expected a delta above 0, because {mechanism.words} noise needs one, got 0.", argument="delta"
        )


def require_plannable(mechanism: PlannedMechanism, steps: int, budget: Budget, neighbours: Neighbours) -> None:
    """Refuse a plan that has no steps, has a delta of 0, or is for neighbours for which the mechanism has no cost."""
    if steps < 1:
        raise BudgetError(f"Expected at least 1 step for releases by {mechanism.words}, got {steps}.")
    if budget.pure:
        raise BudgetError(f"Expected a delta above 0 for releases by {mechanism.words}, got 0.")
    if neighbours not in mechanism.relations:
        require_neighbours(f"by {mechanism.words}", mechanism.relations[0], neighbours)


def require_neighbours(name: str, stated: Neighbours, neighbours: Neighbours) -> None:
    """Refuse a release whose sensitivity is for other neighbours than the session's."""
    if stated is not neighbours and stated != neighbours:
        raise BudgetError(
            f"Release {name!r} has a sensitivity for the neighbours {stated.relation!r}; this session has the "
            f"neighbours {neighbours.relation!r}."
        )
