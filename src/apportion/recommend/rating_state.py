"""What a ratings fit knows before its first round, and after each; all of it released."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing import evidence, popularity
from apportion.postprocessing.exposure_told import FirstKnown
from apportion.postprocessing.feature_prior import FeaturePosterior
from apportion.postprocessing.running import Beliefs
from apportion.recommend.clip_norms import Residuals
from apportion.recommend.features.ratings_items import Posterior
from apportion.recommend.rating_votes import Known

_LEAST_LEFT = 0.5  # of an offset, after users' own biases took some back
_STARTING_ROUNDS = 2  # whose residuals are not yet those of the model


@dataclass(frozen=True)
class Start:
    """What is known before the first round.

    Attributes:
        n_users: the number of users.
        centre: what is taken off a value.
        exposure: of the tasks.
        popularity: of the tasks.
        covariates: of the prior mean of the tasks.
        residuals: of users, and the clip norm.
        dimension: length of item vectors.
        have_vectors: the tasks whose vectors the rounds learn.
    """

    n_users: float
    centre: float
    exposure: popularity.Exposure
    popularity: popularity.Popularity
    covariates: NDArray[np.float64]
    residuals: Residuals
    dimension: int
    have_vectors: NDArray[np.bool_]

    @property
    def typical_root(self) -> float:
        """The mean of √n^j over users, n^j the ratings of a user."""
        return max(float(self.popularity.mean.sum()) / self.n_users, 1.0)

    def beliefs(self, full_vote: float) -> Beliefs:
        """Return what is known of shared moments; a user's vote counts in full from this total weight."""
        weight = max(float(self.exposure.total.sum()) / self.n_users, 0.0)
        voters = self.n_users * min(weight / full_vote, 1.0)
        return Beliefs.at_start(voters, self.residuals.variance, self.residuals.kept)


@dataclass(frozen=True)
class State:
    """What is known about the tasks after a round."""

    start: Start
    posterior: Posterior
    residual_variance: float
    rounds: tuple[evidence.RoundEvidence, ...]
    beliefs: Beliefs

    @property
    def biases(self) -> FirstKnown:
        """What is known of the items' biases."""
        found = self.posterior
        spread = float(found.prior.covariance[0, 0])
        featured = isinstance(found, FeaturePosterior) and bool(found.prior.has_effects[0])
        return FirstKnown(found.expected[:, 0], spread, found.mean[:, 0], found.variance[:, 0], featured)

    def spreading(self, spread: float) -> Posterior:
        """Return the posterior, with a prior in which biases have this variance."""
        prior: Any = self.posterior.prior
        sizes = np.ones(len(prior.covariance))
        sizes[0] = np.sqrt(spread / max(float(prior.covariance[0, 0]), 1e-12))
        found: Any = replace(self.posterior, prior=replace(prior, covariance=prior.covariance * sizes * sizes[:, None]))
        posterior: Posterior = found
        return posterior

    @property
    def known(self) -> Known:
        """What users are told of the tasks to solve their regressions."""
        return self.posterior.mean, self.posterior.variance, self.residual_variance

    def offset(self, bias_variance: float) -> float:
        """Return what predictions lack, in labels, from mean residuals and from what item biases add up to.

        A user of n ratings takes back n / (n + residual variance / bias variance) of an offset; n is that of a typical
        user. Biases of items as users encounter them should cancel out, since the centre is the mean of users' means.
        What is left of them comes from clipping.

        Args:
            bias_variance: prior variance of a user's bias.
        """
        rows, found = self.start.typical_root**2, self.start.popularity.mean
        taken_back = rows / (rows + self.residual_variance / bias_variance)
        expected = -float(found @ self.posterior.mean[:, 0]) / max(float(found.sum()), 1e-9)
        return evidence.offset(self.rounds[_STARTING_ROUNDS:], max(1 - taken_back, _LEAST_LEFT), expected)
