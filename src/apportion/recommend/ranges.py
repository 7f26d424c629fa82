"""Ranges of settings: a number outside is refused when settings are made, before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from apportion.errors import InputError

_ABOVE_0, _AT_LEAST_0 = "above 0", "of at least 0"


def _ranges(above_0: str, at_least_0: str) -> dict[str, str]:
    return {**dict.fromkeys(above_0.split(), _ABOVE_0), **dict.fromkeys(at_least_0.split(), _AT_LEAST_0)}


OF_RATINGS: Final = _ranges(
    "growth clip latent_scale bias_variance scale_variance latent_variance start_scale start_level "
    "prior_variance feature_variance taste_variance choice_taste_variance",
    "dimension rounds exponent popularity_floor overview_share most_overview_share counts_share norms_share "
    "spread_share moments_share votes_share feature_votes_share held_out steps last_steps feature_directions",
)
OF_CLICKS: Final = _ranges(
    "rounds dimension observed ridge head",
    "users_share counts_share ramp steps last_steps votes_share caution popularity_offset least_popularity "
    "feature_directions feature_weight",
)


def refuse_outside(settings: Any, ranges: Mapping[str, str]) -> None:
    """Refuse settings with which a fit would fail or mean nothing; None stands for a default.

    >>> from types import SimpleNamespace
    >>> refuse_outside(SimpleNamespace(clip=None, steps=0), {"clip": "above 0", "steps": "of at least 0"})
    """
    for name, words in ranges.items():
        value = getattr(settings, name)
        if value is None or (math.isfinite(value) and (value > 0 or (value == 0 and words == _AT_LEAST_0))):
            continue
        raise InputError(f"Expected a finite {name} {words}, got {value}.", argument=name)
