"""Mechanisms that claim a guarantee they do not have, each with a twin that has it. None of this is for use."""

from planted import contributions, protected, recommenders, releases, sampling
from planted.cases import ALPHA, Case, Verdict

CASES = tuple(
    case for module in (recommenders, releases, sampling, contributions, protected) for case in module.cases()
)  # fmt: skip

__all__ = ["ALPHA", "CASES", "Case", "Verdict"]
