"""Write golden files of the current formats: `python tests/golden/make.py`. What exists is never written again.

A file is named for its format. Later versions of the library must read it as it stands, or refuse it in one sentence.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from apportion.data import Vocabulary
from apportion.privacy import ADD_REMOVE, REPLACE_LABELS, Budget, Ledger, Purpose
from apportion.privacy import statement as statements
from apportion.privacy.ledger import GaussianRelease, LedgerKey, PureRelease, SampledRun, SelectionRun, chain
from apportion.privacy.purposes import release_name
from apportion.privacy.statement import LedgerReference, Release, Statement, Tuning
from apportion.recommend import storage
from apportion.recommend.model import FoldIn, RatingModel
from apportion.report import card as cards

HERE = Path(__file__).parent
KINDS = {  # by the key of the mechanism: its words, and what it costs
    "gaussian": ("Gaussian", 0.2, None),
    "laplace": ("Laplace", 0.1, 0.08),
    "exponential": ("exponential", 0.1, 0.08),
    "exponential-on-the-line": ("exponential, on the line", 0.1, 0.08),
    "sampled-gaussian": ("Gaussian on a Poisson sample of users (probability 0.1)", 0.5, None),
    "gaussian-with-threshold": ("Gaussian, keys above a threshold", 0.2, None),
    "wishart": ("additive Wishart (12 spare degrees of freedom)", None, None),
}


def releases():
    """One for every purpose, the mechanisms in turn."""
    for k, purpose in enumerate(Purpose):
        key = list(KINDS)[k % len(KINDS)]
        words, mu, epsilon = KINDS[key]
        name = purpose.at(round=k, step=k % 3 + 1) if k % 2 else release_name(purpose)
        yield Release(
            name.text, purpose, name.stage, key, words, (2, k + 1), 0.01, mu, 1.25, "weights <= 1", 6.5, epsilon
        )


def a_statement():
    """A statement with every purpose and every mechanism."""
    return Statement(
        epsilon=1.0,
        delta=1e-6,
        spent_epsilon=0.9731,
        spent_mu=None,
        releases=tuple(releases()),
        public=("the list of 3 tasks, as given", "the number of users, declared as 77"),
        tuning="declared: by hand",
        tuning_kind=Tuning.DECLARED,
        noise="operating system entropy",
        releasable=True,
        neighbours=ADD_REMOVE,
        declared_users=77,
        window="spring of 2003",
        version="0.1.0",
        ledger=LedgerReference("shop", "run-1", 3, 17, "ab" * 32),
    )


def a_model():
    """Three items known by text."""
    vectors = np.array([[1.0, 0.0], [0.5, -0.5], [0.0, 2.0]], np.float32)
    return RatingModel(
        fold_in=FoldIn(
            np.column_stack([np.ones(3), vectors]).astype(np.float32),
            np.ones(3, np.float32),
            np.eye(3, dtype=np.float32),
            np.zeros(3, np.float32),
        ),
        vectors=vectors,
        popularity=np.array([30.0, 20.0, 1.0], np.float32),
        reliability=np.array([0.9, 0.8, 0.1], np.float32),
        task_ids=Vocabulary(["apples", "pears", "quinces"], name="task"),
        statement=a_statement(),
        offset=3.5,
        value_range=(1.0, 5.0),
        settings={"dimension": 2},
    )


def write_ledger(folder):
    """A ledger with every kind of account and event: its tables as SQL, its key and its heads."""
    folder.mkdir()
    LedgerKey.create(folder / "ledger.key")
    with TemporaryDirectory() as place:
        url = Path(place) / "ledger.db"
        with Ledger.open(url, key=folder / "ledger.key", head=folder / "heads.json") as ledger:
            visits = ledger.create_account("visits", Budget(2.0, 1e-6), window="spring of 2003", owner="data office")
            visits.charge("counts", GaussianRelease(0.1))
            visits.charge("median", PureRelease(0.25))
            labels = ledger.create_account("labels", Budget(1.0, 0.0), neighbours=REPLACE_LABELS)
            labels.charge("slope", PureRelease(0.5))
            samples = ledger.create_account("samples", Budget(4.0, 1e-6), kind="renyi", orders=(4, 16))
            samples.charge("training", SampledRun((0.05,), 2.0, 0.01, 100))
            samples.charge("tuning", SelectionRun(0.1, 10.0, "geometric"))
        with closing(sqlite3.connect(url)) as connection:
            tables = "\n".join([*connection.iterdump(), f"PRAGMA user_version = {chain.FORMAT};", ""])
    (folder / "ledger.sql").write_text(tables, encoding="utf-8")
    (folder / "heads.json.lock").unlink()


def main():
    """Write what is missing."""
    files = {
        f"statement-{statements.FORMAT}.json": lambda path: path.write_text(a_statement().to_json(), encoding="utf-8"),
        f"card-{cards.FORMAT}.json": lambda path: path.write_text(
            cards.card_json(cards.privacy_card(a_statement())), encoding="utf-8"
        ),
        f"model-{storage.FORMAT}": lambda path: storage.save(a_model(), path),
        f"ledger-{chain.FORMAT}": write_ledger,
    }
    for name, write in files.items():
        if not (HERE / name).exists():
            write(HERE / name)


if __name__ == "__main__":
    main()
