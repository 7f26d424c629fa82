"""Settings of the ratings recommender. All of them are public."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.recommend.ranges import OF_RATINGS, refuse_outside

CHOICE_SHARE = 0.33
"""The share of the budget for choices, if ranking by choice is asked for and nothing else is given."""
SHARE_FOR_VALUES = 0.25
"""The share for choices if ranking is by value and popularity is clear enough, where nothing else is given."""
_MOST_FOR_CHOICES = 0.7  # the ratings need the rest
_SCALE_OF_ONE = 1.2  # of a vector of one coordinate in a contribution, relative to the bias


@dataclass(frozen=True)
class RatingSettings:
    """Everything that can be tuned; all of it public. Labels are in units of a quarter of the value range.

    Attributes:
        dimension: length of item vectors; None to choose it from released popularity. If items do not stand out of the
            noise, it is 0: then there are up to three rounds, for biases alone.
        rounds: number of rounds after the one for biases.
        growth: ratio of the shares of consecutive rounds.
        exponent: weights over a user's tasks are popularity^-exponent.
        popularity_floor: popularity is floored at this fraction of its mean before that.
        overview_share: share of the budget for the number of users and the mean.
        most_overview_share: the most that these get together, in a second release if there are few users.
        counts_share: share for popularity.
        norms_share: share for the choice of the clip norm; nothing is spent where `clip` is given.
        spread_share: share for how much users differ, which replaces `bias_variance`; 0 to keep that, and nothing is
            spent where there are no votes.
        moments_share: share for the shared moments of all rounds.
        votes_share: share for the votes on users' factors and tastes; 0 to keep the three variances as they are.
        feature_votes_share: share for the votes on users' tastes for features; nothing is spent without features.
        choice_share: the most that is spent on learning which items users choose, whose vectors are features of the
            items then. None for 0.33 if ranking is by choice; else for 0.25 if users have many rows and released
            popularity exceeds its noise by far, and otherwise for 0.
        held_out: fraction of the rows that is kept for these votes, out of everything before them.
        clip: norm of a user's part in a round; None to choose it from a release.
        latent_scale: relative size of the latent coordinates in a contribution, all together; None for one that grows
            with the fourth root of their number from 1.2 on.
        bias_variance: prior variance of a user's bias; where it is learned, what is expected before that.
        scale_variance: prior variance of a user's factor on item biases.
        latent_variance: prior variance of a user's taste, per coordinate.
        start_scale: size of the stand-in item vectors of the first latent round.
        start_level: mean square of the tastes in that round.
        prior_variance: where EM for the prior of item vectors starts; twice that for biases.
        steps: EM steps per round.
        last_steps: EM steps of the last round, if there are vectors. In earlier rounds vectors that are not known yet
            would be taken for noise.
        feature_variance: where the fit of what each feature group is worth starts: its variance among tasks.
        feature_directions: how many directions of the features a user's taste is for, beside the learned vectors.
        taste_variance: prior variance of that taste if users' votes support it, else a tenth of it; the variance itself
            where there are no votes.
        choice_taste_variance: prior variance of a user's taste for what the vectors of choices say of an item.
    """

    dimension: int | None = None
    rounds: int = 8
    growth: float = 1.15
    exponent: float = 0.25
    popularity_floor: float = 0.05
    overview_share: float = 0.003
    most_overview_share: float = 0.05
    counts_share: float = 0.1
    norms_share: float = 0.004
    spread_share: float = 0.02
    moments_share: float = 0.02
    votes_share: float = 0.01
    feature_votes_share: float = 0.01
    choice_share: float | None = None
    held_out: float = 0.1
    clip: float | None = None
    latent_scale: float | None = None
    bias_variance: float = 0.15
    scale_variance: float = 0.15
    latent_variance: float = 1.0
    start_scale: float = 0.1
    start_level: float = 0.4
    prior_variance: float = 0.05
    steps: int = 10
    last_steps: int = 40
    feature_variance: float = 0.01
    feature_directions: int = 32
    taste_variance: float = 0.03
    choice_taste_variance: float = 0.1

    def __post_init__(self) -> None:
        """Refuse numbers with which a fit would fail or mean nothing."""
        refuse_outside(self, OF_RATINGS)

    @classmethod
    def for_budget(cls, mu: float) -> RatingSettings:
        """Settings as a function of the budget alone; one rule turned out to serve all budgets."""
        return cls()

    def row_scales(self, latent: int) -> NDArray[np.float64]:
        """Return the relative size of each coordinate of a row: of an item's bias, then of its vector.

        >>> RatingSettings().row_scales(1), RatingSettings(latent_scale=3.0).row_scales(4)
        (array([1. , 1.2]), array([1. , 1.5, 1.5, 1.5, 1.5]))
        """
        together = _SCALE_OF_ONE * latent**0.25 if self.latent_scale is None else self.latent_scale
        return np.array([1.0] + [together / np.sqrt(max(latent, 1))] * latent)

    def ranking_by(self, what: str) -> RatingSettings:
        """Return the settings, with a share for choices if ranking by choice is asked for.

        >>> RatingSettings().ranking_by("choice").choice_share
        0.33
        """
        if what not in ("value", "choice"):
            raise InputError(f"Expected rank_by to be 'value' or 'choice', got {what!r}.", argument="rank_by")
        if self.choice_share is not None and not 0 <= self.choice_share <= _MOST_FOR_CHOICES:
            problem = f"Expected choice_share from 0 to {_MOST_FOR_CHOICES}, got {self.choice_share}."
            raise InputError(problem, argument="choice_share")
        if what == "choice":
            return replace(self, choice_share=self.choice_share or CHOICE_SHARE)
        return self
