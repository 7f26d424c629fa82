"""Rare classes at equal accuracy in the head: ways that go beyond the paper's optimizers, and one search for all.

The linear model on a synthetic set of the paper's kind, small enough for a processor: 640 rows, 31 classes of 128 to 8
rows, C = 1, noise 5, ε = 28 in all. A method has an effective rate and at most one constant. The procedure, fixed
before it was run on this set: each method is searched from coarse to fine on two seeds for the setting with the best
accuracy in the rarest group at the end of its run, among those with at least `HEAD` in the head (what DP-GDM has on the
paper's set at its lowest loss); what was chosen runs on five other seeds. Whatever a method learns about frequencies or
means of the rows is released with noise first, and its steps are fewer by that share of the budget's μ².

Nearest class means, released once with the whole budget, take the place of steps (`nearest`).

Centred inputs: a row's clipped gradient points along its input. If all inputs have a large part in common, as here,
that part takes most of the clipped length, and says nothing about the row. So the released mean is subtracted from all
inputs, and the frequencies of the classes, which that part had to learn, come in as a bias from released counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from papers.heavy_tail.long_tail import LongTail
from papers.heavy_tail.many_runs import ManyRuns, rounded
from papers.heavy_tail.nearest import accuracies
from papers.heavy_tail.search import Place, Search
from papers.heavy_tail.synthetic import Problem
from papers.heavy_tail.updates import Setting, setting_for

HEAD = 0.88
TUNING_SEEDS = (201, 202)
SHARE = 0.02  # of the budget's μ² for counts of classes, and the same for the mean of the inputs
NORM = 1.1  # to which inputs are clipped for their mean, over √(d/3), the root mean square of uniform ones' norms
START_RATES = range(-8, 33, 8)
DISTANCES = (8, 4)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Method:
    """A way to train.

    Attributes:
        name: for tables.
        optimizer: one of `updates`.
        constants: where the search for its constant starts, in eighths of a power of ten.
        kind: what it does beside: "adjusted", "afterwards", "weighted", "scaled", "decayed" or nothing; "nearest" takes
            nearest class means in place of steps.
        centred: whether the released mean is subtracted from inputs, with the frequencies as a bias.
    """

    name: str
    optimizer: str = "DP-GDM"
    constants: tuple[int, ...] = (0,)
    kind: str = ""
    centred: bool = False

    @property
    def released(self) -> float:
        """The share of μ² for what is released beside gradients."""
        counts = bool(self.kind) and self.kind != "decayed"
        return SHARE * ((counts or self.centred) + self.centred)


BASELINES = (
    Method("DP-GD", "DP-GD"),
    Method("DP-GDM"),
    Method("DP-Adam", "DP-Adam", (-8, 0, 8)),
    Method("DP-AdamBC", "DP-AdamBC", (-8, 0, 8)),
)
METHODS = (
    *BASELINES,
    Method("DP-AdamW, decay", "DP-Adam", (-8, 0, 8), "decayed"),
    Method("logits adjusted in training", "DP-GDM", (-8, -4, 0), "adjusted"),
    Method("logits adjusted afterwards", "DP-GDM", (-8, -4, 0), "afterwards"),
    Method("rows weighted by class frequency", "DP-GDM", (-8, -4, 0), "weighted"),
    Method("scale, then privatise, by class frequency", "DP-GDM", (-8, -4, 0), "scaled"),
    Method("nearest class means, released once", "", (0, 8), "nearest", centred=True),
    Method("centred inputs, frequencies as bias", "DP-GDM", (-8, -4, 0), "", centred=True),
)


class RareRuns(ManyRuns):
    """Runs of one method, side by side; the seed also draws what is released beside gradients.

    Args:
        data: the training rows.
        method: how they are trained.
        places: of the settings.
        problem: clip norm, noise and steps.
        seed: of all noise.
        device: a torch device.
    """

    def __init__(
        self, data: LongTail, method: Method, places: Sequence[Place], problem: Problem, seed: int, device: str
    ) -> None:
        stddev = problem.noise_multiplier * problem.clip_norm / len(data.labels)
        settings = [_setting(method, place, stddev) for place in places]
        super().__init__(data, settings, problem.clip_norm, problem.noise_multiplier, [seed], device)
        self.steps = int(problem.steps * (1 - method.released))
        mu = math.sqrt(SHARE * problem.steps) / problem.noise_multiplier
        self._method = method
        self._constants = torch.tensor([p.constant_value for p in places], device=device)
        logs = torch.as_tensor(np.log(_frequencies(data, mu, seed)), device=device, dtype=torch.float32)
        self._logs = torch.nn.functional.pad(logs, (0, self._weights.shape[2] - data.n_classes))
        if method.centred:
            self._x = self._x - _mean(data, mu, seed).to(self._x)
            self._lengths = torch.linalg.vector_norm(self._x, dim=1)

    def _offsets(self) -> tuple[Tensor | float, Tensor | float]:
        """Return what is added to scores in training, and in predictions."""
        prior = self._constants[:, None] * self._logs[None]
        if self._method.centred:
            return prior, prior
        return {"adjusted": (prior, 0.0), "afterwards": (0.0, -prior)}.get(self._method.kind, (0.0, 0.0))

    def _errors(self, *, look: bool) -> tuple[Tensor, tuple[Tensor, ...] | None]:
        runs, classes = self._weights.shape[1:]
        scores = (self._x @ self._weights.flatten(1)).reshape(len(self._x), runs, classes)
        trained, predicted = self._offsets()
        at = self._labels[:, None, None].expand(-1, runs, 1)
        right = None
        if look:
            shown = scores + predicted
            shown[..., self._n_classes :] = -torch.inf
            right = shown.argmax(2) == self._labels[:, None]
        scores = scores + trained
        scores[..., self._n_classes :] = -torch.inf
        logs = torch.log_softmax(scores, 2)
        losses = -logs.gather(2, at)[..., 0] if look else None
        errors = logs.exp_().scatter_add_(2, at, -torch.ones_like(at, dtype=logs.dtype))
        metric = errors if self._method.kind != "scaled" else errors / self._scales()
        lengths = torch.linalg.vector_norm(metric, dim=2) * self._lengths[:, None]
        factors = self._clip / lengths.clamp_min(self._clip)
        if self._method.kind == "weighted":
            factors = factors * self._row_weights()
        errors *= factors[..., None]
        if losses is None or right is None:
            return errors, None
        by_group = self._by_group(losses), self._by_group(right.to(losses.dtype))
        return errors, (losses.mean(0), *by_group, (lengths > self._clip).to(losses.dtype).mean(0))

    def _scales(self) -> Tensor:
        """Relative noise by class: a power of its frequency."""
        scales = torch.exp(self._constants[:, None] * self._logs[None])
        return scales / scales[:, : self._n_classes].mean(1, keepdim=True)

    def _row_weights(self) -> Tensor:
        """At most 1: a power of the least frequency over that of the row's class."""
        least = self._logs[: self._n_classes].min()
        return torch.exp((least - self._logs)[self._labels, None] * self._constants[None])

    def _noisy_gradient(self, errors: Tensor) -> Tensor:
        runs, classes = self._weights.shape[1:]
        total = (self._x.T @ errors.flatten(1)).reshape(-1, runs, classes) / len(self._x)
        shape = (self._x.shape[1], 1, self._n_classes)
        drawn = torch.randn(shape, generator=self._generators[0], device=total.device, dtype=total.dtype)
        if self._method.kind == "scaled":
            drawn = drawn * self._scales()[None, :, : self._n_classes]
        total[..., : self._n_classes].add_(drawn, alpha=self._stddev)
        if self._method.kind == "decayed":
            self._weights *= (1 - self._constants / self.steps)[None, :, None]
        return total


