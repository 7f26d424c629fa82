"""The internal part of the explorer: quality on raw data, and every item's neighbours without privacy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from apportion.evaluation import Comparison, MetricValue, PopularitySlices
from apportion.evaluation.inspection import nearest, overlap
from apportion.recommend.model import ItemModel
from apportion.report.internal import Roles, metric_part, summary

_N_NEAR: Final = 10
_FULL: Final = 32767


@dataclass(frozen=True)
class Inside:
    """Results for a model on raw data, and its non-private twin.

    Attributes:
        comparison: evaluations of all models on the same targets.
        roles: which of them is which.
        twin: the non-private model, for the same list of items.
        shared: the fraction of nearest neighbours that both models share; None if the twin learned no vectors.
        remarks: warnings to show beside the figures.
    """

    comparison: Comparison
    roles: Roles
    twin: ItemModel
    shared: MetricValue | None
    remarks: Sequence[str] = ()

    @property
    def n_near(self) -> int:
        """The number of neighbours listed."""
        return n_near_of(self.twin)


def n_near_of(model: ItemModel) -> int:
    """Return the number of neighbours compared: ten, or all other items if there are fewer."""
    return min(_N_NEAR, model.n_tasks - 1)


def inside_of(
    model: ItemModel,
    twin: ItemModel,
    comparison: Comparison,
    roles: Roles,
    slices: PopularitySlices,
    remarks: Sequence[str] = (),
) -> Inside:
    """Compare the neighbours of the private model with those of its twin, and collect all figures."""
    shared = overlap(model, twin, n_near_of(twin), slices=slices) if twin.directions.any() else None
    return Inside(comparison, roles, twin, shared, remarks)


def internal_parts(inside: Inside) -> dict[str, Any]:
    """Return what the page shows about quality."""
    private = inside.comparison[inside.roles.private]
    return {
        "summary": summary(inside.comparison, inside.roles),
        "remarks": inside.remarks,
        "slices": private.slices,
        "parts": [metric_part(inside.comparison, inside.roles, metric, private.slices) for metric in private.metrics],
        "overlap": inside.shared,
        "n_near": inside.n_near,
    }


def twin_arrays(inside: Inside, order: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Return each item's neighbours without privacy, by place in the page's order, with similarities in whole steps.

    Nothing if there are none.
    """
    if inside.shared is None:
        return {}
    near = nearest(inside.twin, inside.n_near)
    places = np.empty(len(order), np.uint32)
    places[order] = np.arange(len(order), dtype=np.uint32)
    directions = inside.twin.directions
    similarities = np.einsum("nd,nkd->nk", directions, directions[near])
    return {
        "twinNear": places[near][order],
        "twinSimilarities": np.round(np.clip(similarities, -1, 1) * _FULL).astype(np.int16)[order],
    }
