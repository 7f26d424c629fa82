"""What the page of claims shows of each claim: its theme, what is measured, and two short cells from its stored result.

A claim that has no row of its own is listed under `OTHER` with its headline, until somebody writes one.
"""

from __future__ import annotations

from benchmarks.cells import (
    Row,
    best_of_six,
    gains,
    in_order,
    least,
    ordered,
    rarest,
    rarest_of_text,
    rivals,
    span,
    span_of,
)

OTHER = "Not grouped yet"

RECOMMENDERS = {
    "ml1m-ratings": Row(
        "MovieLens 1M, test RMSE at ε = 1 / 5 / 20, defaults",
        lambda r: in_order(r["value"]),
        lambda r: (
            f"without privacy {r['settings']['non_private']['als']:.4f}, "
            f"item and user means {r['settings']['non_private']['damped_means']:.4f}"
        ),
    ),
    "topk-ratings": Row(
        "ratings ranked by choice, 2 data sets at ε = 1 / 5 / 20: what misses recall, coverage or RMSE",
        lambda r: "; ".join(r["value"]["misses"]) or "nothing",
        lambda r: "nothing (recall 0.9 of clicks, coverage 3 times that by value, RMSE + 0.002)",
    ),
    "ml1m-ratings-tuned": Row(
        "MovieLens 1M, test RMSE at ε = 1 / 5 / 20, tuned on its validation part (not covered by ε)",
        lambda r: in_order(r["value"]),
        lambda r: f"at most {in_order(r['target'], 3)}",
    ),
    "ml1m-clicks": Row(
        "MovieLens 1M clicks, test Recall@20 at ε = 1 / 5 / 20, defaults",
        lambda r: in_order(r["value"]),
        lambda r: (
            f"without privacy {r['settings']['non_private']['als']:.4f}, "
            f"popularity {r['settings']['non_private']['popularity']:.4f}"
        ),
    ),
    "skew-ml1m": Row(
        "MovieLens 1M against six published methods, each tuned: RMSE and Recall@20 at ε = 1 / 5 / 20",
        lambda r: f"{in_order(r['value']['ratings']['ours'], 3)} and {in_order(r['value']['clicks']['ours'], 3)}",
        lambda r: f"best of six {in_order(best_of_six(r, 'ratings'), 3)} and {in_order(best_of_six(r, 'clicks'), 3)}",
    ),
    "features-prior": Row(
        "MovieLens 1M with public genres and years: RMSE at ε = 1 / 5 / 20",
        lambda r: in_order(r["value"]["ratings"]),
        lambda r: f"without features {in_order(r['value']['ratings, by id alone'])}",
    ),
    "features-cold": Row(
        "movies that nobody rated in training, ε = 5: Recall@20 among them",
        lambda r: f"{r['value']['MovieLens clicks']['features']:.3f}",
        lambda r: (
            f"random {r['value']['MovieLens clicks']['random']:.3f}, "
            f"predicted popularity {r['value']['MovieLens clicks']['predicted popularity']:.3f}"
        ),
    ),
    "adaptive-floor": Row(
        "ratings: cases within 0.2 % of the better of private means and the global mean",
        lambda r: f"{r['value']['within']} of {r['value']['cases']}, worst {100 * r['value']['worst_excess']:+.1f} %",
        lambda r: "all",
    ),
    "adaptive-floor-clicks": Row(
        "clicks: cases with at least 0.98 of the recall of private popularity",
        lambda r: f"{r['value']['within']} of {r['value']['cases']}",
        lambda r: "all",
    ),
    "adaptive-floor-features": Row(
        "ratings with worthless features: cases within 0.2 % of the fit without them",
        lambda r: f"{r['value']['within']} of {r['value']['cases']}, mean cost {100 * r['value']['mean']:+.2f} %",
        lambda r: "all",
    ),
    "adaptive-gain": Row(
        "several data sets: mean gain over the best simple thing, not private, at ε = 1 / 5 / 20, in %",
        lambda r: gains(r["value"]["gain"]),
        lambda r: f"earlier {gains(r['target']['gain'])}",
    ),
    "price-of-privacy": Row(
        "`apportion plan`, ratings: forecasts within 2 % of fits that the law had not seen",
        lambda r: f"{r['value']['within']} of {r['value']['fits']}, furthest {100 * r['value']['furthest']:.1f} %",
        lambda r: "all",
    ),
    "items-private": Row(
        "a private list of items, a million users, ε = 1: RMSE over that of a public list; items listed",
        lambda r: f"{r['value']['cost']:+.5f}; {r['value']['generated']['listed']} of {r['settings']['items']}",
        lambda r: f"at most {r['target']['cost']}",
    ),
    "keys-recall": Row(
        "private lists of keys: keys and rows kept, over the best peer of each cell",
        lambda r: f"at least {r['value']['least_ratio']:.3f} times",
        lambda r: f"{r['target']['least_ratio']:.0f}",
    ),
}

