"""One default private fit of ratings by whatever tree the interpreter has; prints its seconds.

Run by path, `python fit_alone.py DATA.npz`, with the interpreter of an environment of its own; the data are users,
tasks and values as arrays. Only the fit is timed, from data in memory.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from apportion.data import Interactions
from apportion.recommend import PrivateRatingRecommender


def main(path: str) -> None:
    """Fit and print."""
    with np.load(path) as stored:
        data = Interactions.from_arrays(stored["users"], stored["tasks"], stored["values"])
    assert data.by_user.n_segments == data.n_users  # builds the order, which is not part of a fit
    start = time.perf_counter()
    PrivateRatingRecommender(epsilon=1.0).fit(data)
    print(time.perf_counter() - start)


if __name__ == "__main__":
    main(sys.argv[1])
