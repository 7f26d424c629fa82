"""LensKit's fit of explicit ratings by whatever tree the interpreter has; prints its seconds.

Run by path, `python lenskit_alone.py DATA.npz FACTORS`, with the interpreter of an environment of its own; the data are
users, tasks and values as arrays. Only the fit is timed, from data in memory.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pandas as pd
from lenskit.als import BiasedMFScorer
from lenskit.data import from_interactions_df
from lenskit.training import TrainingOptions


def main(path: str, factors: str) -> None:
    """Fit and print."""
    with np.load(path) as stored:
        columns = {"user_id": stored["users"], "item_id": stored["tasks"], "rating": stored["values"]}
    data = from_interactions_df(pd.DataFrame(columns))
    times = []
    for _ in range(3):
        scorer = BiasedMFScorer(embedding_size=int(factors))
        start = time.perf_counter()
        scorer.train(data, TrainingOptions(rng=0))
        times.append(time.perf_counter() - start)
    print(min(times))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