def _setting(method: Method, place: Place, stddev: float) -> Setting:
    constant = 1.0 if method.kind == "decayed" else place.constant_value  # of Adam itself
    return setting_for(method.optimizer, place.effective_rate, constant, stddev)


def _frequencies(data: LongTail, mu: float, seed: int) -> Floats:
    """Frequencies of classes from counts with noise, each row counting one; at least one row each."""
    noise = np.random.default_rng([seed, 1]).standard_normal(data.n_classes) / mu
    counts = np.maximum(np.bincount(data.labels, minlength=data.n_classes) + noise, 1.0)
    return np.asarray(counts / counts.sum())


def _mean(data: LongTail, mu: float, seed: int) -> Tensor:
    """The mean of clipped inputs, with noise; the number of rows is declared."""
    norms, limit = np.linalg.norm(data.inputs, axis=1, keepdims=True), NORM * math.sqrt(data.inputs.shape[1] / 3)
    total = (data.inputs * np.minimum(1.0, limit / norms)).sum(0, dtype=np.float64)
    noise = np.random.default_rng([seed, 2]).standard_normal(total.shape) * limit / mu
    return torch.as_tensor((total + noise) / len(data.labels))


class RareBench:
    """Runs of methods on a device.

    Args:
        problem: clip norm, noise and steps.
        data: the training rows.
        device: a torch device.
        together: how many runs side by side at most.
    """

    def __init__(self, problem: Problem, data: LongTail, device: str, together: int = 40) -> None:
        self._problem, self._data, self._device, self._together = problem, data, device, together

    def at_the_end(self, method: Method, places: Sequence[Place], seeds: Sequence[int]) -> Floats:
        """Return accuracies by place, seed and group."""
        return np.stack([self._ends(method, places, seed)[0] for seed in seeds], 1)

    def head_at_lowest_loss(self, seeds: Sequence[int]) -> float:
        """Return what DP-GDM has in the head at its lowest loss, among the rates that searches start with."""
        ends = [self._ends(BASELINES[1], [Place(rate) for rate in START_RATES], seed) for seed in seeds]
        accuracies, losses = (np.mean([end[k] for end in ends], axis=0) for k in range(2))
        return float(accuracies[np.argmin(losses), 0])

    def _ends(self, method: Method, places: Sequence[Place], seed: int) -> tuple[Floats, Floats]:
        """Return accuracies by place and group, and losses by place."""
        found, losses = [], []
        if method.kind == "nearest":
            return self._nearest(method, places, seed), np.zeros(len(places))
        for first in range(0, len(places), self._together):
            some = places[first : first + self._together]
            runs = RareRuns(self._data, method, some, self._problem, seed, self._device)
            curves = runs.run(runs.steps, runs.steps)
            found.append(curves.group_accuracy[:, -1])
            losses.append(curves.loss[:, -1])
        return np.concatenate(found), np.concatenate(losses)

    def _nearest(self, method: Method, places: Sequence[Place], seed: int) -> Floats:
        """Return accuracies by place and group of nearest means, with what the released mean and counts leave of μ²."""
        data, whole = self._data, math.sqrt(self._problem.steps) / self._problem.noise_multiplier
        mu = math.sqrt(SHARE) * whole
        mean, frequencies = _mean(data, mu, seed).numpy(), _frequencies(data, mu, seed)
        return accuracies(data, mean, frequencies, math.sqrt(1 - method.released) * whole, places, seed)


