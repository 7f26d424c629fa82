"""Commands of the program that are run twice, on data and on other data, with the same releases.

What they write must be the same in every byte, whatever the data: it is a function of what was released.
"""

from __future__ import annotations

import os

import numpy as np
from click.testing import CliRunner

from apportion.cli.main import program
from apportion.data.synthetic import long_tailed_ratings
from same_releases import Releases, files_of

SMALL = ("--dimension", "2", "--rounds", "2", "--seed", "4", "--delta", "1e-5")
ROWS = ("--user", "user", "--epsilon", "2", "--seed", "4", "--page", "page.html")
VALUES = ("--value", "rating", "--range", "1", "5")
LOGISTIC = (
    "logistic", "data.csv", "--label", "liked", "--features", "rating", "--feature-norm", "5", "--delta", "1e-5", *ROWS
)  # fmt: skip
FIT = ("fit", "data.csv", "--epsilon", "3", "--items", "items.csv", "--out", "m", *SMALL)
FACTS = ("name", "curator", "description", "intended-use", "region", "about-data", "later", "exploration", "security",
         "reason", "contact", "source", "author")  # fmt: skip
REGISTRY = (
    "card", "m", "--format", "registry", "--out", "record.yaml", "--sector", "Technology", "--published", "2026-01-02",
    "--releases", "one", "--refreshed", "static", "--trust", "central",
    *(word for name in FACTS for word in (f"--{name}", "some words")),
)  # fmt: skip
AFTER = [
    ("card", "m", "--out", "card.json", "--page", "card.html"),
    ("explore", "m", "--out", "explorer.html"),
    ("export", "m", "--to", "parquet", "--out", "items.parquet"),
    ("recommend", "m", "history.csv", "--json"),
    ("similar", "m", "3", "--json"),
]

WITHOUT_USERS = {
    "ratings": [FIT, *AFTER],
    "ratings, JSON, exact": [(*FIT, "--json", "--exact")],
    "ratings with features": [(*FIT, "--features", "features.csv"), *AFTER[:2]],
    "clicks": [(*FIT, "--clicks"), *AFTER],
    "clicks, few users declared": [
        (*FIT, "--clicks", "--features", "features.csv", "--n-users", "120")
    ],
    "record for a registry": [tuple(word for word in FIT if word not in ("--seed", "4")), REGISTRY],
    "search": [
        ("tune", "data.csv", "--epsilon", "3", "--items", "items.csv", "--out", "m", "--seed", "4", "--delta", "1e-5",
         "--try", "dimension=1,2", "--tries", "1.5", "--validation", "0.5", "--json")
    ],
    "mean, private sizes": [
        ("mean", "data.csv", "--value", "rating", "--range", "1", "5", "--sizes", "private", *ROWS)
    ],
    "logistic, private sizes": [(*LOGISTIC, "--sizes", "private", "--json")],
    "counts by group": [("count", "data.csv", "--by", "place", *ROWS), ("count", "data.csv", "--json", *ROWS[:-2])],
    "users by private groups, exact": [("count", "data.csv", "--users", "--by", "item", "--exact", "--json", *ROWS)],
    "sums by public groups": [("sum", "data.csv", *VALUES, "--by", "item", "--keys", "items.csv", *ROWS)],
    "means by private groups": [("mean", "data.csv", *VALUES, "--by", "place,liked", "--json", *ROWS)],
    "variances by group": [("variance", "data.csv", *VALUES, "--by", "place", *ROWS)],
    "histograms by group": [("histogram", "data.csv", *VALUES, "--bins", "4", "--by", "place", "--each", *ROWS)],
    "quantiles by group": [("quantile", "data.csv", *VALUES, "--step", "1", "--by", "place", "--json", *ROWS)],
    "the largest private groups, Laplace": [
        ("sum", "data.csv", *VALUES, "--by", "place", "--law", "laplace", "--delta", "1e-4", "--top", "2", *ROWS,
         "--epsilon", epsilon)
        for epsilon in ("0.1", "12")  # nothing is listed, or something
    ],
    "keys, in two rounds": [("keys", "data.csv", "--by", "item", "--json", *ROWS[:-2])],
    "federation": [
        ("federate", "simulate", "federation.toml", *(f"client{k}.csv" for k in range(5)), "--out", "m"),
        *AFTER[:2],
    ],
    "query": [
        ("query", "SELECT place, avg(rating), count(*) FROM 'data.csv' GROUP BY place", "--range", "1", "5", *ROWS)
    ],
}  # fmt: skip
"""Runs on data that some users have left."""

