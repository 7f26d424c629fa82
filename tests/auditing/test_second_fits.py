"""A fit makes and pays all of its releases, also if another fit was made before it in the same process."""

from __future__ import annotations

import pytest

from apportion.privacy import Budget, SeededNoise, Session

from private_estimators import PRIVATE_ESTIMATORS, ratings_by_choice
from strategies import random_interactions

MADE = {name: PRIVATE_ESTIMATORS[name] for name in ("ratings", "clicks", "clicks of default size")}
MADE |= {"ratings by choice": ratings_by_choice}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_nothing_that_was_released_is_kept_for_the_next_fit(make):
    listed = []
    for seed in (5, 6):
        session = Session(Budget(2.0, 1e-5), noise=SeededNoise(seed))
        make().fit(random_interactions(seed), session=session)
        assert 1 - 1e-9 <= session.spent <= 1.0
        listed.append([release.name for release in session.statement().releases])
    assert listed[0] == listed[1]
