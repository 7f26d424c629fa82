"""The privacy statement: what is guaranteed, to whom, and on what assumptions, as JSON and in words."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from apportion.errors import require_format
from apportion.privacy.budget import Budget
from apportion.privacy.neighbours import ADD_REMOVE, Neighbours, relation_of
from apportion.privacy.purposes import Purpose, Stage

FORMAT = 3

REAL_ARITHMETIC = (
    "Sums and noise are floating-point numbers; the guarantee is proved for real arithmetic and does not "
    "cover attacks on floating-point rounding."
)
EXACT_ARITHMETIC = (
    "Sums are whole numbers of public steps, added without rounding, and noise is drawn without error and rounded to a "
    "public grid; the guarantee holds for the numbers as released."
)
SEEDED = "The noise came from a seed, so it can be reproduced and removed."
NOT_FOR_RELEASE = f"NOT FOR RELEASE. {SEEDED}"
DEFAULTS = (
    "library defaults: constants and functions of public and released quantities, developed on MovieLens 100K, small "
    "and 1M, FilmTrust, InstEval, Amazon Beauty and generated data; nothing was chosen by looking at these data, "
    "unless they are among those"
)
STATISTICS_DEFAULTS = (
    "library defaults: constants and functions of public and released quantities, developed on Exam, ScotsSec, "
    "egsingle, School, drugs, InstEval, MovieLens, FilmTrust, News Popularity, Amazon Beauty, Penn Treebank, MNIST, "
    "E2E and generated data; nothing was chosen by looking at these data, unless they are among those"
)


class Tuning(Enum):
    """How settings were chosen, as far as it affects the guarantee."""

    DEFAULTS = "library defaults"
    DECLARED = "declared"
    SELECTION = "private selection"


@dataclass(frozen=True)
class Release:
    """One noisy output: what it was, what it cost, and the noise it got.

    Attributes:
        name: the name of the release.
        purpose: what the release is for.
        stage: where in the fit it was made.
        mechanism: key of the mechanism that drew it.
        mechanism_words: the mechanism in words.
        shape: the shape of what was released.
        share: the fraction of the budget.
        mu: its Gaussian-DP parameter, or a bound on it; None if it has none.
        sensitivity: the sensitivity of the hidden sum, in the norm that the mechanism needs.
        derivation: how the sensitivity follows, in words.
        stddev: the standard deviation of the noise; for a choice, the scale at which scores are distinguished.
        epsilon: the ε of a purely ε-DP release, otherwise None.
        delta: the part of δ that a list of private keys takes; 0 for every other release.
        threshold: what a count with noise had to reach for its key to be listed; None for every other release.
    """

    name: str
    purpose: Purpose
    stage: Stage
    mechanism: str
    mechanism_words: str
    shape: tuple[int, ...]
    share: float
    mu: float | None
    sensitivity: float
    derivation: str
    stddev: float
    epsilon: float | None = None
    delta: float = 0.0
    threshold: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the release in JSON form."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**fields, "purpose": self.purpose.key, "stage": self.stage.as_dict(), "shape": list(self.shape)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Release:
        """Read back what `as_dict` wrote."""
        purpose, stage = Purpose.of_key(fields["purpose"]), Stage(**fields["stage"])
        return cls(**{**fields, "purpose": purpose, "stage": stage, "shape": tuple(fields["shape"])})


@dataclass(frozen=True)
class LedgerReference:
    """Where a session's charges are recorded.

    Attributes:
        account: the data set's account in the ledger.
        run: the text that identifies this session's entries there.
        entries: the number of these entries.
        last_entry: the number of the last one.
        head: its hash, which covers the whole account up to it.
    """

    account: str
    run: str
    entries: int
    last_entry: int
    head: str


@dataclass(frozen=True)
class Statement:
    """Everything a reader needs to judge the guarantee. Plain data that travels with the model.

    Attributes:
        epsilon: the ε of the budget, an upper bound on what was spent.
        delta: the δ of the budget.
        spent_epsilon: the ε at `delta` of the releases actually made.
        spent_mu: their Gaussian-DP parameter; None if some were made on samples of the users, or if δ is 0.
        releases: every release, in order.
        public: what was assumed public and is not protected.
        rules: public rules by which rows were kept or joined, each within one user's rows.
        unprotected: what else is not protected, for the headline.
        keys_delta: the part of `delta` that is reserved for lists of private keys; the rest is for noise.
        tuning: how the settings were chosen, and whether that was paid for, in words.
        tuning_kind: the same, as a key.
        noise: where randomness came from.
        releasable: False if any part must not be published.
        neighbours: which two data sets are indistinguishable, and whose data is protected.
        declared_users: the number of users, if it was declared public.
        window: the time span of the data, as declared by the caller.
        arithmetic: what the proof assumes about the numbers.
        version: the version of the library.
        ledger: where the charges are recorded, if they are.
    """

    epsilon: float
    delta: float
    spent_epsilon: float
    spent_mu: float | None
    releases: tuple[Release, ...]
    public: tuple[str, ...]
    tuning: str
    noise: str
    releasable: bool
    rules: tuple[str, ...] = ()
    unprotected: tuple[str, ...] = ()
    keys_delta: float = 0.0
    tuning_kind: Tuning = Tuning.DEFAULTS
    neighbours: Neighbours = ADD_REMOVE
    declared_users: int | None = None
    window: str = "not declared"
    arithmetic: str = REAL_ARITHMETIC
    version: str = field(default="")
    ledger: LedgerReference | None = None

    def to_json(self) -> str:
        """Serialise to JSON with a format number."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "rules" or self.rules}
        fields["releases"] = [release.as_dict() for release in self.releases]
        fields["tuning_kind"] = self.tuning_kind.value
        fields["neighbours"] = {name: getattr(self.neighbours, name) for name in ("key", "unit", "relation")}
        fields["ledger"] = None if self.ledger is None else asdict(self.ledger)
        return json.dumps({"format": FORMAT, **fields}, indent=2, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Statement:
        """Read back what `to_json` wrote. Refuse another format in one sentence."""
        fields: dict[str, Any] = json.loads(text)
        require_format("The privacy statement", fields.pop("format", None), FORMAT)
        fields["releases"] = tuple(Release.from_dict(row) for row in fields["releases"])
        fields["tuning_kind"] = Tuning(fields["tuning_kind"])
        fields["neighbours"] = relation_of(**fields["neighbours"])
        fields["ledger"] = None if fields["ledger"] is None else LedgerReference(**fields["ledger"])
        for name in ("public", "rules", "unprotected"):
            fields[name] = tuple(fields.get(name, ()))
        return cls(**fields)

    @property
    def unit(self) -> str:
        """Whose data is protected."""
        return self.neighbours.unit

    def to_text(self, *, fold: bool = False) -> str:
        """Return the statement in words, one fact per line.

        Args:
            fold: whether rounds or steps that differ only in their number, share and noise are put on one line.
        """
        lines = [] if self.releasable else [NOT_FOR_RELEASE]
        lines += [
            f"Guarantee: {self._guarantee}.",
            *(f"Not protected: {sentence}." for sentence in self.unprotected),
            *self._division_of_delta,
            f"Spent: epsilon = {rounded_up(self.spent_epsilon):g} at delta = {self.delta!r} "
            f"({self._accounting}), over {_many(len(self.releases))}.",
            f"Unit: {self.unit}. Neighbours: {self.neighbours.relation}.",
            f"Time window: {self.window}.",
            f"Assumed public: {'; '.join(self.public) or 'nothing'}.",
            *([f"Rules for rows, also public: {'; '.join(self.rules)}."] if self.rules else []),
            f"Tuning: {self.tuning}.",
            f"Noise: {self.noise}.",
            self.arithmetic,
            *self._charged,
            "Releases:",
        ]
        lines += _folded(self.releases) if fold else [f"  {r.name}: {_in_words(r)}" for r in self.releases]
        return "\n".join(lines)

    @property
    def _guarantee(self) -> str:
        if self.delta == 0:
            return f"{self.epsilon!r}-differential privacy (pure: delta is 0)"
        return f"({self.epsilon!r}, {self.delta!r})-differential privacy"

    @property
    def noise_delta(self) -> float:
        """The part of δ that is for noise."""
        return Budget(self.epsilon, self.delta, self.keys_delta).noise_delta

    @property
    def _division_of_delta(self) -> list[str]:
        if not self.keys_delta:
            return []
        taken = math.fsum(release.delta for release in self.releases)
        return [
            f"Delta: {self.noise_delta:.4g} for noise, {self.keys_delta:.4g} for lists of private keys, of which "
            f"{taken:.4g} was used: the chance that a key of one user alone is listed."
        ]

    @property
    def _charged(self) -> list[str]:
        if self.ledger is None:
            return []
        kept = self.ledger
        return [
            f"Ledger: account {kept.account!r}, {kept.entries} entr{'y' if kept.entries == 1 else 'ies'} of run "
            f"{kept.run}, the last one number {kept.last_entry} with hash {kept.head}."
        ]

    @property
    def _accounting(self) -> str:
        if self.noise_delta == 0:
            return "the epsilons of pure releases add up"
        if self.spent_mu is None:
            return "composed numerically"
        return f"Gaussian-DP mu = {rounded_up(self.spent_mu):g}"


_TOO_LITTLE_TO_SHOW = 1e-6


def rounded_up(value: float, digits: int = 4) -> float:
    """Round a cost up to this many digits for display: never below the true value by more than a millionth of it.

    The rounding of sums on a lattice adds less than that to a sensitivity. The card shows all digits.

    >>> rounded_up(0.99994), rounded_up(1.0000000009), rounded_up(1.00001)
    (1.0, 1.0, 1.001)
    """
    if value <= 0 or not math.isfinite(value):
        return value
    nearest = float(f"{value:.{digits}g}")
    if abs(nearest - value) <= _TOO_LITTLE_TO_SHOW * value:
        return nearest
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.{digits + 2}g}")


