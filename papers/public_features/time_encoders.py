"""How the time of both methods grows with the encoder: what Proposition 2 calls c, measured.

A step of AM-DPSGD forms one gradient per user, as long as the encoder has parameters, and clips it; AM-SSP sums up
statistics whose size is that of the output, and trains on them an item at a time. Where a whole run of AM-DPSGD would
take too long, some of its steps are timed and their cost is multiplied by the number of steps; rows say so.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from apportion.data.sparse_rows import SparseRows
from apportion.published.public_features.user_gradients import parameter_count
from papers.public_features import time_rows, timing
from papers.public_features.movielens import Bench

_MANY = 50_000  # parameters from which on users are worked on some at a time, to save memory
_FEW_OBSERVATIONS = 20_000


@dataclass(frozen=True)
class Encoder:
    """An encoder to compare both methods on.

    Attributes:
        name: for the table.
        rows: features of the items.
        hidden: width of the hidden layer; that of the output if None.
        module: whether it is a module of one's own, whose gradients go through Opacus.
        timed: how many steps of AM-DPSGD are timed; None for a whole run.
    """

    name: str
    rows: SparseRows
    hidden: int | None = None
    module: bool = False
    timed: int | None = None


@dataclass(frozen=True)
class Compared:
    """Both methods on one encoder.

    Attributes:
        encoder: its name.
        parameters: how many AM-DPSGD's has.
        round_seconds: of a round of AM-SSP.
        step_seconds: of a step of AM-DPSGD.
        target: the error to be reached: the least of any AM-DPSGD so far.
        statistics_seconds: of AM-SSP until then; None if it never got there.
        gradient_seconds: of a run of AM-DPSGD.
        gradient_error: its least error; None where only steps were timed.
        whole_run: whether it was run as a whole.
    """

    encoder: str
    parameters: int
    round_seconds: float
    step_seconds: float
    target: float
    statistics_seconds: float | None
    gradient_seconds: float
    gradient_error: float | None
    whole_run: bool

    @property
    def times_less(self) -> float | None:
        """How many times longer AM-DPSGD takes."""
        return None if self.statistics_seconds is None else round(self.gradient_seconds / self.statistics_seconds, 1)

    def stored(self) -> dict[str, Any]:
        """All of it, for a file."""
        return {**asdict(self), "times_less": self.times_less}


def compare(bench: Bench, encoder: Encoder, target: float, seed: int = 0) -> Compared:
    """Time both methods; `target` is lowered if this AM-DPSGD gets below it."""
    own = Bench(bench.kind, bench.train, bench.history, bench.target, encoder.rows)
    ours = timing.evolution(own, _made(time_rows.SPEED, encoder, seed))
    chosen = _made(time_rows.TUNED, encoder, seed)
    n_parameters = parameter_count(chosen.update.encoder)
    theirs = timing.evolution(own, chosen)
    rounds, steps = time_rows.steps_of(time_rows.TUNED)
    if encoder.timed is None:
        least = timing.best(theirs)
        step_seconds = timing.per_round(theirs)[0] / steps
        taken, error, target = least.seconds, least.error, min(target, least.error)
    else:
        step_seconds = theirs[-1].seconds / encoder.timed
        taken, error = rounds * steps * step_seconds, None
    return Compared(
        encoder=encoder.name,
        parameters=n_parameters,
        round_seconds=timing.per_round(ours)[0],
        step_seconds=step_seconds,
        target=target,
        statistics_seconds=timing.time_to(ours, target),
        gradient_seconds=taken,
        gradient_error=error,
        whole_run=encoder.timed is None,
    )


def _made(name: str, encoder: Encoder, seed: int) -> Any:
    many = encoder.module or encoder.rows.n_columns * (encoder.hidden or 1) > _MANY
    only = encoder.timed if name == time_rows.TUNED else None
    return time_rows.estimator(
        name,
        encoder.rows,
        seed,
        hidden=encoder.hidden,
        module=encoder.module,
        only=only,
        chunk=_FEW_OBSERVATIONS if many else 200_000,
    )
