"""Two small models to serve, and the program that serves them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from apportion.data import Interactions
from apportion.data.features import ItemFeatures
from apportion.recommend import PrivateRatingRecommender, save
from apportion.recommend.als import ClickRecommender
from apportion.recommend.categories import Categories

from running_services import Program

N_ITEMS = 60
GENRES = ("Drama", "War", "Comedy", "Drama|War", "Opera")


@pytest.fixture(scope="session")
def clicks_model():
    """A model of clicks with text ids, titles and categories."""
    rng = np.random.default_rng(0)
    pairs = [(u, f"item{t:02d}") for u in range(80) for t in rng.choice(N_ITEMS, 8, replace=False)]
    users, tasks = zip(*pairs, strict=True)
    ids = [f"item{t:02d}" for t in range(N_ITEMS)]
    model = ClickRecommender(dimension=4, epochs=3).fit(Interactions.from_arrays(users, tasks, task_ids=ids)).model_
    frame = pa.table({"item": ids, "genre": [GENRES[k % len(GENRES)] for k in range(N_ITEMS)]})
    features = ItemFeatures.from_frame(frame, kinds={"genre": "multivalent"})
    model.categories = Categories.of(features, model.task_ids)
    return model


@pytest.fixture(scope="session")
def ratings_model():
    """A private model of ratings with integer ids, ranked by choice."""
    rng = np.random.default_rng(1)
    users, tasks = zip(*[(u, int(t)) for u in range(120) for t in rng.choice(40, 9, replace=False)], strict=True)
    values, items = rng.integers(1, 6, len(users)).astype(float), np.arange(40) * 3 - 50
    data = Interactions.from_arrays(users, items[list(tasks)], values, task_ids=items)
    return PrivateRatingRecommender(epsilon=8.0, dimension=2, rounds=2, rank_by="choice").fit(data).model_


@pytest.fixture(scope="session")
def saved(tmp_path_factory, clicks_model, ratings_model):
    """Both models in folders."""
    folder = tmp_path_factory.mktemp("served")
    save(clicks_model, folder / "clicks")
    save(ratings_model, folder / "ratings")
    return folder


@pytest.fixture(scope="session")
def program():
    """Start the program; it is ended with the session."""
    started = []

    def start(*arguments, before=""):
        started.append(Program(arguments, before))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()
