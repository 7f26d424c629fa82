"""The head of the items, by released popularity."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.errors import InputError
from apportion.recommend.features.head import head_by_popularity


def test_the_head_holds_the_most_popular_items_and_at_least_one():
    popularity = np.array([3.0, 9.5, -0.2, 4.1, 4.1])
    assert head_by_popularity(popularity, 0.4).tolist() == [False, True, False, True, False]
    assert head_by_popularity(popularity, 0.01).tolist() == [False, True, False, False, False]
    assert head_by_popularity(popularity, 1.0).all()


@pytest.mark.parametrize("fraction", [0.0, 1.5, float("nan")])
def test_a_fraction_that_makes_no_sense_is_refused(fraction):
    with pytest.raises(InputError, match="fraction of items"):
        head_by_popularity(np.ones(3), fraction)
