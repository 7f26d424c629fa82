"""One fit in an environment of its own, for claims that compare with other trees and other libraries.

Run by path with the interpreter of that environment, whose packages alone it imports:
`python fit_alone.py apportion|lenskit DATA.npz`. Prints the seconds of the fit as JSON. The data are users, tasks and
values as arrays; a fit from data in memory is what is timed.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

FACTORS = 8


def apportion(users: Any, tasks: Any, values: Any) -> float:
    """A default private fit of ratings by the tree of this environment."""
    from apportion.data import Interactions
    from apportion.recommend import PrivateRatingRecommender

    data = Interactions.from_arrays(users, tasks, values)
    data.by_user  # noqa: B018  # builds the order, which is not part of a fit
    start = time.perf_counter()
    PrivateRatingRecommender(epsilon=1.0).fit(data)
    return time.perf_counter() - start


def lenskit(users: Any, tasks: Any, values: Any) -> float:
    """LensKit's BiasedMFScorer with its defaults, but for the number of factors."""
    import pandas as pd  # type: ignore[import-untyped,unused-ignore]
    from lenskit.als import BiasedMFScorer  # type: ignore[import-not-found,unused-ignore]
    from lenskit.data import from_interactions_df  # type: ignore[import-not-found,unused-ignore]

    frame = pd.DataFrame({"user_id": users, "item_id": tasks, "rating": values})
    data = from_interactions_df(frame)
    scorer = BiasedMFScorer(embedding_size=FACTORS)
    start = time.perf_counter()
    scorer.train(data)
    return time.perf_counter() - start


if __name__ == "__main__":
    with np.load(sys.argv[2]) as stored:
        fit = {"apportion": apportion, "lenskit": lenskit}[sys.argv[1]]
        print(json.dumps(fit(stored["users"], stored["tasks"], stored["values"])))
