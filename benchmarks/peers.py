"""The peers that speed is measured against: seconds of one epoch of implicit ALS, set-up not counted."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from apportion.data import Interactions
from benchmarks.claim import UnavailableError
from benchmarks.scale import best_of, threads


def as_matrix(data: Interactions) -> Any:
    """The data as a users x tasks sparse matrix of ones."""
    ones = np.ones(data.n_observations, np.float32)
    structure = (ones, data.tasks.copy(), data.by_user.indptr.copy())  # peers insist on writable arrays
    return csr_matrix(structure, shape=(data.n_users, data.n_tasks))


def implicit_epoch(matrix: Any, dimension: int, *, exact: bool, epochs: int = 2) -> float:
    """`implicit`: by Cholesky if exact, else by its three conjugate-gradient steps; the faster of the epochs."""
    try:
        from implicit.cpu.als import AlternatingLeastSquares
    except ImportError as missing:
        raise UnavailableError("the package `implicit` is not installed") from missing
    from threadpoolctl import threadpool_limits

    seconds: list[float] = []
    with threadpool_limits(1, "blas"):  # its own threads do the work, as it advises
        model = AlternatingLeastSquares(
            factors=dimension,
            regularization=1.0,
            alpha=2.0,  # at 1 an observed pair adds nothing to its matrix, and the Gram is skipped: no real data is so
            iterations=epochs,
            use_cg=not exact,
            use_native=True,
            num_threads=threads(),
            random_state=0,
        )
        model.fit(matrix, show_progress=False, callback=lambda _epoch, elapsed, _loss: seconds.append(elapsed))
    return min(seconds)


def irspack_epoch(matrix: Any, dimension: int, *, epochs: int = 2) -> float:
    """`irspack`'s iALS by Cholesky, the fastest exact peer found; the faster of the epochs."""
    try:
        from irspack.recommenders import _ials_core as core
    except ImportError as missing:
        raise UnavailableError("the package `irspack` is not installed") from missing
    config = core.IALSModelConfigBuilder().set_K(dimension).set_alpha0(0.1).set_reg(1.0).build()
    solver = core.IALSSolverConfigBuilder().set_solver_type(core.SolverType.CHOLESKY).set_n_threads(threads())
    trainer = core.IALSTrainer(config, matrix)
    return best_of(epochs, lambda: trainer.step(solver.build()))
