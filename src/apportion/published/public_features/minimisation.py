"""Alternating minimisation with an encoder of public features on the item side, and biases for ratings.

The rounds, the plan of the budget and the users' side are those of `AlternatingMinimisation`. New here: item vectors
start as the encoder's output and are updated by training it. For ratings, a user j solves for a bias b_j and a taste
q_j on features (1, item's bias, item's vector), so that items are fitted to the residual y − b_j with user vectors (κ,
q_j). A user's bias never leaves the user; an item's bias is the first coordinate of its vector.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion.allocation import Allocation, Expected
from apportion.data import Interactions
from apportion.data.sparse_rows import SparseRows
from apportion.data.users import Users
from apportion.engines import Engine, LocalEngine
from apportion.errors import InputError
from apportion.privacy import NoiseSource, Session, Statement
from apportion.privacy.contributions import Weighting
from apportion.published.public_features.user_side import BiasedVectors, FoldedIn, UnbiasedLabels
from apportion.published.skew.alternating import AlternatingMinimisation, Kind, _Fit
from apportion.published.skew.updates import ItemUpdate, Round
from apportion.recommend.als import FIXED, Progress
from apportion.recommend.model import ClickModel, FoldIn, RatingModel

Floats = NDArray[np.floating[Any]]


class EncoderMinimisation(AlternatingMinimisation):
    """Alternating minimisation under user-level differential privacy, with public features on the item side.

    Args:
        epsilon: ε of the whole fit.
        delta: δ of the whole fit.
        features: public features of the items: an `ItemFeatures`, or rows in the order of the tasks; None for none.
        update: how items are updated: `EncoderStatistics`, `EncoderGradient`, or an update without an encoder.
        kind: "ratings" to predict values, "clicks" to rank tasks.
        allocation: how each user's sensitivity is divided over its tasks; see `apportion.allocation`.
        dimension: length of user vectors; items of ratings have one coordinate more, their bias.
        rounds: number of alternations.
        growth: ratio of the budgets of consecutive rounds.
        user_norm: user vectors are clipped to this norm.
        bias_scale: κ, the coordinate of a user vector that meets an item's bias.
        user_ridge: ridge of the users' own regressions.
        bias_ridge: ridge of a user's bias there.
        start_scale: size of the first item vectors.
        unobserved: for clicks, the weight of every pair towards 0 relative to an observed one.
        overview_share: share of the budget for the number of users and the mean value.
        counts_share: share for what the allocation releases.
        n_users: the number of users, declared public; None to release it with noise.
        value_range: the public scale of the values.
        public: further sentences about public assumptions, for the statement.
        window: the time span of the data, for the statement.
        tuning: how settings were chosen, for the statement.
        noise: `"secure"` (default, from the operating system), `"exact"` (exact arithmetic as well), or a source.
        engine: where sums are formed; None for this machine's processors.
        random_state: seed of the first item vectors of an update without an encoder.

    Privacy: (ε, δ)-DP for adding or removing one user with all rows, for everything that `model_` and `encoder_` hold.
    The list of tasks, their features and the value range are public. With an allocation for a public graph it is for
    replacing one user's values.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        update: ItemUpdate,
        features: Any = None,
        kind: Kind = "ratings",
        allocation: Allocation | None = None,
        dimension: int = 5,
        rounds: int = 5,
        growth: float = 1.2,
        user_norm: float = 1.5,
        bias_scale: float = 0.5,
        user_ridge: float = 1.0,
        bias_ridge: float = 2.0,
        start_scale: float = 0.3,
        unobserved: float = 0.1,
        overview_share: float = 0.005,
        counts_share: float = 0.1,
        n_users: int | None = None,
        value_range: tuple[float, float] = (1.0, 5.0),
        public: Sequence[str] = (),
        window: str = "not declared",
        tuning: str | None = None,
        noise: NoiseSource | str | None = None,
        engine: Engine | None = None,
        random_state: int = 0,
    ) -> None:
        super().__init__(
            epsilon, delta, kind=kind, update=update, allocation=allocation, dimension=dimension, rounds=rounds,
            growth=growth, user_norm=user_norm, user_ridge=user_ridge, start_scale=start_scale, unobserved=unobserved,
            overview_share=overview_share, counts_share=counts_share, n_users=n_users, value_range=value_range,
            public=public, window=window, tuning=tuning, noise=noise, engine=engine, random_state=random_state,
        )  # fmt: skip
        self.features = features
        self.bias_scale = bias_scale
        self.bias_ridge = bias_ridge

    def fit(self, data: Interactions, *, session: Session | None = None, progress: Progress | None = None) -> Self:
        """Spend the budget on the data. Afterwards `model_` and `encoder_` may be released with `statement_`.

        A given session brings its own budget, noise and window, which replace those of the estimator.
        """
        self._check(data)
        rows = rows_of_tasks(self.features, data)
        session = self._declared(session, data, self._public_values())
        fit = self._making(self, data, session, self._engine_or(LocalEngine(), session), rows)
        items = fit.run(np.random.default_rng(self.random_state), progress)
        self.statement_ = session.statement()
        self.model_ = fit.model(items, self.statement_)
        self.encoder_ = fit.encoder
        return self

    @property
    def _making(self) -> type[_EncoderFit]:
        """The class that makes the fit."""
        return _EncoderFit

    def _check(self, data: Interactions) -> None:
        super()._check(data)
        for name in ("bias_scale", "bias_ridge"):
            if not getattr(self, name) > 0:
                raise InputError(f"Expected {name} > 0, got {getattr(self, name)}.", argument=name)

    def _public_values(self) -> list[str]:
        this_round = [] if self.features is None else [getattr(self.features, "sentence", "the features of the tasks")]
        if getattr(self.update, "encoder", None) is not None:
            this_round.append("the encoder as given: its form, its initial parameters and everything it holds")
        return [*super()._public_values(), *this_round]