GUARANTEES = {
    "replay": Row(
        "difference of a hidden sum on neighbours, over its declared sensitivity, all estimators",
        lambda r: f"at most {r['value']['largest']:.9f}",
        lambda r: "1",
    ),
    "replay-at-size": Row("the same as `replay`, on data of full size"),
    "planted-bugs": Row(
        "planted privacy bugs that the auditor catches; correct twins that it passes",
        lambda r: f"{r['value']['caught']} and {r['value']['twins_passed']} of {r['value']['bugs']}",
        lambda r: "all",
    ),
    "noise-independence": Row("noise that does not repeat and does not depend on data"),
    "bytes-equal": Row("bytes of files that depend on anything private but released values"),
    "mutants": Row("machine-made faults in the guarantee that tests catch"),
    "canaries-on-engines": Row(
        "ε that canary users show in whole fits on any engine; of engines that count users twice",
        lambda r: f"at most {r['value']['shown']:.2f}; at least {r['value']['counted twice']:.2f}",
        lambda r: f"{r['settings']['epsilon']:g}",
    ),
    "audit-tight": Row(
        "share of ε that audits show on worst-case releases",
        lambda r: span({name: share for name, share in r["value"].items() if name.startswith(("Lap", "Gau"))}),
        lambda r: str(r["target"]["releases"]),
    ),
    "audit-published": Row(
        "a published recipe that prints ε = 1 / 5 / 20: the ε that its noise supports",
        lambda r: f"{in_order({e: found['twin_supported'] for e, found in r['value'].items()}, 1)} repaired",
        lambda r: f"{in_order({e: found['supported'] for e, found in r['value'].items()}, 1)} as published",
    ),
    "contributions-audit": Row(
        "share of ε that the best attacker shows, means and regressions",
        lambda r: span(r["value"]),
        lambda r: str(r["target"]["part of epsilon"]),
    ),
    "exact-mode": Row(
        "sums told apart by their last bits; cost of an exact round",
        lambda r: f"{100 * r['value']['told apart by bits: exact']:.0f} %; {r['value']['cost']:.2f} times a float one",
        lambda r: f"plain floats {100 * r['value']['told apart by bits: plain sum']:.0f} %",
    ),
    "ledger-crash": Row(
        "ledger with processes killed at random: overspends and lost charges",
        lambda r: ", ".join(f"{name} {found['overspent'] + found['lost']}" for name, found in r["value"].items()),
        lambda r: "0",
    ),
    "resume": Row(
        "fits killed at random and gone on with: other models, and draws without a charge",
        lambda r: f"{r['value']['other_models']} and {r['value']['draws_over_charges']} in {r['value']['kills']} kills",
        lambda r: "0 and 0",
    ),
    "wishart-broken": Row(
        "published Wishart mechanism: largest share of ε that an attacker shows",
        lambda r: f"{r['value']['largest_part_of_epsilon_shown_of_ours']:.2f} (our releases)",
        lambda r: "as published, certainty with probability 1 − e^(−ε)",
    ),
    "wishart-profile": Row(
        "exact profile of Wishart noise: settings that agree with simulation",
        lambda r: f"{r['value']['agree']} of {r['value']['cells']}",
        lambda r: "all",
    ),
    "skew-planted": Row(
        "errors of the skew paper and its code, planted: sensitivity exceeded by a factor",
        lambda r: f"{r['value']['gradient descent']:.0f} repaired",
        lambda r: (
            f"{min(found for name, found in r['value'].items() if name.startswith('E')):.1f} or more as published"
        ),
    ),
    "optim-accounting": Row(
        "stated ε of trainings against dp_accounting, relative difference",
        lambda r: f"{r['value']['largest relative difference']:.0e}",
        lambda r: f"at most {r['target']['largest relative difference']:g}",
    ),
}

