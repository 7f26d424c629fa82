"""Units: each is one fit and its measurement, named by a hash of everything that its figures depend on.

The hash is the file name of a finished unit: any change of the content means that the unit is fitted again.
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
"""Part of every hash, so that results stored with another meaning do not count as finished."""


@dataclass(frozen=True)
class Unit:
    """One fit and its measurement.

    Attributes:
        words: a description for people.
        content: everything that its figures depend on, ready for JSON.
        keep_model: whether to save the model as well.
    """

    words: str
    content: Mapping[str, Any]
    keep_model: bool = False

    @property
    def key(self) -> str:
        """Its file name: a hash of the content."""
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
    """Return the unit of a combination of settings on data with this fingerprint; without privacy, no ε and no seed.

    The fingerprint of features counts only if the settings ask for features.
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
