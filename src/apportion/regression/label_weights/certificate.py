"""The quality of a search for optimal label weights: the best objective, the best bound, and the gap between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass
class Certificate:
    """The gap between the best weights and the best lower bound so far, and when to stop.

    Attributes:
        variance: v of the objective v ‖C‖² + A T².
        price: A of the objective.
        tolerance: the gap to reach, as a fraction of the bound.
        max_iterations: limit of iterations.
        progress: called with the number of iterations and the gap after each of them.
        objective: the best objective so far.
        bound: a lower bound on the objective of any weights.
        iterations: number of iterations.
    """

    variance: float
    price: float
    tolerance: float
    max_iterations: int
    progress: Callable[[int, float], None] | None = None
    objective: float = np.inf
    bound: float = 0.0
    iterations: int = 0

    @property
    def ratio(self) -> float:
        """The ratio ρ of price and variance."""
        return self.price / self.variance if self.variance > 0 else np.inf

    @property
    def gap(self) -> float:
        """How far the best weights are above the bound, as a fraction of it."""
        return self.objective / self.bound - 1 if self.bound > 0 else np.inf

    @property
    def met(self) -> bool:
        """Whether the gap is small enough."""
        return self.gap <= self.tolerance

    @property
    def over(self) -> bool:
        """Whether to stop."""
        return self.met or self.iterations >= self.max_iterations

    def improves(self, squares: float, cap: float) -> bool:
        """Record weights by their ‖C‖² and T, and return whether they are the best so far."""
        objective = self.variance * squares + self.price * cap**2
        better = objective < self.objective
        self.objective = min(objective, self.objective)
        return better

    def bounded(self, *bounds: float) -> None:
        """Record lower bounds."""
        self.bound = max(self.bound, *bounds)

    def report(self) -> None:
        """Call `progress`, if there is one."""
        if self.progress is not None:
            self.progress(self.iterations, self.gap)
