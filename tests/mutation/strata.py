"""A seeded sample of mutants. It draws more mutants from functions in which earlier mutants broke privacy."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from mutation.operators import OPERATORS
from mutation.sources import Mutant

AGAIN, ENOUGH = 0.6, 12
"""How often a function is drawn where privacy was broken before, until so many mutants of it break privacy."""

LIKELY = {
    name: 3.0 if any(word in name for word in ("clip", "bound", "minimum", "max", "min ", "number_of_users")) else 2.0
    for name in OPERATORS
    if not any(word in name for word in ("arguments", "kept", "named", "truth", "choice", "unequal", "is not"))
}
"""Operators that are drawn more often at the start: others crash most of the time."""


class Strata:
    """Mutants by function and operator: each is drawn from, more often where privacy was broken before.

    A function is drawn first, then an operator that changes something in it. Packages with fewer mutants that break
    privacy come before others. Draws follow from the seed and from what was told of the draws before.

    Args:
        mutants: to draw from.
        seed: of the draws.
        function: the function that a mutant changes; the first line, 0 for none.
    """

    def __init__(self, mutants: Sequence[Mutant], seed: int, function: Callable[[Mutant], int]) -> None:
        self._chance = random.Random(seed)  # which mutants are looked at is no secret
        self._held: dict[tuple[str, int], dict[str, list[Mutant]]] = defaultdict(lambda: defaultdict(list))
        self._function = {mutant: function(mutant) for mutant in mutants}
        for mutant in mutants:
            self._held[mutant.module, self._function[mutant]][mutant.operator].append(mutant)
        for operators in self._held.values():
            for held in operators.values():
                self._chance.shuffle(held)
        self._tried, self._broken = Counter[object](), Counter[object]()

    def draw(self) -> Mutant | None:
        """The next one; None after the last."""
        if not self._held:
            return None
        again = [place for place in self._held if 0 < self._broken[place] < ENOUGH and self._share(place) > 0.1]
        places = again if again and self._chance.random() < AGAIN else list(self._held)
        (place,) = self._chance.choices(places, list(map(self._place_weight, places)))
        operators = self._held[place]
        (operator,) = self._chance.choices(list(operators), list(map(self._operator_weight, operators)))
        mutant = operators[operator].pop()
        if not operators[operator]:
            del operators[operator]
        if not operators:
            del self._held[place]
        self._tried.update(self._names(mutant))
        return mutant

    def tell(self, mutant: Mutant, *, breaks: bool) -> None:
        """Say whether one that was drawn breaks privacy."""
        self._broken.update({name: int(breaks) for name in self._names(mutant)})

    def _names(self, mutant: Mutant) -> list[object]:
        function = self._function[mutant]
        return [mutant.operator, mutant.module, (mutant.module, function), bool(function), ("package", mutant.package)]

    def _share(self, name: object) -> float:
        """That broke privacy of those that were drawn, with a start at one in five."""
        return (1 + self._broken[name]) / (5 + self._tried[name])

    def _operator_weight(self, operator: str) -> float:
        return self._share(operator) * LIKELY.get(operator, 1.0)

    def _place_weight(self, place: tuple[str, int]) -> float:
        module, function = place
        full = (1 + self._broken["package", module.split(".")[1]]) ** 0.5
        return self._share(place) * self._share(module) * self._share(bool(function)) / full