STATISTICS = {
    "mean-vs-peers": Row(
        "means: error over that of the best sample limit in hindsight",
        lambda r: f"{r['value']['ratio on average']:.2f} on average, above 1 in {r['value']['cells above 1']} cells",
        lambda r: "at most 0.8 on average, above 1 in none",
    ),
    "quantile-vs-peers": Row("quantiles against sample limits"),
    "groupby-error": Row(
        "by group: error over that of the best peer in hindsight; cells whose intervals cover 94 to 98 %",
        lambda r: (
            f"{r['value']['ratio on average']:.2f} on average, above 0.8 in {r['value']['cells above 0.8']} of "
            f"{len(r['value']['cells'])} cells; {len(r['value']['cells']) - r['value']['cells outside 94 to 98 %']}"
        ),
        lambda r: "at most 0.8; all",
    ),
    "coverage-real": Row("coverage of intervals on real data"),
    "regress-real": Row(
        "linear regression: error over the better of sample limit and no bound",
        lambda r: f"median {r['value']['median_ratio']:.2f}, worst {r['value']['worst_ratio']:.2f}",
        lambda r: f"worst at most {r['target']['worst_ratio']:.0f}",
    ),
    "erm-floor": Row(
        "logistic regression: log loss over that of a private constant",
        lambda r: f"at most {r['value']['worst']:.4f}",
        lambda r: f"{r['target']['worst']} asked; without the floor {r['value']['worst_without_floor']:.2f}",
    ),
    "contributions-examples": Row(
        "largest ratio of variances that hill climbing finds, means",
        lambda r: f"{r['value']['largest_ratio_climbing']:.4f}",
        lambda r: f"at most {r['target']['at_most']['largest_ratio_climbing']:g} proved",
    ),
    "contributions-linear": Row(
        "private labels, generated data: error of the best sample limit over ours",
        lambda r: "{:.1f} to {:.1f}".format(*r["value"]["synthetic_factors"]["sample limit, best h on the data"]),
        lambda r: "above 1",
    ),
    "contributions-logistic": Row(
        "drug reviews: budgets at which weights beat sample limits, and these beat no bound",
        lambda r: f"{r['value']['in_order']}",
        lambda r: f"{r['target']['in_order']}",
    ),
    "contributions-threshold": Row(
        "seconds to find the threshold for 10,000,000 users",
        lambda r: f"{r['value']['seconds']:.1f}",
        lambda r: f"at most {r['target']['seconds']:.0f}",
    ),
    "contributions-coverage": Row(
        "95 % intervals: how often they hold the truth, least of all settings",
        lambda r: f"{100 * min(r['value'][name] for name in r['value'] if name.startswith(('mean', 'coef'))):.1f} %",
        lambda r: "at least 94 %",
    ),
    "gwa-scale": Row(
        "optimal weights for a million rows: seconds",
        lambda r: f"{r['value']['seconds_p1']:.0f} (Laplace), {r['value']['seconds_p2']:.0f} (Gaussian)",
        lambda r: f"at most {r['target']['seconds']:g}",
    ),
}