OTHER_VALUES = {
    "mean": [("mean", "data.csv", "--value", "rating", "--range", "1", "5", *ROWS)],
    "mean, JSON, Laplace": [
        ("mean", "data.csv", "--value", "rating", "--range", "1", "5", "--delta", "0", "--json", *ROWS)
    ],
    "quantiles": [("quantile", "data.csv", "--value", "rating", "--at", "0.5", "--range", "1", "5", "--json", *ROWS)],
    "logistic": [LOGISTIC],
    "regress": [
        ("regress", "data.csv", "--label", "rating", "--features", "place", "--label-range", "1", "5", "--json", *ROWS)
    ],
}
"""Runs on data in which some users' values differ; numbers of rows are public there."""

NOT_COMPARED = {
    "account": "takes no data",
    "audit": "internal: it looks at raw data and says so",
    "compare": "internal: it measures quality on raw data and says so",
    "demo": "generates its data",
    "evaluate": "internal: it measures quality on raw data and says so",
    "ledger": "its entries hold the time; what it is charged is compared with every release",
    "serve": "reads a saved model and answers requests; it takes no data",
    "plan": "takes no data",
    "protect": "writes to each party what is its own; tests/cli/test_protect.py compares what is shared",
    "shard": "writes the rows themselves, for a fit to come; its help says that the folder holds private data",
}
"""Commands whose output is not a function of what was released, or that take no data, and why.

The threat model (docs/threat-model.md) names each of them.
"""


def made_rows():
    """Ratings of 120 users and 20 items: (user, item, rating)."""
    data, _ = long_tailed_ratings(120, 20, 1500, rank=2, rng=np.random.default_rng(2), stars="whole")
    return list(zip(data.users.tolist(), data.tasks.tolist(), data.values.tolist(), strict=True))


def without(rows, *users):
    """The rows of all other users."""
    return [row for row in rows if row[0] not in users]


def turned(rows, *users):
    """The same rows, with the ratings of some users turned round."""
    return [(user, item, 6 - value if user in users else value) for user, item, value in rows]


def written_twice(steps, rows, other, folder):
    """What commands write on data and, with the same releases, on other data; and how far hidden values moved."""
    releases = Releases()
    with releases.recorded():
        first = written(steps, rows, folder / "work")
    (folder / "work").rename(folder / "first")  # messages name folders; both runs have the same
    with releases.given():
        second = written(steps, other, folder / "work")
    return first, second, releases.ratios


def unequal(first, second):
    """Names of what differs between two runs."""
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))


def written(steps, rows, folder):
    """What commands print on stdout, and every file that they write."""
    _write(rows, folder)
    given = files_of(folder)
    before, found = os.getcwd(), {}
    os.chdir(folder)
    try:
        for number, step in enumerate(steps):
            result = CliRunner().invoke(program, step)
            if result.exception is not None and not isinstance(result.exception, SystemExit):
                raise result.exception
            assert result.exit_code == 0, result.stderr
            found[f"stdout of {step[0]}, command {number}"] = result.stdout.encode()
    finally:
        os.chdir(before)
    return found | {name: held for name, held in files_of(folder).items() if name not in given}


def _write(rows, folder):
    folder.mkdir()
    lines = [f"{user},{item},{value},{value > 3:d},{item % 5}" for user, item, value in rows]
    (folder / "data.csv").write_text("\n".join(["user,item,rating,liked,place", *lines]) + "\n")
    (folder / "items.csv").write_text("\n".join(["item", *map(str, range(20))]) + "\n")
    (folder / "features.csv").write_text("\n".join(["item,colour", *(f"{k},{'rgb'[k % 3]}" for k in range(20))]) + "\n")
    (folder / "history.csv").write_text("user,item,rating\nnew,1,5\nnew,4,2\n")
    for client in range(5):
        mine = [f"{user},{item},{value}" for user, item, value in rows if user % 5 == client]
        (folder / f"client{client}.csv").write_text("\n".join(["user,item,rating", *mine]) + "\n")
    (folder / "roster.txt").write_text(
        "".join(f"{key:064x}\n" for key in range(1, 6))
    )  # a rehearsal makes its own keys
    (folder / "federation.toml").write_text(
        f'items = "items.csv"\nroster = "roster.txt"\nserver = "{9:064x}"\nepsilon = 5.0\nrounds = 1\n'
        'dimension = 1\nnoise = "server"\nkind = "ratings"\nseed = 1\n'
    )
