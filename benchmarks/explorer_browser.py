"""Claim: the explorer works in Chromium, makes no request, and recommends what Python does.

Models of MovieLens 1M at ε = 5 (ratings, ratings ranked by choice, and clicks) are written as pages and opened.
Everything a reader can do there is done. Then 200 random histories are solved in the page and by the model. Scores may
differ by 1e-4 at most. The first 20 items must be the same; only items whose scores are closer than twice the largest
difference may change places. A page of 20,000 items gives the load time and the file size. The quick form takes
generated ratings ranked by choice, 40 histories and 2,000 items.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data import Interactions, Vocabulary
from apportion.data.synthetic import long_tailed_ratings
from apportion.privacy import SeededNoise
from apportion.privacy.statement import rounded_up
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender
from apportion.recommend.model import ClickModel, FoldIn, ItemModel
from apportion.report.explorer import explorer_page
from benchmarks import movielens
from benchmarks.browser import Watched, browser, found_browser
from benchmarks.claim import Outcome, print_table
from benchmarks.explorer_interactions import INTERACTIONS

EPSILON = 5.0
TARGET = {"largest_difference": 1e-4, "other_items": 0, "requests": 0, "seconds_to_first_use": 2.0, "megabytes": 5.0}
N_BEST = 20
LONGEST = 100


def measure(quick: bool) -> Outcome:
    """Open the pages of two models and one large one."""
    found_browser()
    n_histories, n_items = (40, 2_000) if quick else (200, 20_000)
    rows: list[list[Any]] = []
    failed: list[str] = []
    requests = said = 0
    with browser() as running, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        for name, model in fitted_models(quick).items():
            file.write_text(explorer_page(model), encoding="utf-8")
            watched = Watched(running, file)
            failed += [f"{name}: {each}" for each in _failed_interactions(watched.page)]
            rows.append([name, *_against_python(watched.page, model, n_histories)])
            requests += len(watched.requests)
            said += len(watched.said)
            watched.close()
        seconds, megabytes = _large(running, file, n_items)
    value: dict[str, Any] = {
        "interactions": len(INTERACTIONS) * len(rows),
        "failed": failed,
        "requests": requests,
        "console_messages": said,
        "largest_difference": rounded_up(max(row[1] for row in rows), 2),
        "other_items": sum(row[3] for row in rows),
        "seconds_to_first_use": round(seconds, 2),
        "megabytes": round(megabytes, 2),
    }
    print_table(["model", "largest difference", "same first 20", "items that differ", "histories"], rows)
    print_table(["items", "seconds to first use", "megabytes"], [[n_items, seconds, megabytes]])
    holds = not failed and not said and all(value[name] <= TARGET[name] for name in TARGET)
    return Outcome(value, TARGET, holds, _headline(value, rows, n_items), {"epsilon": EPSILON, "longest": LONGEST})


def _headline(value: dict[str, Any], rows: list[list[Any]], n_items: int) -> str:
    return (
        f"Explorer in Chromium: all {value['interactions']} interactions pass with {value['requests']} requests; for "
        f"{sum(row[4] for row in rows)} random histories on MovieLens 1M the page's scores are within "
        f"{value['largest_difference']:g} of Python's and its first {N_BEST} items the same up to ties; "
        f"{n_items:,} items: {value['seconds_to_first_use']:.1f} s to first use, {value['megabytes']:.1f} MB"
    )


def fitted_models(quick: bool) -> dict[str, ItemModel]:
    """Models of MovieLens 1M, or one of generated ratings."""
    if quick:
        data, _ = long_tailed_ratings(600, 200, 12_000, rank=4, rng=np.random.default_rng(1), stars="whole")
        estimator = PrivateRatingRecommender(EPSILON, dimension=4, rounds=2, rank_by="choice", noise=SeededNoise(0))
        return {"generated ratings": estimator.fit(data).model_}
    settings: dict[str, Any] = {"epsilon": EPSILON, "delta": movielens.DELTA, "noise": SeededNoise(0)}
    return {
        "ratings": PrivateRatingRecommender(**settings).fit(movielens.ratings()).model_,
        "ratings by choice": PrivateRatingRecommender(**settings, rank_by="choice").fit(movielens.ratings()).model_,
        "clicks": PrivateClickRecommender(**settings).fit(movielens.clicks()).model_,
    }


def _failed_interactions(page: Any) -> list[str]:
    failed = []
    for interaction in INTERACTIONS:
        try:
            interaction(page)
        except Exception as error:  # a timeout of the browser as well as an assertion
            failed.append(f"{interaction.__name__} ({type(error).__name__})")
    return failed


def _against_python(page: Any, model: ItemModel, n_histories: int) -> tuple[float, int, int, int]:
    """The largest difference of scores; how many lists of 20 are the same; items that differ by more than a tie."""
    history, pairs = random_histories(model, n_histories)
    expected = model.score(history, np.arange(n_histories, dtype=np.int32))
    scores = np.array([page.evaluate("history => explorer.scores(history)", each) for each in pairs])
    largest = float(np.abs(scores - expected).max())
    ours = page.evaluate(
        f"all => all.map((history) => explorer.recommend(history, {N_BEST}).map(([code]) => code))", pairs
    )
    theirs, ranked_by = model.recommend(history, N_BEST).tasks, ranking_scores(model, history)
    same = sum(mine == row.tolist() for mine, row in zip(ours, theirs, strict=True))
    other = sum(
        _beyond_ties(np.array(mine), row, line, 2 * largest)
        for mine, row, line in zip(ours, theirs, ranked_by, strict=True)
    )
    return largest, same, other, n_histories


def ranking_scores(model: ItemModel, history: Interactions) -> NDArray[np.float64]:
    """What the model ranks by, without exploring places."""
    added = model.offset if model.choice is None else 0.0
    products = model.ranking_coefficients(history).astype(np.float64) @ model.ranking_features.T.astype(np.float64)
    return np.asarray(products + added)


def _beyond_ties(mine: NDArray[Any], theirs: NDArray[Any], scores: NDArray[Any], tie: float) -> int:
    return int(((mine != theirs) & (np.abs(scores[mine] - scores[theirs]) > tie)).sum())


def random_histories(
    model: ItemModel, n_histories: int, longest: int = LONGEST
) -> tuple[Interactions, list[list[tuple[int, float]]]]:
    """Random items with random whole ratings, one to `longest` of them; also as pairs of code and value."""
    rng = np.random.default_rng(0)
    rows = [rng.choice(model.n_tasks, rng.integers(1, longest + 1), replace=False) for _ in range(n_histories)]
    values = [rng.integers(1, 6, len(row)).astype(np.float32) for row in rows]
    users = np.repeat(np.arange(n_histories), [len(row) for row in rows])
    tasks, given_values = np.concatenate(rows), np.concatenate(values)
    everybody = Vocabulary.of_range(n_histories)
    history = Interactions.from_codes(users, tasks, given_values, user_ids=everybody, task_ids=model.task_ids)
    return history, [
        list(zip(row.tolist(), given.tolist(), strict=True)) for row, given in zip(rows, values, strict=True)
    ]


def _large(running: Any, file: Path, n_items: int) -> tuple[float, float]:
    """Seconds to first use, the least of three loads, and size of a page with so many items of 64 dimensions."""
    file.write_text(explorer_page(_large_model(n_items), titles=_titles(n_items)), encoding="utf-8")
    seconds = []
    for _ in range(3):
        watched = Watched(running, file)
        seconds.append(watched.ready_after)
        watched.close()
    return min(seconds), file.stat().st_size / 1e6


def _titles(n_items: int) -> dict[int | str, str]:
    return {item: f"The made-up title of item number {item}" for item in range(n_items)}


def _large_model(n_items: int, dimension: int = 64) -> ClickModel:
    """Made-up vectors of the sizes that fits have; the statement is that of a small fit."""
    rng = np.random.default_rng(0)
    popularity = (1e5 / np.arange(1, n_items + 1) ** 0.8).astype(np.float32)
    lengths = np.sqrt(popularity / popularity.mean() / dimension)
    features = (rng.standard_normal((n_items, dimension)) * lengths[:, None]).astype(np.float32)
    gram = features.T @ features
    base = (gram + 0.2 * np.trace(gram) / dimension * np.eye(dimension)) / 2
    data, _ = long_tailed_ratings(50, 10, 300, rank=2, rng=np.random.default_rng(0))
    fitted = PrivateClickRecommender(EPSILON, dimension=2, rounds=2, noise=SeededNoise(0)).fit(data).model_
    return ClickModel(
        fold_in=FoldIn(
            features, np.ones(n_items, np.float32), base.astype(np.float32), np.zeros(dimension, np.float32)
        ),
        vectors=features[:, 1:],
        popularity=popularity,
        reliability=popularity / (popularity + 100),
        task_ids=Vocabulary.of_range(n_items, name="task"),
        statement=fitted.statement,
    )
