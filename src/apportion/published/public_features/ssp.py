"""Item updates that train an encoder on protected statistics: SSP-c, SSP-i, and anything in between.

SSP-c releases the statistics of all items once per round; any number of epochs on them costs nothing more. SSP-i
releases them again for every step, so the budget of a round is divided by the number of steps; `resamples` is the
number of releases. Mini-batches of SSP-c are over items, which are public. Mini-batches of SSP-i, if any, are Poisson
samples of the *users*, and are accounted as such; a sample of examples would not amplify privacy for users.

**+** With `own`, the encoder gives the prior mean of an item's vector. After training, each item moves from it as far
as its own statistics say, and the encoder is trained on the quadratic that is left when items are solved this way.

Krichene et al., "Private Learning with Public Features" (2024), Algorithms 2 to 5.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import nn

from apportion.allocation import Expected
from apportion.data.sparse_rows import SparseRows
from apportion.engines import Engine
from apportion.errors import InputError
from apportion.privacy import Session
from apportion.published.public_features.encoders import FeatureBatch
from apportion.published.public_features.head import check_head, of_head, on_head
from apportion.published.public_features.statistics import (
    Released,
    Surrogate,
    noise_aware_surrogate,
    plain_surrogate,
    release_statistics,
    with_unobserved,
)
from apportion.published.public_features.training import EncoderTrainer, Training, encode
from apportion.published.skew.updates import Round, Shares, released_user_gram

Floats = NDArray[np.float64]
_LEAST_VARIANCE = 1e-6
_DEFAULT_TRAINING = Training()


def _plain(value: Any) -> Any:
    """Return a setting as numbers and text, for storage."""
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {"part": type(value).__name__, **asdict(value)}
    return repr(value)


@dataclass(frozen=True, eq=False)
class EncoderUpdate:
    """The common part of updates that train an encoder.

    Attributes:
        encoder: maps a `FeatureBatch` to item vectors; a fit trains a copy of it.
        rows: the items' features, one row per item; given by the estimator.
    """

    encoder: nn.Module
    rows: SparseRows | None = field(default=None, kw_only=True)

    def for_items(self, rows: SparseRows) -> Self:
        """Return the same update for these items, with a copy of the encoder to train."""
        if not any(parameter.requires_grad for parameter in self.encoder.parameters()):
            raise InputError(
                f"Expected an encoder with parameters to train, got {type(self.encoder).__name__}.", argument="encoder"
            )
        return replace(self, encoder=copy.deepcopy(self.encoder), rows=rows)

    def start(self, width: int) -> Floats:
        """Return the encoder's initial vectors, centred, each coordinate of unit variance over items if it varies."""
        try:
            vectors = self.encoded()
        except (TypeError, AttributeError) as error:  # whatever a module raises for input that it does not accept
            raise InputError(
                f"Expected an encoder that maps a FeatureBatch to vectors; {type(self.encoder).__name__} "
                f"raised {str(error).splitlines()[0]!r}; wrap a module that takes a plain tensor in "
                "DenseEncoder.",
                argument="encoder",
            ) from error
        if vectors.ndim != 2 or vectors.shape[1] != width:
            got = vectors.shape[1] if vectors.ndim == 2 else f"an array of shape {vectors.shape}"
            raise InputError(
                f"Expected an encoder with {width} outputs for these settings, got {got}.", argument="encoder"
            )
        vectors = vectors - vectors.mean(axis=0)
        return np.asarray(vectors / np.maximum(vectors.std(axis=0), 1e-12))

    def encoded(self) -> Floats:
        """Return the encoder's current output for every item."""
        return encode(self.encoder, FeatureBatch.for_encoder(self.encoder, self.known_rows))

    @property
    def known_rows(self) -> SparseRows:
        """The items' features, which the estimator must have given."""
        if self.rows is None:
            raise InputError("This update needs items; use it in an EncoderMinimisation.", argument=None)
        return self.rows

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings as numbers and text, for the record."""
        shown: dict[str, Any] = {"part": type(self).__name__, "encoder": type(self.encoder).__name__}
        for name in self.__dataclass_fields__:
            if name not in ("encoder", "rows", "past"):
                held = getattr(self, name)
                shown[name] = _plain(held)
        return shown


@dataclass(frozen=True, eq=False)
class EncoderStatistics(EncoderUpdate):
    """SSP-c with `resamples` = 1, SSP-i with as many resamples as steps.

    Attributes:
        training: epochs, batches of items, learning rate.
        resamples: number of releases of a round's statistics, each with its part of the round's budget.
        own: whether every item may depart from the encoder's vector, as its own statistics say.
        departure: initial variance of that departure in a round; it is re-estimated from released values.
        noise_aware: weigh statistics by their known noise and shrink matrices towards their common shape; without it,
            the quadratic is the paper's, projected and with a `ridge`.
        residual_variance: the variance of a label around its prediction, for the noise-aware quadratic.
        label_bound: labels are clipped to this.
        gram_share: fraction of a release's budget for the matrices.
        users_share: fraction of a round's budget for Σ_j u uᵀ over all users, for clicks.
        ridge: penalty of the plain quadratic, in standard deviations of the noise of a matrix's diagonal.
        memory: weight of the quadratics of earlier rounds, each round's relative to the next: earlier releases remain
            evidence as long as user vectors have not rotated much.
        head: train only on this fraction of the items, the most popular by released counts, with all of the users'
            weight on them; the others follow the encoder.
        sampling: probability that a user takes part in a release; below 1 it is accounted as Poisson sampling.
    """

    training: Training = _DEFAULT_TRAINING
    resamples: int = 1
    own: bool = True
    departure: float = 0.05
    noise_aware: bool = True
    residual_variance: float = 0.8
    label_bound: float = 0.7
    gram_share: float = 0.1
    users_share: float = 0.02
    ridge: float = 4.0
    memory: float = 0.5
    head: float = 1.0
    sampling: float = 1.0
    past: list[Surrogate] = field(default_factory=list, repr=False, kw_only=True)

    def for_items(self, rows: SparseRows) -> Self:
        """Return the same update for these items, with a copy of the encoder to train and an empty memory."""
        return replace(super().for_items(rows), past=[])

    def shares(self, *, clicks: bool) -> dict[str, float]:
        """Return the shares: matrices and vectors of all items for each resample, and the users' matrix for clicks."""
        if self.resamples < 1:
            raise InputError(
                f"Expected at least 1 release of the statistics per round, got {self.resamples}.", argument="resamples"
            )
        if not 0 < self.gram_share < 1:
            raise InputError(
                f"Expected gram_share strictly between 0 and 1, got {self.gram_share}.", argument="gram_share"
            )
        if not 0 < self.sampling <= 1:
            raise InputError(f"Expected a sampling probability in (0, 1], got {self.sampling}.", argument="sampling")
        check_head(self.head)
        if not 0 <= self.memory <= 1 or not self.departure > 0:
            raise InputError(
                f"Expected memory in [0, 1] and departure > 0, got {self.memory} and {self.departure}.", argument=None
            )
        users = {"users": self.users_share} if clicks else {}
        rest = (1 - sum(users.values())) / self.resamples
        parts: dict[str, float] = {}
        for k in range(self.resamples):
            parts[f"step {k + 1}: matrices"] = rest * self.gram_share
            parts[f"step {k + 1}: vectors"] = rest * (1 - self.gram_share)
        return {**parts, **users}

    def __call__(self, this_round: Round, session: Session, engine: Engine, shares: Shares) -> Floats:
        """Release, train, release again if asked to, and finally let the items depart from the encoder."""
        this_round, kept = on_head(this_round, self.head)
        unobserved = None
        if this_round.unobserved:
            shared = released_user_gram(this_round, session, engine, shares["users"])
            typical = this_round.expected.typical[kept]
            unobserved = partial(with_unobserved, shared=shared, unobserved=this_round.unobserved, typical=typical)
        trainer = EncoderTrainer(
            self.encoder, self.known_rows, replace(self.training, seed=self.training.seed + this_round.number)
        )
        steps = self.training.steps(len(self.known_rows))
        precision = np.full(this_round.items.shape[1], 1 / self.departure)
        items = this_round.items
        for k in range(self.resamples):
            pair = (shares[f"step {k + 1}: matrices"], shares[f"step {k + 1}: vectors"])
            draw = k + 1 if self.resamples > 1 else None
            released = release_statistics(this_round, session, engine, pair, self.label_bound, draw)
            surrogate = self._surrogate(
                released.of(kept), of_head(this_round.expected, kept), this_round.items[kept], unobserved
            )
            surrogate = self._remembered(surrogate.spread(kept), last=k + 1 == self.resamples)
            taken = steps * (k + 1) // self.resamples - steps * k // self.resamples
            items, precision = self._train(trainer, surrogate, taken, precision)
        return items

    def _surrogate(
        self, released: Released, expected: Expected, items: Floats, unobserved: Callable[[Floats], Floats] | None
    ) -> Surrogate:
        if not self.noise_aware:
            return plain_surrogate(released, self.ridge, unobserved)
        square = float(np.square(items).mean())
        return noise_aware_surrogate(released, expected, self.residual_variance, square, unobserved)

    def _remembered(self, surrogate: Surrogate, *, last: bool) -> Surrogate:
        """Return this quadratic plus the remaining weight of earlier ones. The last quadratic of a round is kept."""
        if not self.memory:
            return surrogate
        if self.past:
            before = self.past[-1]
            surrogate = Surrogate(
                surrogate.curvature + self.memory * before.curvature, surrogate.slope + self.memory * before.slope
            )
        if last:
            self.past[:] = [surrogate]
        return surrogate

    def _train(
        self, trainer: EncoderTrainer, surrogate: Surrogate, steps: int, precision: Floats
    ) -> tuple[Floats, Floats]:
        """Return item vectors, and the precision of their departures from the encoder, re-estimated half-way."""
        if not self.own:
            trainer.descend(surrogate, steps)
            return trainer.encoded(), precision
        for part in (steps // 2, steps - steps // 2):
            conditioned = surrogate.under(precision)
            trainer.descend(conditioned.profiled(), part)
            means = trainer.encoded()
            items, variances = conditioned.corrected(means)
            spread = np.maximum((np.square(items - means) + variances).mean(axis=0), _LEAST_VARIANCE)
            precision = 1 / spread
        return surrogate.corrected(means, precision)[0], precision
