"""Which tests must notice a mutant of a package, in at most twenty seconds of one core.

Run them as `python -m mutation.audits MUTANT`; the exit code is 0 where nothing was noticed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]

EVERYWHERE = [
    "auditing/test_noise_independence.py::test_no_key_is_used_for_two_draws",
    "engines/conformance/test_sums_over_users.py",
    "recommend/test_replay.py::test_a_user_at_the_bound_moves_every_release_by_nine_tenths_of_it",
]
"""What looks at whole fits and at every kind of contribution."""

OF_PACKAGE = {
    "privacy": ["privacy/contributions", "privacy/test_session.py", "privacy/test_budget.py",
                "privacy/test_gaussian.py", "privacy/test_mechanisms.py", "privacy/test_sampling.py"],
    "engines": ["engines/test_processors.py", "privacy/contributions"],
    "allocation": ["allocation"],
    "estimators": ["privacy/test_session.py", "regression/test_replay.py"],
    "recommend": ["recommend/test_replay.py"],
    "statistics": ["statistics/test_mean.py", "statistics/test_quantile.py"],
    "regression": ["regression/test_replay.py", "regression/test_user_erm.py", "regression/test_label_private.py"],
    "parties": ["parties/test_replay.py", "parties/test_channel.py"],
    "training": ["training/test_private_gradients.py", "training/test_rounding.py"],
}  # fmt: skip


def selection(package: str) -> list[str]:
    """Tests for a mutant of this package, those of the package first."""
    return [str(TESTS / name) for name in (*OF_PACKAGE[package], *EVERYWHERE)]


def main() -> int:
    """Run the selection on one mutant; stop at the first test that fails."""
    sys.path[:0] = [str(TESTS), str(TESTS.parent)]
    os.environ["OMP_NUM_THREADS"] = "1"
    from mutation.sources import Mutant, install

    mutant = Mutant.parse(sys.argv[1])
    install(mutant)
    import pytest

    return int(
        pytest.main(["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--no-header", *selection(mutant.package)])
    )


if __name__ == "__main__":
    sys.exit(main())
