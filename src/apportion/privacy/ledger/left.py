"""What is left of an account: in numbers, in words, and as part of its status."""

from __future__ import annotations

from apportion.privacy import gaussian
from apportion.privacy.budget import Budget
from apportion.privacy.ledger.chain import Definition
from apportion.privacy.ledger.filters import Amounts, Filter, below, root_below, to_text
from apportion.privacy.ledger.standing import Standing
from apportion.privacy.ledger.status import ReservedPart, Status


class BeyondTotalError(Exception):
    """An account cannot cover an entry; it never reaches a caller of the account.

    Args:
        before: the state of the account without the entry.
    """

    def __init__(self, before: Standing) -> None:
        super().__init__()
        self.before = before


def left(adds: Filter, taken: Amounts) -> tuple[float | None, float]:
    """Return the μ of one more Gaussian release and the ε of one more session, rounded down."""
    if adds.budget.pure:
        return None, max(0.0, below(adds.totals[0] - taken[0]))
    mu = root_below(adds.gaussian_left(taken))
    if mu >= adds.budget.mu:
        return mu, adds.budget.epsilon
    return mu, gaussian.epsilon_of(mu, adds.budget.noise_delta) * (1 - 1e-11)


def left_in_words(adds: Filter, standing: Standing, wanted: Budget | None = None) -> str:
    """Say what is left, and what is set aside for runs that have not ended."""
    mu, epsilon = left(adds, standing.taken)
    said = f"epsilon {epsilon:.6g} of {adds.budget.epsilon:g} is left"
    if mu is not None:
        whole = root_below(adds.gaussian_left(adds.nothing))
        worth = f"worth epsilon {epsilon:.6g} at delta {adds.budget.delta:g} in a new session"
        said = f"mu {mu:.6g} of {whole:.6g} is left, {worth}{_pure_in_words(adds, standing, wanted, mu)}"
    return said + _keys_in_words(adds, standing, wanted) + _held_in_words(adds, standing)


def _pure_in_words(adds: Filter, standing: Standing, wanted: Budget | None, mu: float) -> str:
    """Say what is left at a δ of 0, if a session asks for that; one with a δ costs an account of Gaussians less."""
    if wanted is None or not wanted.pure:
        return ""
    at_most, delta = f", or epsilon {gaussian.pure_of_mu(mu):.4g} at delta 0", adds.budget.noise_delta
    fits = adds.covers(Budget(wanted.epsilon, delta), standing.taken)
    return at_most + (f"; one of epsilon {wanted.epsilon:g} with Gaussian noise, at delta {delta:g}, fits" * fits)


def _keys_in_words(adds: Filter, standing: Standing, wanted: Budget | None) -> str:
    """Say what is left of the δ for lists, if a session asks for another part than the account keeps."""
    kept = adds.budget.keys_delta
    if wanted is None or wanted.keys_delta == kept:
        return ""
    rest = max(0.0, below(adds.totals[-1] - standing.taken[-1])) if kept else 0.0
    return (
        f"; it keeps {kept:g} of delta for lists of private keys ({rest:g} is left), the session {wanted.keys_delta:g}"
    )


def _held_in_words(adds: Filter, standing: Standing) -> str:
    parts = [f"epsilon {adds.spent_epsilon(each.left):.6g} by entry {each.number}" for each in standing.held]
    if not parts:
        return ""
    listed = ", ".join(parts)
    return f"; set aside for runs that have not ended: {listed}; `apportion ledger give-back` frees that of a dead one"


def status_of(definition: Definition, standing: Standing) -> Status:
    """Return the state of an account after an entry."""
    adds, spent = definition.filter, standing.spent
    left_mu, left_epsilon = left(adds, standing.taken)
    return Status(
        definition.name,
        adds.kind,
        adds.budget.epsilon,
        adds.budget.delta,
        definition.neighbours.unit,
        definition.neighbours.relation,
        definition.window,
        definition.owner,
        definition.created,
        standing.number,
        standing.hash,
        adds.spent_epsilon(spent),
        adds.spent_mu(spent),
        left_epsilon,
        left_mu,
        adds.measures,
        tuple(to_text(spent)),
        tuple(to_text(adds.totals)),
        tuple(
            ReservedPart(each.number, each.run, each.at, adds.spent_epsilon(each.left), tuple(to_text(each.left)))
            for each in standing.held
        ),
    )
