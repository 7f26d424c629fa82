"""The bench: it fits and measures the units of a study, and stores what is finished in the study's folder.

A finished unit is one small file, `units/HASH.json`; if models are kept, they are in `models/HASH`.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from apportion.data import Interactions
from apportion.data.features import ItemFeatures
from apportion.errors import ApportionError, InputError
from apportion.evaluation.rankings import evaluate_rankings
from apportion.evaluation.ratings import evaluate_ratings
from apportion.evaluation.results import Evaluation
from apportion.evaluation.slices import PopularitySlices
from apportion.evaluation.study.description import Study
from apportion.evaluation.study.item_features import put_features
from apportion.evaluation.study.parts import Part, Parts, split_study, study_slices
from apportion.evaluation.study.units import MARKING, Unit
from apportion.privacy import NoiseSource, SeededNoise

UNITS, MODELS = "units", "models"


class Builder(Protocol):
    """Makes an estimator from a method's settings; see `apportion.recommend.methods.build`."""

    def __call__(
        self,
        spec: Mapping[str, Any],
        kind: str,
        *,
        epsilon: float,
        delta: float,
        noise: NoiseSource | None = None,
        value_range: tuple[float, float] = (1.0, 5.0),
    ) -> Any:
        """Return an estimator whose `fit(data)` leaves `model_`; invalid settings raise an `InputError`.

        If a method asks for public item features, they are under `features` in its settings.
        """
        ...


class Bench:
    """Fits and measures units of one study on one data set; every process has its own."""

    def __init__(
        self, study: Study, data: Interactions, folder: Path, build: Builder, features: ItemFeatures | None = None
    ) -> None:
        self.study = study
        self.data = data
        self.folder = folder
        self.build = build
        self.features = features

    @cached_property
    def parts(self) -> Parts:
        """The parts of the data."""
        return split_study(self.study, self.data)

    @cached_property
    def slices(self) -> PopularitySlices:
        """The popularity slices."""
        return study_slices(self.study, self.parts.train)

    def result_file(self, unit: Unit) -> Path:
        """Return the file that stores a unit's results."""
        return self.folder / UNITS / f"{unit.key}.json"

    def model_folder(self, unit: Unit) -> Path:
        """Return the folder that stores a unit's model."""
        return self.folder / MODELS / unit.key

    def run(self, unit: Unit) -> str | None:
        """Fit, measure and store. Return a sentence if something went wrong."""
        started = time.perf_counter()
        try:
            model = self._fitted(unit.content)
            evaluation = self._measured(model, unit.content["part"])
            if unit.keep_model:
                self._keep(model, unit)
            result = {
                "marking": MARKING,
                "unit": unit.content,
                "evaluation": evaluation.to_dict(),
                "statement": None if model.statement is None else json.loads(model.statement.to_json()),
                "seconds": round(time.perf_counter() - started, 3),
            }
            _write(self.result_file(unit), json.dumps(result, indent=1))
        except ApportionError as error:
            return str(error)
        except Exception as error:  # a unit that fails must not stop the others
            return f"{type(error).__name__}: {error}"
        return None

    def _fitted(self, content: Mapping[str, Any]) -> Any:
        epsilon, seed = content["epsilon"], content["seed"]
        estimator = build_unit(self.build, self.study, content["spec"], epsilon, seed, self.features)
        model = estimator.fit(self.parts.train).model_
        if epsilon is not None and (model.statement is None or model.statement.epsilon > epsilon * (1 + 1e-9)):
            stated = "no privacy statement" if model.statement is None else f"epsilon = {model.statement.epsilon:g}"
            raise InputError(f"Expected a model with epsilon = {epsilon:g}, got one with {stated}.", argument=None)
        return model

    def _measured(self, model: Any, part: Part) -> Evaluation:
        held_out, measures = self.parts.held_out(part), self.study.measures
        if self.study.kind == "ratings":
            return evaluate_ratings(model, held_out.history, held_out.target, slices=self.slices)
        return evaluate_rankings(
            model,
            held_out.history,
            held_out.target,
            recall_at=measures.recall_at,
            ndcg_at=measures.ndcg_at,
            recall_at_by_slice=measures.recall_at_by_slice,
            slices=self.slices,
        )

    def _keep(self, model: Any, unit: Unit) -> None:
        from apportion.recommend import save

        save(model, self.model_folder(unit))

    def stored_result(self, unit: Unit) -> Evaluation | None:
        """Return what a finished unit measured; None if the file is missing or incomplete."""
        if unit.keep_model and not self.model_folder(unit).is_dir():
            return None
        try:
            stored = json.loads(self.result_file(unit).read_text(encoding="utf-8"))
            return Evaluation.from_dict(stored["evaluation"]) if stored["unit"] == unit.content else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None


def build_unit(
    build: Builder,
    study: Study,
    spec: Mapping[str, Any],
    epsilon: float | None,
    seed: int | None,
    features: ItemFeatures | None = None,
) -> Any:
    """Return the estimator of a unit; without ε and seed, one without privacy."""
    return build(
        put_features(spec, features),
        study.kind,
        epsilon=study.budgets.epsilon[0] if epsilon is None else epsilon,
        delta=study.budgets.delta,
        noise=None if seed is None else SeededNoise(seed),
        value_range=study.value_range,
    )


def _write(path: Path, text: str) -> None:
    """Write a file to a temporary place, then move it: it is complete or missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, staged = tempfile.mkstemp(prefix=f".{path.stem}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(staged, 0o644)
        os.replace(staged, path)
    except BaseException:
        Path(staged).unlink(missing_ok=True)
        raise
