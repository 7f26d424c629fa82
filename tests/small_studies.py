"""Small studies and what tests look at in them: the fits that were made, the figures, the files that are left."""

from __future__ import annotations

from types import SimpleNamespace

from apportion.evaluation import Study
from apportion.recommend import methods

OURS = {"method": "ours", "dimension": 2, "rounds": 2}
STATISTICS = {"name": "ssp", "method": "statistics", "dimension": 2, "rounds": 1}
EXPONENTS = {"allocation.exponent": [0.0, 0.25, 0.5]}
LIMIT = {"method": "non-private", "epochs": 2, "dimension": 2}


def table(**changes):
    """A small study of ratings; a table that is None is left out."""
    whole = {
        "data": {"kind": "ratings"},
        "budgets": {"epsilon": [1, 8], "seeds": [0, 1]},
        "methods": [OURS, LIMIT],
    } | changes
    return {name: part for name, part in whole.items() if part is not None}


def study(**changes):
    return Study.from_table(table(**changes))


class Counting:
    """The library's builder, which notes every fit, and can fail or be interrupted at one."""

    def __init__(self, *, interrupt_at=None, fail=lambda spec, epsilon, seed: None):
        self.fits = []
        self.interrupt_at = interrupt_at
        self.fail = fail

    def __call__(self, spec, kind, *, epsilon, delta, noise=None, value_range=(1.0, 5.0)):
        arguments = {"epsilon": epsilon, "delta": delta, "noise": noise, "value_range": value_range}
        estimator = methods.build(spec, kind, **arguments)
        return SimpleNamespace(fit=lambda data: self.fit(estimator, data, spec, epsilon, noise))

    def fit(self, estimator, data, spec, epsilon, noise):
        if len(self.fits) == self.interrupt_at:
            raise KeyboardInterrupt
        self.fits.append((spec["method"], epsilon, None if noise is None else noise.seed))
        self.fail(spec, *self.fits[-1][1:])
        return estimator.fit(data)


def figures(results):
    return {(cell.label, cell.epsilon): [e.to_dict() for e in cell.evaluations] for cell in results.cells}


def unit_files(folder):
    return sorted((folder / "units").glob("*.json"))