class _EncoderFit(_Fit):
    """One fit like its parent's, with initial vectors from the encoder, and biases if values are predicted."""

    def __init__(
        self, chosen: EncoderMinimisation, data: Interactions, session: Session, engine: Engine, rows: SparseRows
    ) -> None:
        super().__init__(chosen, data, session, engine)
        self._biased = chosen
        self._rows = rows
        make = getattr(self._update, "for_items", None)
        if make is not None:
            self._update = make(rows)
        start = getattr(self._update, "start", None)  # here, so that an encoder that does not fit costs nothing
        self._started = None if start is None else start(chosen.dimension + (0 if self._clicks else 1))

    @property
    def encoder(self) -> Any:
        """Return a copy of the trained encoder, in evaluation mode; None if the update has none."""
        made = copy.deepcopy(getattr(self._update, "encoder", None))
        return None if made is None else made.eval()

    def _round(self, k: int, weights: Weighting, expected: Expected, items: NDArray[np.float64]) -> Round:
        if k == 0:
            items = self._first(items)
        if self._clicks:
            return super()._round(k, weights, expected, items)
        solve = FoldedIn(self._fold_in(items), self._labels())
        return self._biased_round(k, weights, expected, items, self._users, BiasedVectors(solve, 2, *self._bounds))

    @property
    def _bounds(self) -> tuple[float, float]:
        """Return the first entry of a user's vector, and the bound on its taste."""
        return self._biased.bias_scale, self._biased.user_norm

    def _biased_round(
        self,
        k: int,
        weights: Weighting,
        expected: Expected,
        items: NDArray[np.float64],
        users: Users,
        rows: BiasedVectors,
    ) -> Round:
        """Return a round on ratings, with labels minus each user's own bias."""
        return Round(
            users=users,
            weights=weights,
            expected=expected,
            rows=rows,
            labels=UnbiasedLabels(self._labels(), rows, self._engine.kernels),
            items=items,
            unobserved=0.0,
            number=k + 1,
            kernels=self._engine.kernels,
        )

    def _first(self, items: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the encoder's initial vectors instead of random ones; biases start at 0."""
        if self._started is not None:
            chosen = self._biased
            scaled = chosen.start_scale / np.sqrt(chosen.dimension) * self._started
            if scaled.any():
                items = scaled if self._clicks else scaled[:, 1:]
        if self._clicks:
            return items
        return np.concatenate([np.zeros((len(items), 1)), items], axis=1)

    def _fold_in(self, items: Floats) -> FoldIn:
        """Return a user's own regression; for ratings on (1, the item's bias with factor 1, the item's vector)."""
        if self._clicks:
            return super()._fold_in(items)
        chosen = self._biased
        vectors = np.asarray(items, np.float32)
        constant = np.ones((len(vectors), 1), np.float32)
        features = np.concatenate([constant, np.float32(chosen.bias_scale) * vectors[:, :1], vectors[:, 1:]], axis=1)
        precision = np.array([chosen.bias_ridge, FIXED, *[chosen.user_ridge] * (vectors.shape[1] - 1)], np.float32)
        prior_mean = np.eye(len(precision), dtype=np.float32)[1]
        return FoldIn(features, self._observation_weights, np.diag(precision), precision * prior_mean)

    def model(self, items: NDArray[np.float64], statement: Statement) -> RatingModel | ClickModel:
        """Return the public model; tasks are compared by their vectors without bias, and the encoder maps new items."""
        from apportion.published.public_features.encoder_maps import new_item_map

        made = super().model(items, statement)
        if not self._clicks:
            made.vectors = np.ascontiguousarray(made.vectors[:, 1:])
        chosen = self._biased
        update = getattr(self._update, "settings", made.settings.get("update"))
        made.settings |= {"update": update, "bias_scale": chosen.bias_scale, "bias_ridge": chosen.bias_ridge}
        scale = None if self._clicks else chosen.bias_scale
        popularity = np.maximum(self._popularity, 0)
        made.feature_map, made.no_map = new_item_map(
            self._update, chosen.features, self._rows, popularity, items.shape[1], scale
        )
        return made


def rows_of_tasks(features: Any, data: Interactions) -> SparseRows:
    """Return one row of features per task, in the order of the data's codes."""
    if features is None:
        return SparseRows.from_entries([], [], [], data.n_tasks, ())
    rows: SparseRows = features if isinstance(features, SparseRows) else features.for_tasks(data.task_ids)
    if len(rows) != data.n_tasks:
        raise InputError(
            f"Expected features of {data.n_tasks} tasks, one row each, got {len(rows)}.", argument="features"
        )
    return rows
