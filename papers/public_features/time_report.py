"""The time study in Markdown: figure 3 as a table, where the time goes, larger encoders, and the search behind it.

python -m papers.public_features.time_report
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.claim import RESULTS
from papers.public_features import time_rows, time_search

HERE = Path(__file__).parent / "results" / "time.md"
_SHOWN = 12  # settings of each method
_REASONS = """AM-DPSGD needs so few steps because every user takes part in each of them, and steps are cheap because
this encoder is small: a user's gradient is a few hundred numbers in rank-one arrays, made without a pass per rating.
Longer rounds bring nothing. Twice as many rounds are lower by 0.001 from the same starts, at twice the time, which is
less than the spread between starts, so that by the rule the faster decides (see the search). Mini-batches of users, as
in the paper, cost more and end higher.

The factor grows with what Proposition 2 calls c, as the next table shows: a gradient per user has as many numbers as
the encoder, each of them is clipped and rounded for each user, and statistics do not grow at all. Part of that is how
sums are kept here: a user's row is formed so that its bound can be enforced. Clipping by norms that are computed from
the factors of a gradient would make steps of a wide encoder cheaper than in that table.
"""


def report(stored: dict[str, Any]) -> str:
    """All tables, from the stored result of the claim and the trials of the search."""
    parts = [_evolution(stored), _seconds(stored), _why(stored), _larger(stored), _search(), _law(stored)]
    return "\n".join(parts)


def _evolution(stored: dict[str, Any]) -> str:
    settings, factors = stored["settings"], stored["value"]["times_less"]
    rows = [
        [name, f"{seconds:.3f}", f"{error:.4f}"] for name, each in settings["points"].items() for seconds, error in each
    ]
    seeds = len(settings["noise_seeds"])
    text = "# Test RMSE against processor seconds, MovieLens 1M ratings, ε = 5\n\n"
    text += f"After each round; mean error and median seconds over {seeds} seeds of noise and start, one thread.\n\n"
    text += markdown(["method", "seconds", "RMSE"], rows)
    text += "\nTimes less that AM-SSP, set for speed, takes to the best RMSE of each:\n\n"
    shown = [
        [name, factor or "never", "decides" if name == settings["deciding"] else ""] for name, factor in factors.items()
    ]
    return text + markdown(["opponent", "times less", ""], shown)


def _seconds(stored: dict[str, Any]) -> str:
    text = "## Where the time goes\n\nA pass is over the 800,000 ratings of the training part.\n\n"
    rows = [
        [name, value if isinstance(value, int) else f"{value:.4f}"]
        for name, value in stored["settings"]["seconds"].items()
    ]
    return text + markdown(["seconds of", "measured"], rows)


def _why(stored: dict[str, Any]) -> str:
    """What a factor of a hundred would take, in the measured figures."""
    seconds, points = stored["settings"]["seconds"], stored["settings"]["points"]
    theirs, ours = points[time_rows.TUNED][-1], points[time_rows.SPEED][-1]
    milliseconds = {name: f"{1000 * value:.0f} ms" for name, value in seconds.items()}
    sums = sum(value for name, value in seconds.items() if name.startswith("one pass"))
    return f"""## Why not a hundred

AM-DPSGD's best takes {seconds["steps of AM-DPSGD"]} steps of {milliseconds["a step of AM-DPSGD"]}, {theirs[0]:.2f} s
in all. A hundredth of that is {10 * theirs[0]:.0f} ms. AM-SSP takes {1000 * ours[0]:.0f} ms, of which
{milliseconds["before AM-SSP's first round"]} go before any round, most of them into the popularity of movies, and
{milliseconds["a round of AM-SSP"]} into each round. The sums over ratings are the small part: the matrices and vectors
of a round are {1000 * sums:.0f} ms of kernel time. The rest is what users solve for themselves, eigenvectors and
inverses of one small matrix per movie, and the steps of Adam. It gets below AM-DPSGD by {theirs[1] - ours[1]:.4f} only,
less than the spread between starts: with other seeds it may need a third round.

{_REASONS}"""


def _larger(stored: dict[str, Any]) -> str:
    text = "## Larger encoders\n\nOne seed. The target is the least RMSE of the deciding AM-DPSGD, or that of the row "
    text += (
        'itself where it is lower. Rows that say "timed" are not whole runs of AM-DPSGD: one or two steps were timed, '
    )
    text += "and their cost multiplied by the number of steps of the deciding row.\n\n"
    rows = [
        [
            row["encoder"], row["parameters"], f"{row['round_seconds']:.3f}", f"{row['step_seconds']:.3f}",
            _or_never(row["statistics_seconds"]), f"{row['gradient_seconds']:.1f}",
            "run" if row["whole_run"] else "timed",
            "" if row["gradient_error"] is None else f"{row['gradient_error']:.4f}", row["times_less"] or "never",
        ]
        for row in stored["settings"]["larger_encoders"]
    ]  # fmt: skip
    header = [
        "encoder", "parameters", "AM-SSP, a round", "AM-DPSGD, a step", "AM-SSP to target", "AM-DPSGD", "",
        "RMSE of AM-DPSGD", "times less",
    ]  # fmt: skip
    return text + markdown(header, rows)


def _search() -> str:
    found = time_search.trials()
    text = f"## The search\n\n{len(found)} trials on the validation part (`time_search.jsonl`); seconds on a busy "
    text += "machine. Settings that looked best were tried again from other starts, with other noise.\n"
    for method in (time_search.GRADIENT, time_search.STATISTICS):
        made = time_search.summaries(method, found, time_search.STARTS)
        rows = [
            [f"{each['rmse']:.4f} ({each['spread']:.4f})", each["trials"], f"{each['seconds']:.2f}", _words(each)]
            for each in made[:_SHOWN]
        ]
        text += f"\n{method}, from several starts:\n\n" + markdown(["RMSE (sd)", "trials", "seconds", "settings"], rows)
        single = [
            each for each in time_search.summaries(method, time_search.first(found)) if method == time_search.GRADIENT
        ]
        if single:
            rows = [[f"{each['rmse']:.4f}", f"{each['seconds']:.2f}", _words(each)] for each in single]
            text += f"\n{method}, first start and first noise:\n\n" + markdown(["RMSE", "seconds", "settings"], rows)
    return text


def _law(stored: dict[str, Any]) -> str:
    text = "## Cost of training on released statistics\n\n"
    return text + markdown(["against", "measured"], list(stored["value"]["cost_law"].items()))


def markdown(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def _words(summary: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in summary["settings"].items())


def _or_never(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.3f}"


if __name__ == "__main__":
    HERE.write_text(report(json.loads((RESULTS / "features-time.json").read_text(encoding="utf-8"))), encoding="utf-8")
    print(HERE)
