"""Units: one fit and its measurement each, named by a hash of everything that its figures depend on.

The hash is the name of the file that a finished unit leaves: whatever changes the content has the unit fitted again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from apportion import __version__
from apportion.evaluation.study.description import Study
from apportion.evaluation.study.methods import FEATURES, Combination
from apportion.evaluation.study.parts import Part

MARKING: Final = "INTERNAL, NOT FOR RELEASE: computed from raw data, not covered by epsilon; the noise is seeded"
FORMAT: Final = 1
"""Part of every hash, so that nothing is taken for finished that was stored with another meaning."""


@dataclass(frozen=True)
class Unit:
    """One fit and its measurement.

    Attributes:
        words: what it is, for people.
        content: everything that its figures depend on, ready for JSON.
        keep_model: whether the model is to be kept as well.
    """

    words: str
    content: Mapping[str, Any]
    keep_model: bool = False

    @property
    def key(self) -> str:
        """A name for its file: a hash of the content."""
        return hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()[:32]


def unit_of(
    study: Study,
    data: str,
    combination: Combination,
    epsilon: float | None,
    seed: int | None,
    part: Part,
    features: str | None = None,
) -> Unit:
    """The unit of a combination of settings on data with this fingerprint; one without privacy has no ε and no seed.

    The fingerprint of features counts where the settings ask for them.
    """
    content = {
        "format": FORMAT,
        "version": __version__,
        "data": data,
        "kind": study.kind,
        "value_range": study.value_range,
        "split": asdict(study.split),
        "measures": asdict(study.measures),
        "spec": combination.spec,
        "epsilon": epsilon,
        "delta": None if epsilon is None else study.budgets.delta,
        "seed": seed,
        "part": part,
    }
    if combination.spec.get(FEATURES, False):
        content["features"] = features
    budget = "" if epsilon is None else f", epsilon = {epsilon:g}, seed {seed}"
    keep = study.inspection is not None and part == "test" and seed in (None, study.budgets.seeds[0])
    as_json = json.loads(json.dumps(content, default=str))
    return Unit(f"{combination.label}{budget}, on {part}", as_json, keep)
