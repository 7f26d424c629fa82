"""Pages of protected multi-task learning: one that everybody may see, and one for each party alone.

The shared page is a function of `SharedResult`, which holds released matrices, public names and the statement. A
party's page is computed from its raw data and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from apportion.evaluation.own_gain import OwnGain
from apportion.parties import InstanceGuarantee, ProtectedMultiTask, Released
from apportion.privacy.neighbours import ADD_REMOVE_TASK
from apportion.privacy.statement import SEEDED, Statement
from apportion.report import parties_charts as charts
from apportion.report.estimates_chart import shares_chart
from apportion.report.estimates_releases import groups_of
from apportion.report.parties_structure import found_in
from apportion.report.public_charts import guess_chart
from apportion.report.releases import explain, families_of, mechanisms_of, unspent
from apportion.report.rendering import render
from apportion.report.svg import Drawing
from apportion.report.wording import Meaning, bound, exact, meaning_of, whole

FOR_THIS_PARTY: Final = "For this party only; computed from its raw data."
INTERCEPT: Final = "(intercept)"
_MOST_CELLS = 40  # largest number of features in a map
_MOST_NAMES = 30
_BETWEEN = "\0"  # placeholder in pages of parties that no name can contain

STRUCTURES: Final = {
    "em": "one covariance of all models, which every party uses as its prior",
    "low-rank": "models that lie near a few common directions",
    "group-sparse": "models that use the same few features",
    "low-rank+sparse": "models that lie near a few common directions, except for single entries",
    "relations": "models that are related as their covariance describes",
}
_GRADES: Final = (
    (0.60, "Whoever sees what was shared learns almost nothing about {secret}."),
    (0.75, "Whoever sees what was shared learns only a little about {secret}."),
    (0.90, "Whoever sees what was shared may learn something about {secret}, within a limit."),
    (1.01, "Parties are weakly protected here: a capable attacker could often find out {secret}."),
)


@dataclass(frozen=True, eq=False)
class SharedResult:
    """What may be shared of a fit: released matrices, public names and settings, and the statement.

    Attributes:
        structure: what was assumed to be shared.
        loss: the loss of the models.
        label: the column that is predicted.
        features: names, in the order of the matrices; public.
        tasks: names of all tasks, if they are public.
        rounds: the releases, one for each round.
        pooled: whether a round holds the mean of all releases so far.
        noise_words: what the stated standard deviation of the noise refers to.
        unit: K², the unit of eigenvalues.
        statement: the privacy statement.
        instance: the guarantee of parties for their single rows, if there is one.
    """

    structure: str
    loss: str
    label: str
    features: tuple[str, ...]
    tasks: tuple[str, ...] | None
    rounds: tuple[Released, ...]
    pooled: bool
    noise_words: str
    unit: float
    statement: Statement
    instance: InstanceGuarantee | None

    @classmethod
    def of(
        cls, model: ProtectedMultiTask, *, label: str, features: Sequence[str], tasks: Sequence[str] | None
    ) -> SharedResult:
        """Take only what may be shared from a fitted model."""
        return cls(
            model.structure,
            model.loss,
            label,
            tuple(features),
            None if tasks is None else tuple(tasks),
            model.released_,
            model.pooled,
            model.release.noise_words,
            1.0 if model.clip_norm is None else float(model.clip_norm) ** 2,
            model.statement_,
            model.instance_guarantee_,
        )

    @property
    def last(self) -> Released:
        """The last release, from which parties finally learned."""
        return self.rounds[-1]


def shared_page(result: SharedResult) -> str:
    """Return the page that may be shared, as self-contained HTML."""
    statement = result.statement
    meaning, finding, rows = (
        meaning_of(statement),
        found_in(result.last, result.features, result.unit),
        explain(statement),
    )
    return render(
        "shared.html",
        result=result,
        statement=statement,
        headline=_headline(result),
        lead=_lead(statement, meaning),
        meaning=meaning,
        finding=finding,
        assumed=STRUCTURES[result.structure],
        learned_alone=result.last.kept == 0,
        shown=_shown(result),
        draw_shared=_map(result, result.last.shared),
        draw_released=_map(result, _square(result.last.matrix)),
        draw_values=partial(charts.values_chart, result.last.values, finding.zone, finding.kept, finding.what),
        attack=_attack(statement),
        alike=_alike(statement),
        delta=_in_short(statement.delta),
        facts=_facts(result),
        not_releasable=SEEDED,
        unit=statement.neighbours.one.capitalize(),
        one_in=f"one in {whole(1 / statement.delta)}",
        groups=groups_of(rows),
        families=families_of(rows),
        unspent=unspent(rows),
        mechanisms=mechanisms_of(rows),
        draw_guess=partial(guess_chart, meaning.best_guess),
        draw_budget=partial(shares_chart, families_of(rows), unspent(rows)),
    )


@dataclass(frozen=True, eq=False)
class PartyResult:
    """The result of one party. Nothing in it may be shared.

    Attributes:
        task: the task's name.
        model: its model, with coefficients by name.
        gain: its gain over learning alone.
        own_weight: the weight, in its model, of what it learned alone.
        unlabelled: number of its rows that were left out because they have no label.
    """

    task: str
    model: Mapping[str, Any]
    gain: OwnGain
    own_weight: float
    unlabelled: int

    @property
    def loss(self) -> str:
        """The name of the error measure."""
        return "log loss" if self.model["loss"] == "logistic" else "mean squared error"

    @property
    def headline(self) -> str:
        """The outcome in one line."""
        return _party_headline(self.gain)


def party_pages(parties: Sequence[PartyResult], statement: Statement) -> list[str]:
    """Return the page of each party, which is for that party alone."""
    pages = render("parties.html", parties=parties, statement=statement, mark=FOR_THIS_PARTY)
    return pages.split(_BETWEEN)[: len(parties)]


def _headline(result: SharedResult) -> str:
    if not result.statement.releasable:
        return "A rehearsal: its noise came from a seed, so it protects nobody."
    kept = result.last.kept
    if not kept:
        return "Nothing exceeds the noise: every party learns alone"
    one, several = "s" * (kept == 1), "s" * (kept != 1)
    if result.last.matrix.ndim == 1:
        return f"{kept} feature{several} that models use more, or less, than others exceed{one} the noise"
    return f"{kept} direction{several} that tasks have in common exceed{one} the noise"


def _party_headline(gain: OwnGain) -> str:
    if gain.gain is None or gain.alone is None:
        return "Too few rows with a label for a comparison"
    relative = gain.gain / gain.alone if gain.alone > 0 else 0.0
    if abs(relative) < 1e-3:
        return "Learning with the others makes no difference"
    return f"Learning with the others {'lowers' if relative > 0 else 'raises'} the error by {100 * abs(relative):.1f} %"


def _lead(statement: Statement, meaning: Meaning) -> str:
    words = next(words for limit, words in _GRADES if meaning.best_guess <= limit)
    one = "any one" if meaning.best_guess <= 0.75 else "a"
    added = statement.neighbours == ADD_REMOVE_TASK
    return words.format(secret=f"whether {one} party took part" if added else f"the contents of {one} party’s rows")


def _attack(statement: Statement) -> str:
    known = "knows all other parties’ data and models, sees everything that was shared, and wants to find out "
    if statement.neighbours == ADD_REMOVE_TASK:
        return f"{known}whether one particular party took part"
    return f"{known}which of two guesses about one particular party’s rows is right"


def _alike(statement: Statement) -> str:
    return "without it" if statement.neighbours == ADD_REMOVE_TASK else "with other rows of that party"


def _in_short(delta: float) -> str:
    """Format a declared δ as given, and a δ by formula, which has many digits, rounded up.

    >>> _in_short(1e-6), _in_short(1 / 150**2)
    ('1e-6', '4.445e-05')
    """
    return exact(delta) if len(exact(delta)) <= 8 else bound(delta)


def _facts(result: SharedResult) -> dict[str, str]:
    facts = {"Features, public": _listed(result.features)}
    if result.tasks is not None:
        facts["Tasks, public"] = _listed(result.tasks)
    if result.instance is not None:
        each = f", {result.instance.per_round:g} in each of {result.instance.rounds} rounds"
        facts["Single rows, against the curator"] = (
            f"every party protects each of its rows with ε = {result.instance.epsilon:g}, δ = 0"
            + (each if result.instance.rounds > 1 else "")
            + ", before it sends anything"
        )
    return facts


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more, in released.json" if more > 0 else "")


def _square(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.diag(matrix) if matrix.ndim == 1 else matrix


def _shown(result: SharedResult) -> list[int]:
    """Return the features in the maps: all, or those that are strongest in the matrix sent back, in their order."""
    strongest = np.argsort(-np.diag(result.last.shared), kind="stable")[:_MOST_CELLS]
    return sorted(int(at) for at in strongest)


def _map(result: SharedResult, matrix: NDArray[np.float64]) -> partial[Drawing]:
    shown = _shown(result)
    return partial(charts.heat_map, matrix[np.ix_(shown, shown)], [result.features[at] for at in shown])