def searched(
    bench: RareBench, method: Method, seeds: Sequence[int], distances: Sequence[int], head: float = HEAD
) -> tuple[Place, int, bool]:
    """Return the chosen place, how many were tried, and whether all its neighbours were."""
    search = Search(len(method.constants) > 1, START_RATES, method.constants, distances)
    while places := search.wanted():
        accuracies = bench.at_the_end(method, places, seeds).mean(1)
        search.take({place: _badness(one, head) for place, one in zip(places, accuracies, strict=True)})
    return search.best, len(search.losses), search.resolved


def _badness(accuracies: Floats, asked: float = HEAD) -> float:
    """Less is better: more in the rarest group where the head is good enough; before that, more in the head."""
    head, rarest = float(accuracies[0]), float(accuracies[-1])
    return -rarest if head >= asked else 1.0 - head


def study(
    problem: Problem,
    data: LongTail,
    device: str,
    seeds: Sequence[int],
    methods: Sequence[Method] = METHODS,
    *,
    brief: bool = False,
    head: float = HEAD,
) -> dict[str, dict[str, Any]]:
    """Search every method, and run what was chosen on the other seeds.

    Args:
        problem: clip norm, noise and steps.
        data: the training rows.
        device: a torch device.
        seeds: of the runs that count.
        methods: what is searched.
        brief: one seed for tuning and a coarse search.
        head: the accuracy in the head that a setting must have.
    """
    bench = RareBench(problem, data, device)
    result: dict[str, dict[str, Any]] = {}
    for method in methods:
        tuning, distances = (TUNING_SEEDS[:1], DISTANCES[:1]) if brief else (TUNING_SEEDS, DISTANCES)
        place, tried, resolved = searched(bench, method, tuning, distances, head)
        accuracies = bench.at_the_end(method, [place], seeds)[0]
        result[method.name] = {
            **{name: rounded(accuracies[:, group].mean()) for name, group in _shown(accuracies.shape[1]).items()},
            "group accuracy": rounded(accuracies.mean(0)),
            "head by seed": rounded(accuracies[:, 0]),
            "rarest by seed": rounded(accuracies[:, -1]),
            "effective rate": rounded(place.effective_rate),
            "constant": rounded(place.constant_value) if len(method.constants) > 1 else None,
            "settings tried": tried,
            "resolved": resolved,
        }
    return result


def _shown(n_groups: int) -> dict[str, int]:
    """Return the groups that tables show."""
    return {"head": 0, "middle": 3 * n_groups // 5, "rarest": n_groups - 1}