PARTIES = {
    "protected-tradeoff": Row(
        "School data, nMSE from ε = 0.1 to 10",
        lambda r: "{:.3f} to {:.3f}".format(r["value"]["School"]["ours"][0], r["value"]["School"]["ours"][-1]),
        lambda r: (
            f"alone {min(r['value']['School']['alone'].values()):.3f}, "
            f"joint without privacy {r['value']['School']['joint, not private']:.3f}"
        ),
    ),
    "protected-em": Row(
        "parties that learn together, generated low-rank data: nMSE at ε = 1 / 3 / 10",
        lambda r: in_order({e: r["value"]["low-rank"][f"epsilon {e}"][0] for e in ("1", "3", "10")}, 3),
        lambda r: f"each party alone {r['value']['low-rank']['alone'][0]:.3f}",
    ),
    "parties-floor": Row(
        "parties that learn together: worst nMSE over the best of alone, private mean and EM without a mean",
        lambda r: f"{r['value']['worst over best']:.3f}",
        lambda r: f"at most {r['target']['worst over best']:g}",
    ),
    "protected-degrades": Row(
        "at ε = 0.000001: relative difference from learning alone",
        lambda r: f"{r['value']['largest relative gap']:g}",
        lambda r: f"at most {r['target']['largest relative gap']:g}",
    ),
    "protected-schedule": Row(
        "exponent of the budget over rounds, best measured: plain and with momentum",
        lambda r: f"{r['value']['plain']['best alpha']} and {r['value']['momentum']['best alpha']}",
        lambda r: "0 and 0.4 in theory",
    ),
    "protected-scale": Row(
        "10,000 tasks with 200 features: seconds a round of EM",
        lambda r: f"{r['value']['seconds a round']['em']:.1f}",
        lambda r: f"at most {r['target']['seconds a round']:g}",
    ),
}

LEARNING = {
    "heavytail-mnist": Row(
        "barcode MNIST, ε = 10: accuracy in the rarest group, DP-AdamBC (claimed: every loss falls)",
        lambda r: f"{rarest(r, 'DP-AdamBC'):.1f} %",
        rivals,
    ),
    "heavytail-synthetic": Row(
        "255 classes: accuracy on the rarest, DP-AdamBC (claimed: the paper's orders)",
        lambda r: f"{rarest(r, 'DP-AdamBC'):.1f} %",
        rivals,
    ),
    "heavytail-pairs": Row(
        "other clip norms and noise: the paper's order; DP-Adam nearer at less noise",
        lambda r: f"{ordered(r)}; {'yes' if r['value']['Adam nearer at less noise'] else 'no'}",
        lambda r: "every pair; yes",
    ),
    "heavytail-text": Row(
        "text, new head on a fixed model, ε = 3.2: accuracy in the rarest group, DP-AdamBC (claimed: every loss falls)",
        lambda r: rarest_of_text(r, "DP-AdamBC"),
        lambda r: ", ".join(f"{name} {rarest_of_text(r, name)}" for name in ("DP-GD", "DP-GDM", "DP-Adam")),
    ),
    "optim-exact": Row(
        "optimizers against their twins without noise, largest difference",
        lambda r: f"{r['value']['largest difference']:.0e}",
        lambda r: f"at most {r['target']['largest difference']:g}",
    ),
    "rare-classes": Row(
        "rarest of 31 classes at no less in the head, over the best of the paper's optimizers",
        lambda r: f"{r['value']['ratio']:.2f} times ({r['value']['best']})",
        lambda r: "at least 1.3 times",
    ),
    "rare-real": Row(
        "rarest classes of Barcode MNIST and drug conditions at no less in the head, over the best of the paper's",
        lambda r: ", ".join(f"{name} {ratio:.2f} times" for name, ratio in r["value"]["ratios"].items()),
        lambda r: "at least 1.3 times",
    ),
    "optim-unbiased": Row(
        "DP-AdamBC's second moment: error in standard errors",
        lambda r: f"{r['value']['largest error of v̂ − n̂, in standard errors']:.1f}",
        lambda r: f"uncorrected {r['value']['least error of v̂, in standard errors']:.0f}",
    ),
    "optim-speed": Row(
        "private steps of a CNN on one core, samples a second over those of Opacus",
        lambda r: (
            f"{r['value']['ours over Opacus, hooks']:.2f} and {r['value']['ours over Opacus, ghost clipping']:.2f}"
        ),
        lambda r: "1 (hooks and ghost clipping)",
    ),
    "trainer-fits": Row(
        "what the trainer takes: tests that pass, and what is missing",
        lambda r: f"{r['value']['passed']} pass; missing: {', '.join(r['value']['missing']) or 'nothing'}",
        lambda r: "all pass, nothing missing",
    ),
    "trainer-speed": Row(
        "private steps on one core over those of Opacus: least for rows, least for users",
        lambda r: " and ".join(f"{least(r, f'{unit}, over'):.2f}" for unit in ("rows", "users")),
        lambda r: "1 and 2",
    ),
}


