"""The privacy statement: what is promised, to whom, and what it rests on, as JSON and in words."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

FORMAT = 1

REAL_ARITHMETIC = (
    "Sums and noise are floating-point numbers; the guarantee is proved for real arithmetic and does not "
    "cover attacks on floating-point rounding."
)
EXACT_ARITHMETIC = (
    "Sums are whole numbers of public steps, added without rounding, and noise is drawn without error and rounded to a "
    "public grid; the guarantee holds for the numbers as released."
)
NOT_FOR_RELEASE = "NOT FOR RELEASE: the noise came from a seed, so it can be reproduced and removed."


@dataclass(frozen=True)
class Release:
    """One noisy output: what it was, what it cost, and the noise it got.

    Attributes:
        name: of the release.
        mechanism: Gaussian, Laplace, exponential, ...
        shape: of what was released.
        share: of the budget.
        mu: its Gaussian-DP parameter, or a bound on it; of Wishart noise, which has none, a number for display.
        sensitivity: of the hidden sum, in the norm that the mechanism needs.
        derivation: where the sensitivity comes from.
        stddev: of the noise; for a choice, the scale at which scores are told apart.
        epsilon: of a release that is purely ε-DP, else None.
    """

    name: str
    mechanism: str
    shape: tuple[int, ...]
    share: float
    mu: float
    sensitivity: float
    derivation: str
    stddev: float
    epsilon: float | None = None


@dataclass(frozen=True)
class LedgerReference:
    """Where the charges of a session are written down.

    Attributes:
        account: in the ledger, of the data set.
        run: the text by which the entries of this session are known there.
        entries: how many of them there are.
        last_entry: the number of the last one.
        head: its hash, which stands for the whole account up to it.
    """

    account: str
    run: str
    entries: int
    last_entry: int
    head: str


@dataclass(frozen=True)
class Statement:
    """Everything a reader needs to judge the guarantee. Plain data; it travels with the model.

    Attributes:
        epsilon: the ε of the budget, an upper bound on what was spent.
        delta: the δ of the budget.
        spent_epsilon: the ε at `delta` of the releases that were really made.
        spent_mu: their Gaussian-DP parameter; None where some were made on samples of the users, or where δ is 0.
        unit: whose data is protected.
        neighbours: which two data sets are indistinguishable.
        releases: every release, in order.
        public: what was assumed to be known to everybody and is not protected.
        tuning: how the settings were chosen, and whether that was paid for.
        noise: where randomness came from.
        releasable: False if any part of it must not leave the building.
        window: the time span of the data, as declared by whoever ran it.
        arithmetic: what the proof assumes of the numbers.
        version: of the library.
        ledger: where the charges are written down, if they are.
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
    unit: str = "user: all rows of one user"
    neighbours: str = "add or remove one user"
    window: str = "not declared"
    arithmetic: str = REAL_ARITHMETIC
    version: str = field(default="")
    ledger: LedgerReference | None = None

    def to_json(self) -> str:
        """Serialise to JSON with a format number."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Statement:
        """Read back what `to_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        written = fields.pop("format", None)
        if written != FORMAT:
            raise ValueError(f"Expected a statement of format {FORMAT}, got {written!r}.")
        releases = tuple(_release(row) for row in fields.pop("releases"))
        reference = fields.pop("ledger", None)
        ledger = None if reference is None else LedgerReference(**reference)
        return cls(releases=releases, public=tuple(fields.pop("public")), ledger=ledger, **fields)

    def to_text(self) -> str:
        """Say it in words, one fact a line."""
        lines = [] if self.releasable else [NOT_FOR_RELEASE]
        lines += [
            f"Guarantee: {self._guarantee}.",
            f"Spent: epsilon = {rounded_up(self.spent_epsilon):g} at delta = {self.delta!r} "
            f"({self._accounting}), over {_many(len(self.releases))}.",
            f"Unit: {self.unit}. Neighbours: {self.neighbours}.",
            f"Time window: {self.window}.",
            f"Assumed public: {'; '.join(self.public) or 'nothing'}.",
            f"Tuning: {self.tuning}.",
            f"Noise: {self.noise}.",
            self.arithmetic,
            *self._charged,
            "Releases:",
        ]
        lines += [
            f"  {r.name}: {r.mechanism}, {_shape(r.shape)}, {100 * r.share:.3g} % of the budget, "
            f"sensitivity {rounded_up(r.sensitivity):g} ({r.derivation}), noise {r.stddev:.4g}"
            for r in self.releases
        ]
        return "\n".join(lines)

    @property
    def _guarantee(self) -> str:
        if self.delta == 0:
            return f"{self.epsilon!r}-differential privacy (pure: delta is 0)"
        return f"({self.epsilon!r}, {self.delta!r})-differential privacy"

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
        if self.delta == 0:
            return "the epsilons of pure releases add up"
        if self.spent_mu is None:
            return "composed numerically"
        return f"Gaussian-DP mu = {rounded_up(self.spent_mu):g}"


def rounded_up(value: float, digits: int = 4) -> float:
    """A cost for display: to this many digits, never below the true one.

    >>> rounded_up(0.99994)
    1.0
    """
    if value <= 0 or not math.isfinite(value):
        return value
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.{digits + 2}g}")


def _release(row: Mapping[str, Any]) -> Release:
    return Release(**{**row, "shape": tuple(row["shape"])})


def _many(releases: int) -> str:
    return f"{releases} release{'s' * (releases != 1)}"


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(str(n) for n in shape) or "one number"
