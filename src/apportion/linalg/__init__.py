"""Linear algebra over segments: Gram matrices, moments and solves per user or task, and operations on them.

NumPy alone is enough. If the compiled kernel was built, it does the heavy loops. `on_torch` has the same functions for
torch tensors, for example on a GPU. The package is for the library itself: it is not in the reference.
"""

from __future__ import annotations

from apportion.linalg.backend import active_backend, compiled_available, use_backend
from apportion.linalg.information import Information, NoisyDesign, information
from apportion.linalg.kernel import instruction_sets, use_instruction_set
from apportion.linalg.keyed_words import keyed_words
from apportion.linalg.lattice import FACTOR_BITS, lattice_gram, lattice_moment, step_below, whole_steps
from apportion.linalg.mostly_zero import MostlyZero
from apportion.linalg.normals import add_normals, fill_normals
from apportion.linalg.packed import (
    diagonal_positions,
    frobenius_weights,
    pack,
    packed_dim,
    packed_size,
    unpack,
)
from apportion.linalg.psd import project_psd
from apportion.linalg.rating_settings import RatingRound, TaskWeights
from apportion.linalg.rounded_laplace import add_rounded_laplace
from apportion.linalg.rounded_normals import add_rounded_normals
from apportion.linalg.segments import segment_gram, segment_moment, segment_solve, solve_packed
from apportion.linalg.shrinkage import common_shape, shrink_towards
from apportion.linalg.stacks import inverse_or_zero, solve_or_zero
from apportion.linalg.task_counts import task_counts
from apportion.linalg.threads import side_by_side, thread_count
from apportion.linalg.user_rounds import rating_round

__all__ = [
    "FACTOR_BITS",
    "Information",
    "MostlyZero",
    "NoisyDesign",
    "RatingRound",
    "TaskWeights",
    "active_backend",
    "add_normals",
    "add_rounded_laplace",
    "add_rounded_normals",
    "common_shape",
    "compiled_available",
    "diagonal_positions",
    "fill_normals",
    "frobenius_weights",
    "information",
    "instruction_sets",
    "inverse_or_zero",
    "keyed_words",
    "lattice_gram",
    "lattice_moment",
    "pack",
    "packed_dim",
    "packed_size",
    "project_psd",
    "rating_round",
    "segment_gram",
    "segment_moment",
    "segment_solve",
    "shrink_towards",
    "side_by_side",
    "solve_or_zero",
    "solve_packed",
    "step_below",
    "task_counts",
    "thread_count",
    "unpack",
    "use_backend",
    "use_instruction_set",
    "whole_steps",
]