PUBLISHED = {
    "skew-synthetic": Row(
        "generated tasks: error with equal weights over that with the best exponent",
        lambda r: f"{min(r['value']['least_factor'].values()):.2f} to {max(r['value']['largest_factor'].values()):.2f}",
        lambda r: "above 1",
    ),
    "skew-theory": Row(
        "powers in the excess risk: largest deviation from theory",
        lambda r: f"{r['value']['largest_deviation']:.3f}",
        lambda r: f"at most {r['target']['largest_deviation']}",
    ),
    "skew-weights": Row(
        "objective of closed-form weights over that of joint ones",
        lambda r: "{:.2f} to {:.2f}".format(*r["value"]["gain_joint_from_scaled"][::2]),
        lambda r: "at least 1",
    ),
    "features-ml1m": Row(
        "AM-SSP on MovieLens 1M with genres and years: RMSE at ε = 1 / 5 / 20",
        lambda r: in_order(r["value"]["ratings"]["AM-SSP, features + own"]),
        lambda r: f"AM-DPSGD {in_order(r['value']['ratings']['AM-DPSGD, features + own'])}",
    ),
    "features-scaling": Row(
        "power of the number of features in the excess risk under a norm constraint, SSP-c",
        lambda r: f"{r['value']['p']['SSP-c, ball']:.2f}",
        lambda r: f"noisy gradient descent {r['value']['p']['noisy gradient descent, ball']:.2f}",
    ),
    "features-time": Row(
        "time of AM-DPSGD, tuned, over that of AM-SSP at equal RMSE",
        lambda r: f"{r['value']['times_less']['AM-DPSGD, tuned']:.0f}",
        lambda r: f"{r['target']['times_less']:g} asked",
    ),
    "features-sparse": Row(
        "a million features: dense gradients; peak memory",
        lambda r: f"{r['value']['dense_gradients']}; {r['value']['peak_mib']} MiB",
        lambda r: "0",
    ),
    "features-convex": Row(
        "SSP-convex, liked or not: log loss at ε = 1 / 5 / 20",
        lambda r: in_order({e: found["log_loss"] for e, found in r["value"]["convex"].items()}),
        lambda r: f"quadratic {in_order({e: found['log_loss'] for e, found in r['value']['quadratic'].items()})}",
    ),
}

