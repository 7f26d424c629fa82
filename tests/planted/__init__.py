"""Mechanisms that claim a guarantee they do not have, each with a twin that has it. None of this is for use."""

from importlib import import_module
from importlib.util import find_spec

from planted import (
    allocations,
    clusters,
    contributions,
    files,
    groups,
    key_rounds,
    keys,
    noise,
    on_disk,
    parties,
    peers,
    pipelines,
    recommenders,
    regressions,
    releases,
    sampling,
)
from planted.cases import ALPHA, Case, Verdict

_WITH_TORCH = [import_module(f"planted.{name}") for name in ("encoders", "training") if find_spec("torch") is not None]
CASES = tuple(
    case
    for module in (
        recommenders,
        allocations,
        releases,
        sampling,
        contributions,
        regressions,
        parties,
        keys,
        on_disk,
        files,
        groups,
        key_rounds,
        noise,
        peers,
        pipelines,
        clusters,
        *_WITH_TORCH,
    )
    for case in module.cases()
)

__all__ = ["ALPHA", "CASES", "Case", "Verdict"]