def _in_words(release: Release) -> str:
    share = f"{100 * release.share:.3g} % of the budget"
    return _described(release, share, f"{release.stddev:.4g}")


def _described(release: Release, share: str, noise: str) -> str:
    return (
        f"{release.mechanism_words}, {_shape(release.shape)}, {share}, "
        f"sensitivity {rounded_up(release.sensitivity):g} ({release.derivation}), noise {noise}"
        + ("" if release.threshold is None else f", threshold {release.threshold:.4g}, delta {release.delta:.4g}")
    )


def _folded(releases: Iterable[Release]) -> list[str]:
    """Put consecutive rounds or steps that are alike on one line, where the first of them stands."""
    lines: list[list[Release]] = []
    last: dict[Hashable, list[Release]] = {}
    for each in releases:
        members = last.get(_kind(each))
        if members is None or _number(each) is None or _number(each) != _number(members[-1], 1):
            lines.append(members := [])
        members.append(each)
        last[_kind(each)] = members
    return [f"  {_together(members)}" for members in lines]


def _number(release: Release, further: int = 0) -> int | None:
    """Return the step of a release, or else its round, and None where it has neither."""
    number = release.stage.round if release.stage.step is None else release.stage.step
    return None if number is None else number + further


def _kind(release: Release) -> Hashable:
    """Return what releases of several rounds, or of several steps of one round, have in common."""
    stage = release.stage
    return release.purpose, stage.draw, stage.step is None or ("in round", stage.round), _described(release, "", "")


def _together(members: Sequence[Release]) -> str:
    first, last = members[0], members[-1]
    if first is last:
        return f"{first.name}: {_in_words(first)}"
    shares, noise = (
        _range((100 * each.share for each in members), ".3g"),
        _range((each.stddev for each in members), ".4g"),
    )
    total = f"{100 * math.fsum(each.share for each in members):.3g} % of the budget together ({shares} % each)"
    stages = f"{'rounds' if first.stage.step is None else 'steps'} {_number(first)} to {_number(last)}, each"
    return f"{stages}: {first.purpose.label}: {_described(first, total, noise)}"


def _range(values: Iterable[float], digits: str) -> str:
    ordered = sorted(values)
    least, most = f"{ordered[0]:{digits}}", f"{ordered[-1]:{digits}}"
    return least if least == most else f"{least} to {most}"


def _many(releases: int) -> str:
    return f"{releases} release{'s' * (releases != 1)}"


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(str(n) for n in shape) or "one number"