GPU_FITS = ("ratings 10M", "clicks 10M", "ratings 100M")
SPEED = {
    "epoch-vs-peers": Row(
        "one exact ALS epoch, d = 64: time over that of irspack and implicit",
        lambda r: f"{r['value']['d=64/irspack']:.2f} and {r['value']['d=64/implicit']:.2f}",
        lambda r: f"at most {r['target']['d=64/irspack']} and {r['target']['d=64/implicit']}",
    ),
    "round-vs-implicit": Row(
        "a private round on 10 million rows, d = 64: time over an exact epoch of implicit",
        lambda r: f"{r['value']['round']:.2f}",
        lambda r: f"at most {r['target']['round']}",
    ),
    "groupby-scale": Row(
        "counts and means by group: time over PipelineDP's at 2 million rows; minutes for 100 million rows",
        lambda r: f"{r['value']['ratio']:.4f}; {r['value']['minutes at 100M rows']:.1f}",
        lambda r: f"at most {r['target']['ratio']}; {r['target']['minutes at 100M rows']:g}",
    ),
    "recommend-speed": Row(
        "20 best items for 100,000 users: time over implicit's",
        lambda r: f"{r['value']['ratio']:.2f}",
        lambda r: f"at most {r['target']['ratio']:.0f}",
    ),
    "ratings-fit-speed": Row(
        "a private fit of 10M ratings over implicit's; over ours at an earlier commit; MovieLens 1M over LensKit's",
        lambda r: " / ".join(f"{r['value'][name]:.2f}" for name in ("fit", "before", "lenskit")),
        lambda r: " / ".join(f"{r['target'][name]:.2f}" for name in ("fit", "before", "lenskit")),
    ),
    "gpu-fit": Row(
        "private fits on one NVIDIA H200, seconds: 10M ratings, 10M clicks, 100M ratings",
        lambda r: " / ".join(f"{r['value'][name]:.1f}" for name in GPU_FITS),
        lambda r: "at most " + " / ".join(f"{r['target'][name]:.0f}" for name in GPU_FITS),
    ),
    "linear-growth": Row(
        "growth of a fit's time when rows double, 1M to 64M ratings; 1M to 16M clicks",
        lambda r: "; ".join(span_of(r["value"], kind) for kind in ("ratings", "clicks")),
        lambda r: "; ".join("{:g} to {:g}".format(*r["target"][kind]) for kind in ("ratings", "clicks")),
    ),
    "read-speed": Row(
        "25M rows with text ids become `Interactions`, over the time in which DuckDB sorts the file: CSV; Parquet",
        lambda r: f"{r['value']['csv']:.2f}; {r['value']['parquet']:.2f}",
        lambda r: f"at most {r['target']['csv']}",
    ),
    "memory": Row(
        "`apportion fit` on a CSV of 25 million ratings: peak memory",
        lambda r: f"{r['value']['csv_fit_gib']:.2f} GiB",
        lambda r: f"at most {r['target']['csv_fit_gib']:.0f} GiB",
    ),
    "disk-scale": Row(
        "ratings fitted from disk: peak memory, and time over that of memory",
        lambda r: (
            f"{r['value']['ratings'] / 1e6:.0f}M within {r['value']['peak_gib']:.2f} GiB, "
            f"{r['value']['over_memory']:.2f}"
        ),
        lambda r: f"at most {r['target']['peak_gib']:.0f} GiB, {r['target']['over_memory']}",
    ),
    "spark-vs-als": Row(
        "a private fit of 10M ratings on Spark: time over that of Spark's ALS; over that of memory",
        lambda r: f"{r['value']['over_als']:.2f}; {r['value']['over_memory']:.2f}",
        lambda r: f"at most {r['target']['over_als']:.0f}; {r['target']['over_memory']:.0f}",
    ),
    "serve-load": Row(
        "serving 20,000 items to 64 clients: requests a second over FastAPI with implicit",
        lambda r: f"{r['value']['requests_ratio']:.2f}",
        lambda r: f"at least {r['target']['requests_ratio']:.0f}",
    ),
}

