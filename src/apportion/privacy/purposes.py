"""What a release is for: a purpose with a stable key and words for pages, and its place in the fit.

Statements and cards store keys. Pages explain a release and choose its colour by its purpose, never by its name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from apportion.errors import InputError


class Purpose(Enum):
    """What a release measures and what the fit does with it. The value is the key.

    Attributes:
        label: short, for the name of the release.
        words: one sentence for pages.
    """

    label: str
    words: str

    def __new__(cls, key: str, label: str, words: str) -> Purpose:
        """Create a member whose value is its key."""
        member = object.__new__(cls)
        member._value_ = key
        member.label = label
        member.words = words
        return member

    # how many there are
    NUMBER_OF_USERS = (
        "number-of-users",
        "number of users",
        "About how many users there are: the scale of everything else.",
    )
    NUMBER_OF_EXAMPLES = "number-of-examples", "number of examples", "About how many examples there are."
    OVERVIEW = (
        "overview",
        "overview",
        "About how many users there are and what they give on average: the scale of everything else.",
    )
    TOTAL_WEIGHT = "total-weight", "total weight", "About how much all users weigh together. It turns sums into means."
    SIZES = (
        "sizes",
        "sizes",
        "How many users have about how many rows. From this the largest weight of one user is chosen.",
    )
    NORMS = (
        "norms",
        "norms",
        "How much of a user's part each clip norm would cut off. From this the norm is chosen.",
    )
    # how much data each item or task has
    POPULARITY = (
        "popularity",
        "popularity",
        "How popular each item is, so that rare items can be given more weight.",
    )
    ITEM_LIST = (
        "item-list",
        "list of items and popularity",
        "Which items there are, of those that enough users have, and how popular each is.",
    )
    GROUPS_OF_USERS = (
        "groups-of-users",
        "groups of users",
        "How many users are in about how many groups. From this the weight of a user in each of its groups is chosen.",
    )
    GROUP_LIST = (
        "group-list",
        "list of groups and their users",
        "Which groups there are, of those that enough users are in, and how many users each has.",
    )
    FIRST_KEYS = (
        "first-keys",
        "keys, first round",
        "Which keys many users hold. The second round leaves them out, and keys that have hardly a chance.",
    )
    MORE_KEYS = "more-keys", "keys, second round", "Which further keys enough users hold."
    EXPOSURE = "exposure", "exposure", "How much data each task has, which sets the size of its steps."
    # recommenders
    ITEM_SUMS = "item-sums", "item sums", "What the users of each item say about it, summed: the signal itself."
    ITEM_VECTORS = "item-vectors", "item vectors", "What the users of each item say about it: the signal itself."
    ITEM_MATRICES = "item-matrices", "item matrices", "How precisely the users of an item determine its vector."
    ITEM_CURVATURES = "item-curvatures", "item curvatures", "How precisely the users of an item determine its vector."
    ITEM_SLOPES = "item-slopes", "item slopes", "Where the users of each item pull its vector."
    ITEM_GRADIENTS = "item-gradients", "item gradients", "The direction in which every item vector moves next."
    USERS_MATRIX = "users-matrix", "users' matrix", "How the vectors of all users spread, for pairs without a click."
    SHARED_MOMENTS = (
        "shared-moments",
        "shared moments",
        "How tastes vary over all users: the shape that rare items borrow.",
    )
    USER_SPREAD = (
        "user-spread",
        "differences among users",
        "How much users differ in their mean ratings. From this it follows how far a user's own mean is trusted.",
    )
    VOTES = (
        "votes",
        "votes",
        "Which settings predict users' held-out rows best. Later rounds use these settings.",
    )
    FEATURE_VOTES = (
        "feature-votes",
        "votes on features",
        "Whether tastes for the items' public features predict users' held-out rows. If not, they hardly count.",
    )
    CHOICE_VECTORS = (
        "choice-vectors",
        "choices",
        "Which items the same users choose and value: what a ranking to choose from is made of.",
    )
    CHOICE_VOTES = (
        "choice-votes",
        "votes on choices",
        "Whether the learned choices find users' held-out rows better than popularity does.",
    )
    VALIDATION_SCORE = "validation-score", "validation score", "How well one try's settings do on held-out users."
    # regressions and training
    TASK_MATRICES = "task-matrices", "Gram matrices", "How firmly the rows of each task pin down its coefficients."
    TASK_MOMENTS = "task-moments", "moments", "How labels go with features in each task: the signal itself."
    CONSTANT = "constant", "constant", "Where the best constant lies: what a model must beat."
    CONSTANT_AGAIN = "constant-again", "constant, again", "The same once more, where no model is worth trying."
    EVIDENCE = "evidence", "evidence", "Whether features tell anything, so that a model is worth trying."
    COMPARISON = "comparison", "comparison", "Whether the model predicts better than the constant does."
    TABLE_ROWS = (
        "table-rows",
        "rows of tables",
        "Which rows of embedding tables enough units look up. Only these are trained.",
    )
    GRADIENT = "gradient", "gradient", "The direction in which the model moves next."
    ROUGH_COEFFICIENTS = (
        "rough-coefficients",
        "rough coefficients",
        "A first estimate, from which residuals are measured.",
    )
    RESIDUALS = "residuals", "residuals", "How far labels lie from the line, for weights and intervals."
    SHARED_RESIDUALS = (
        "shared-residuals",
        "shared residuals",
        "How much of the distance from the line all rows of a user share, for weights and intervals.",
    )
    COEFFICIENTS = "coefficients", "coefficients", "The estimate itself."
    # statistics
    FIRST_MOMENTS = "first-moments", "first moments", "How widely values spread, for weights and intervals."
    CLASS_SUMS = (
        "class-sums",
        "sums by size",
        "How many users have about how many rows, and how values go with it: for the cap, a correction, the interval.",
    )
    TILT = (
        "tilt",
        "large and small users",
        "How far users with many rows differ from those with few: for a correction and the interval.",
    )
    DISTANCES = (
        "distances",
        "distances",
        "How far users' sums lie from a first centre, from which the most that one user may add is chosen.",
    )
    SPREAD = "spread", "spread of users", "How far users differ, for an interval that holds for other users too."
    GROUP_SUMS = "group-sums", "sums by group", "What the users of each group add up to: the estimates themselves."
    MEAN = "mean", "mean", "The estimate itself."
    COVARIANCE = (
        "covariance",
        "second moments",
        "The number of users, their means and second moments: the estimate itself.",
    )
    ROUGH_QUANTILE = (
        "rough-quantile",
        "rough quantile",
        "About where the quantile lies. How far users with many rows differ from those with few is measured there.",
    )
    QUANTILES = "quantiles", "quantiles", "The estimate itself."
    # parties
    MODEL_COVARIANCE = "model-covariance", "covariance of models", "What the models of all parties have in common."
    SUM_OF_MODELS = "sum-of-models", "sum of models", "The models of all parties, summed for their mean."
    # anything else
    OTHER = "other", "other", "A release defined by the caller."

    @property
    def key(self) -> str:
        """The stable key."""
        return str(self.value)

    def at(self, *, round: int | None = None, step: int | None = None, draw: int | None = None) -> ReleaseName:
        """Return the name of a release for this purpose at some place in the fit.

        >>> Purpose.ITEM_SUMS.at(round=3).text
        'round 3: item sums'
        """
        return ReleaseName(self, Stage(round, step, draw))

    @classmethod
    def of_key(cls, key: str) -> Purpose:
        """Return the purpose of a stored key. Refuse a key that this version does not know."""
        result = next((purpose for purpose in cls if purpose.key == key), None)
        if result is None:
            raise InputError(f"Expected the key of a purpose that this version knows, got {key!r}.", argument=None)
        return result


@dataclass(frozen=True)
class Stage:
    """Where in a fit a release is made, counted from 1 (round 0 comes before the rounds). None where it does not apply.

    Attributes:
        round: the round of alternation between users and items, or between parties and curator.
        step: the step of a descent or search.
        draw: the number among releases of the same sums in one round.
    """

    round: int | None = None
    step: int | None = None
    draw: int | None = None

    @property
    def text(self) -> str:
        """The stage in words; empty if there is only one.

        >>> Stage(round=2, step=5).text
        'round 2, step 5'
        """
        return ", ".join([f"{name} {number}" for name, number in self._numbers if number is not None])

    def as_dict(self) -> dict[str, int]:
        """Return the numbers that apply, by name."""
        return {name: number for name, number in self._numbers if number is not None}

    @property
    def _numbers(self) -> tuple[tuple[str, int | None], ...]:
        return ("round", self.round), ("step", self.step), ("draw", self.draw)


@dataclass(frozen=True)
class ReleaseName:
    """The name of a release in a session: what it is for, and where in the fit.

    Attributes:
        purpose: what it is for.
        stage: where in the fit.
        label: words that replace those of the purpose.
    """

    purpose: Purpose
    stage: Stage = field(default_factory=Stage)
    label: str = ""

    @cached_property
    def text(self) -> str:
        """The name as the statement shows it."""
        own, stage = self.label or self.purpose.label, self.stage.text
        return f"{stage}: {own}" if stage else own


Name = ReleaseName | Purpose | str
"""What names a release: a purpose, with its stage if there are several, or a text for a release of your own."""


def release_name(given: Name) -> ReleaseName:
    """Return the full name. A text names a release of the caller's own."""
    if isinstance(given, ReleaseName):
        return given
    return ReleaseName(given) if isinstance(given, Purpose) else ReleaseName(Purpose.OTHER, label=given)
