"""Claim: optimal weights predict better than sample limiting, and that better than least squares on all rows.

The paper's study of linear regression with private labels at ε = 1, 2 and 3, pure ε-DP: synthetic data over n and over
how unequal users are, and drug reviews with an intercept. In every setting the errors must be in the paper's order, by
the mean of 10 runs and in expectation over the noise, whether the sample limit has the best h on the data or the one of
our public formula; and the weights of all settings must be found to within 1e-5 of the best. Reported beside: drug
reviews without an intercept and with other categories left out, news with drawn sources. See papers/user_contributions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.claim import Outcome, print_table
from papers.user_contributions import drugs, linear, linear_tables, news, synthetic
from papers.user_contributions.linear import ALL_ROWS, BEST_LIMIT, FORMULA_LIMIT, OURS, Floats, Groups, Problem, Scores

RESULTS = Path(__file__).parents[1] / "papers" / "user_contributions" / "results"
QUICK = synthetic.Study(sizes=(300,), exponents=(1.5,), epsilons=(1.0,))
QUICK_RUNS, QUICK_ROWS = 3, 800
LARGEST_GAP = 1e-5
Found = Sequence[Scores]


def measure(quick: bool) -> Outcome:
    """Run all problems, compare, and write tables and figures."""
    study, runs = (QUICK, QUICK_RUNS) if quick else (synthetic.Study(), linear.RUNS)
    generated = {setting: _scores(study.problem(*setting), study, runs) for setting in study.settings()}
    features, ratings, groups = _few(*drugs.standin_drugs(0)) if quick else drugs.load_drugs()
    with_intercept = linear_tables.with_intercept(features)
    reviews = _scores(Problem("drugs, with intercept", with_intercept, ratings, groups), study, runs)
    others: list[Found] = []
    by_left_out: dict[str, Found] = {}
    if not quick:
        others = [
            _scores(problem, study, runs)
            for problem in (Problem("drugs, without intercept", features, ratings, groups), news.load_news())
        ]
        for problem in linear_tables.reviews_by_left_out(features, ratings, groups):
            by_left_out[problem.name] = linear.measure(problem, study.epsilons, runs, linear_tables.COMPARED, _say)
        _write(study, generated, [reviews, *others], by_left_out)
    for found in (*generated.values(), reviews, *others):
        print(f"\n{found[0].problem}: {found[0].about}")
        print_table(linear_tables.header(study.epsilons), linear_tables.table(found))
    return _outcome([scores for each in generated.values() for scores in each], reviews, others, by_left_out, runs)


def _scores(problem: Problem, study: synthetic.Study, runs: int) -> Found:
    return linear.measure(problem, study.epsilons, runs, say=_say)


def _say(line: str) -> None:
    print(line, flush=True)


def _few(features: Floats, ratings: Floats, groups: Groups) -> tuple[Floats, Floats, Groups]:
    return features[:QUICK_ROWS], ratings[:QUICK_ROWS], groups[:QUICK_ROWS]


def _write(
    study: synthetic.Study,
    generated: Mapping[tuple[int, float], Found],
    real: Sequence[Found],
    by_left_out: Mapping[str, Found],
) -> None:
    """Tables as Markdown, curves as drawings."""
    by_n = [(float(n), s) for (n, exponent), each in generated.items() if exponent == study.exponent for s in each]
    by_exponent = [(exponent, s) for (n, exponent), each in generated.items() if n == max(study.sizes) for s in each]
    texts = {
        "table-1.md": linear_tables.to_markdown("Drugs and news (table 1)", real),
        "drugs-by-category.md": linear_tables.left_out_to_markdown(by_left_out),
        "synthetic.md": linear_tables.to_markdown("Synthetic data (figures 1 to 3)", list(generated.values())),
        "error-by-n.svg": synthetic.figure(by_n, "n"),
        "error-by-exponent.svg": synthetic.figure(by_exponent, "α"),
    }
    RESULTS.mkdir(exist_ok=True)
    for name, text in texts.items():
        (RESULTS / name).write_text(text, encoding="utf-8")


def _outcome(
    generated: Found, reviews: Found, others: Sequence[Found], by_left_out: Mapping[str, Found], runs: int
) -> Outcome:
    must = [*generated, *reviews]
    in_order = sum(scores.in_papers_order() for scores in must)
    gap = max(scores.gap for found in (must, *others, *by_left_out.values()) for scores in found)
    value: dict[str, Any] = {
        "in_order": in_order,
        "largest_gap": gap,
        "synthetic_factors": {name: _least_and_most(generated, name) for name in (BEST_LIMIT, FORMULA_LIMIT, ALL_ROWS)},
        "drugs": _errors(reviews),
        "beside": {each[0].problem: _errors(each) for each in others},
        "drugs_in_order_by_left_out": _counts_in_order(by_left_out),
    }
    low, high = value["synthetic_factors"][BEST_LIMIT]
    first = reviews[0]
    shown = ", ".join(f"{name} {first.by_method[name].expected:.3g}" for name in (OURS, BEST_LIMIT, ALL_ROWS))
    headline = (
        f"in order in {in_order} of {len(must)} settings; synthetic: the best sample limit has {low:.1f} to {high:.1f} "
        f"times our error; drugs at ε = {first.epsilon:g}, expected error: {shown}"
    )
    settings = {"runs": runs, "synthetic_seed": synthetic.SEED, "noise_seeds": f"0 to {runs - 1}"}
    target = {"in_order": len(must), "largest_gap": LARGEST_GAP}
    return Outcome(value, target, in_order == len(must) and gap <= LARGEST_GAP, headline, settings)


def _least_and_most(found: Found, method: str) -> list[float]:
    factors = [scores.factors()[method] for scores in found]
    return [min(factors), max(factors)]


def _errors(found: Found) -> dict[str, dict[str, Any]]:
    """At every ε the error of every method, over the runs and in expectation, and whether the order is the paper's."""
    return {
        f"{scores.epsilon:g}": {
            "over_runs": {name: score.mean for name, score in scores.by_method.items()},
            "expected": {n: s.expected for n, s in scores.by_method.items() if not math.isnan(s.expected)},
            "in_order": scores.in_papers_order(),
        }
        for scores in found
    }


def _counts_in_order(by_left_out: Mapping[str, Found]) -> dict[str, int]:
    """At every ε, for how many pairs of categories left out the expected errors are in the paper's order."""
    counted = Counter(f"{s.epsilon:g}" for found in by_left_out.values() for s in found if s.in_expected_order())
    return dict(sorted(counted.items()))