HOUSE = {
    "spark-faults": Row(
        "fits on a Spark cluster whose executors are killed: wrong sums",
        lambda r: f"{r['value']['wrong']} of {r['settings']['fits']}, {r['value']['executors killed']} killed",
        lambda r: "0",
    ),
    "engines-agree": Row(
        "whole numbers that differ between engines and cuts of the users",
        lambda r: f"{r['value']['unequal']} of {r['value']['numbers']:,}",
        lambda r: "0",
    ),
    "federated-agrees": Row(
        "fits over 500 simulated clients: numbers that differ from a fit in memory",
        lambda r: f"{sum(r['value']['unequal'].values())}",
        lambda r: "0",
    ),
    "federated-masks": Row(
        "views of a federation's server that are not uniform; planted weak masks found",
        lambda r: (
            f"{r['value']['not_uniform']} of {r['value']['vectors']}; {sum(r['value']['caught'].values())} of "
            f"{len(r['value']['caught'])}"
        ),
        lambda r: "0; all",
    ),
    "federated-dropouts": Row(
        "passes with 30 % of clients leaving: wrong sums",
        lambda r: f"{r['value']['wrong']} of {r['value']['runs']}, {r['value']['refused']} refused",
        lambda r: "0",
    ),
    "federated-liars": Row(
        "one of 50 clients sends -1,000 times its sums: error over that of honest clients, under masks; silos checked",
        lambda r: f"{r['value']['ruined']:.2f}; {r['value']['worst_checked']:.3f}",
        lambda r: f"at least {r['target']['ruined']:.2f}; at most {r['target']['worst_checked']:.2f}",
    ),
    "federated-noise": Row(
        "noise in clients' shares under the worst allowed collusion: audited ε",
        lambda r: f"{r['value']['counted']['epsilon']:.2f}",
        lambda r: f"at most {r['value']['claimed']:.2f}",
    ),
    "federated-scale": Row(
        "a client among 10,000, for 10^5 numbers: megabytes sent, seconds; one mask over SecAgg+'s time",
        lambda r: (
            f"{r['value']['costs'][-1]['sent'] / 1e6:.2f} MB, {r['value']['costs'][-1]['client']:.2f} s; "
            f"{r['value']['mask_seconds']['ours'] / r['value']['mask_seconds']['secaggplus']:.2f}"
        ),
        lambda r: f"bytes within {100 * (r['target']['bytes_ratio'] - 1):.0f} % of the formula",
    ),
    "ids-fuzz": Row(
        "generated lists of ids: ids merged, split or changed",
        lambda r: (
            f"{r['value']['merged'] + r['value']['split'] + r['value']['changed']} in {r['value']['lists']:,} lists"
        ),
        lambda r: "0",
    ),
    "first-hour": Row(
        "generated files that a new user fits: tracebacks, lost budget, half models or wrong outcomes",
        lambda r: f"{len(r['value']['wrong'])} of {r['value']['files']}",
        lambda r: "0",
    ),
    "explorer-browser": Row(
        "the explorer in Chromium: failed interactions; requests to a network",
        lambda r: f"{len(r['value']['failed'])} of {r['value']['interactions']}; {r['value']['requests']}",
        lambda r: "0; 0",
    ),
    "exports": Row(
        "exports read without apportion: lists with other items",
        lambda r: f"{r['value']['other_items']} of {r['value']['histories']}",
        lambda r: "0",
    ),
    "registry": Row(
        "records for the OpenDP deployment registry, highest tier: empty or wrong fields",
        lambda r: f"{r['value']['problems']} in {r['value']['records']} records of {r['value']['fields']} fields",
        lambda r: "0",
    ),
    "docs-runs": Row(
        "blocks of code and gallery scripts that fail; warnings of the site's build",
        lambda r: f"0 of {r['value']['blocks_and_scripts']}; {r['value']['warnings']}",
        lambda r: "0; 0",
    ),
    "house": Row(
        "lines of a function, median and 90th percentile",
        lambda r: f"{r['value']['median']:.0f} and {r['value']['p90']:.0f}",
        lambda r: f"at most {r['target']['at_most']['median']} and {r['target']['at_most']['p90']}",
    ),
}

THEMES = {
    "Recommenders": RECOMMENDERS,
    "Guarantees": GUARANTEES,
    "Means, quantiles, regressions": STATISTICS,
    "Parties": PARTIES,
    "Deep learning": LEARNING,
    "Published methods": PUBLISHED,
    "Speed and memory": SPEED,
    "The library itself": HOUSE,
}


def theme_of(claim: str) -> str:
    """The theme under which a claim is listed."""
    return next((theme for theme, rows in THEMES.items() if claim in rows), OTHER)


def row_of(claim: str) -> Row:
    """The row of a claim; its headline, if nobody has written one."""
    return THEMES.get(theme_of(claim), {}).get(claim, Row(""))
