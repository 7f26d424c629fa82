"""What releases cost, kept in a few numbers: their exact sum is that of all costs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from apportion.errors import BudgetError
from apportion.privacy import Budget, Session
from apportion.privacy.clipped_gradients import number_of_units
from apportion.privacy.neighbours import ADD_REMOVE
from apportion.privacy.spent import Spent


def test_the_exact_sum_of_all_costs_is_compared_with_the_budget():
    rng = np.random.default_rng(0)
    session = Session(Budget(1.0, 1e-6))
    share = session.plan(one=1e-3).one("one")
    session.release("one", number_of_units(3, ADD_REMOVE), share)
    [record] = session.statement().releases
    for _ in range(20):
        costs = (rng.random(300) * 10.0 ** rng.uniform(-14, 0, 300)).tolist()
        whole = math.fsum(costs)
        exact, short = Spent(whole, 0.0), Spent(np.nextafter(whole, 0), 0.0)
        for spent in (exact, short):
            for cost in costs[:-1]:
                spent.refuse_beyond(record, cost)
                spent.take(record, cost)
        exact.refuse_beyond(record, costs[-1])
        with pytest.raises(BudgetError, match="of the budget"):
            short.refuse_beyond(record, costs[-1])
        assert len(exact._costs) < 10


def test_parts_of_delta_that_add_up_to_a_little_too_much_are_refused():
    session = Session(Budget(1.0, 1e-6))
    session.release("one", number_of_units(3, ADD_REMOVE), session.plan(one=1e-3).one("one"))
    [record] = session.statement().releases
    spent = Spent(1.0, 3e-7)
    spent.take(replace(record, delta=1e-7), 0.0)
    spent.take(replace(record, delta=1e-7), 0.0)
    with pytest.raises(BudgetError, match="of delta for a list"):
        spent.refuse_beyond(replace(record, delta=np.nextafter(1e-7, 1)), 0.0)
