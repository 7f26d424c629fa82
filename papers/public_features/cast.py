"""Do cast and directors help, and does an encoder get more out of them than a linear map?

Genres and years alone, and with persons beside them (each with a role: actor or director), in two methods: the
library's recommender of ratings with its defaults, whose prior mean is linear in the features, and AM-SSP "+ own" with
the paper's two-layer encoder. Persons come in three forms: all as one group, those of enough movies, and the latter
with cast and directors as two groups, so that one director does not drown in a bag of forty actors.

Each is judged by test RMSE, over all movies, over the rarest fifth, and over new ones: a tenth of the movies, in a fit
of its own that has none of their ratings, so that features are all that is known of them. How the encoder is trained
was chosen for each form of features by RMSE on the validation part at ε = 5, one seed.

python -m papers.public_features.cast [--quick]
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet
import torch
from numpy.typing import NDArray

from apportion.data import Interactions, Vocabulary
from apportion.data.features import FineFeaturesWarning, ItemFeatures, KindChoice
from apportion.evaluation import popularity_slices, rmse
from apportion.privacy import SeededNoise
from apportion.published.public_features.encoders import TwoLayerEncoder
from apportion.published.public_features.minimisation import EncoderMinimisation
from apportion.published.public_features.ssp import EncoderStatistics
from apportion.published.public_features.training import Training
from benchmarks import movielens
from benchmarks.claim import PARTIAL, data_folder, need, print_table
from benchmarks.features_movielens import movies as movies_of_ml1m
from papers.public_features.movielens import DELTA, RATINGS, recommender
from papers.public_features.tables import HERE, markdown

PLAIN, ALL, SOME, APART = (
    "genres and years", "and persons", "and persons of 5 movies", "and cast, directors of 5 movies"
)  # fmt: skip
LINEAR, ENCODER = "our recommender", "AM-SSP + own"
METHODS = (LINEAR, ENCODER)
ENOUGH = 5  # movies of a person
_WAYS = (
    (10, 0.03, 0.0), (3, 0.03, 0.0), (10, 0.01, 0.0), (3, 0.003, 0.0),
    (10, 0.03, 0.003), (10, 0.03, 0.01), (3, 0.03, 0.01), (3, 0.01, 0.003),
)  # fmt: skip
TRAININGS = tuple(Training(epochs, rate=rate, decay=decay) for epochs, rate, decay in _WAYS)
FIGURES = ("overall", "rarest fifth", "new movies")
EPSILONS, SEEDS = (1.0, 5.0, 20.0), (0, 1, 2)
_ROLES = {"actor": "cast", "director": "directors"}
Found = dict[str, dict[str, list[list[float]]]]


def people_of_ml1m() -> pa.Table:
    """Who played in or directed each movie: movieId, person, role."""
    return parquet.read_table(need(data_folder() / "ml-1m" / "people.parquet", "cast and directors of MovieLens 1M"))


def in_enough(people: pa.Table, least: int) -> pa.Table:
    """The rows of persons who have the same role in at least so many movies; public, as the list of movies is."""
    named = np.char.add(*(np.asarray(people[name].to_pylist(), np.str_) for name in ("person", "role")))
    _, place, counts = np.unique(named, return_inverse=True, return_counts=True)
    return people.filter(pa.array(counts[place] >= least))


def feature_sets(movies: pa.Table, people: pa.Table, least: int = ENOUGH) -> dict[str, Callable[[], ItemFeatures]]:
    """Every form of features, made when it is asked for; the wide ones are wider than there are movies."""
    item = movies.column_names[0]

    def plain() -> ItemFeatures:
        return ItemFeatures.from_frame(movies.select([item, "genres", "year"]), kinds={"year": "binned"})

    def crossed(some: pa.Table) -> ItemFeatures:
        kinds: dict[str, KindChoice] = {"person": "ignore", "role": "ignore"}
        return _quietly(partial(ItemFeatures.from_frame, some, kinds=kinds, crosses=[("person", "role")]))

    def apart(some: pa.Table) -> ItemFeatures:
        made = plain()
        for role, name in _ROLES.items():
            kept = some.filter(pc.equal(some["role"], role)).select([item, "person"])
            made = made.beside(_quietly(partial(ItemFeatures.from_frame, kept.rename_columns([item, name]))))
        return made

    return {
        PLAIN: plain,
        SOME: lambda: plain().beside(crossed(in_enough(people, least))),
        APART: lambda: apart(in_enough(people, least)),
        ALL: lambda: plain().beside(crossed(people)),
    }


@dataclass(frozen=True, eq=False)
class Split:
    """Ratings in three parts, and the movies that are new to one of two fits."""

    train: Interactions
    validation: Interactions
    test: Interactions
    new: NDArray[np.bool_]

    @classmethod
    def of(cls, data: Interactions, *, share_of_new: float = 0.1) -> Split:
        """80/10/10 by rating, as the claims on MovieLens 1M have it; new movies are drawn evenly."""
        train, validation, test = data.split_by_value(np.random.default_rng(0))
        order = np.random.default_rng(1).permutation(data.n_tasks)
        new = np.zeros(data.n_tasks, bool)
        new[order[: round(share_of_new * data.n_tasks)]] = True
        return cls(train, validation, test, new)

    def judged(self, make: Callable[[], Any], features: ItemFeatures) -> list[float]:
        """Test RMSE over all movies and over the rarest fifth, then over new ones by a second fit."""
        slices = popularity_slices(self.train.by_task.counts, 5)
        model = make().fit(self.train).model_
        found = rmse(model.predict(self.train, self.test), self.test, slices=slices)
        return [found.overall, float(found.by_slice[0] or 0.0), self._error_of_new(make(), features)]

    def _error_of_new(self, made: Any, features: ItemFeatures) -> float:
        """RMSE on movies that the fit has no ratings of; a model that can add movies does not know their ids either."""
        ids = self.train.task_ids.ids
        listed = Vocabulary(np.concatenate([ids[~self.new], ids[self.new]]), name="task", declared=True)
        history = _under(listed, self.train.where(~self.new[self.train.tasks]))
        unseen = _under(listed, self.test.where(self.new[self.test.tasks]))
        if isinstance(made, EncoderMinimisation):
            model: Any = made.fit(history).model_
        else:
            known = _under(Vocabulary(ids[~self.new], name="task", declared=True), history)
            rows = features.rows.take(features.item_ids.find(ids[self.new]))
            added = ItemFeatures(Vocabulary(ids[self.new], name="item"), rows, features.space)
            model = made.fit(known).model_.with_new_items(added)
        return rmse(model.predict(history, unseen), unseen).overall

    def validated(self, make: Callable[[], Any]) -> float:
        """RMSE on the validation part."""
        model = make().fit(self.train).model_
        return rmse(model.predict(self.train, self.validation), self.validation).overall


def estimator(method: str, features: ItemFeatures, training: Training, epsilon: float, seed: int) -> Any:
    """The method on these features; an encoder's first parameters are the same for every seed of the noise."""
    if method == LINEAR:
        return recommender("ratings", features, epsilon, seed)
    torch.manual_seed(0)
    encoder = TwoLayerEncoder(features.rows.groups, RATINGS.common["dimension"] + 1, sparse=not training.decay)
    update = EncoderStatistics(encoder, training, **RATINGS.statistics)
    return EncoderMinimisation(
        epsilon, DELTA, features=features, update=update, noise=SeededNoise(seed), **RATINGS.common
    )


def tried(split: Split, features: ItemFeatures, trainings: Sequence[Training]) -> dict[str, Any]:
    """The way of training an encoder with the least RMSE on the validation part, at ε = 5, and the RMSE of them all."""
    errors = [split.validated(partial(estimator, ENCODER, features, each, 5.0, 0)) for each in trainings]
    return {
        "chosen": asdict(trainings[int(np.argmin(errors))]),
        "tried": [asdict(t) for t in trainings],
        "rmse": errors,
    }


def run(
    split: Split,
    sets: dict[str, Callable[[], ItemFeatures]],
    epsilons: Iterable[float] = EPSILONS,
    seeds: Sequence[int] = SEEDS,
    trainings: Sequence[Training] = TRAININGS,
    store: Path | None = None,
) -> dict[str, Any]:
    """Figures by method, features and ε, one list per seed, and how encoders were trained; known ones are kept."""
    known = json.loads(store.read_text(encoding="utf-8")) if store is not None and store.exists() else {}
    found: Found = {}
    ways: dict[str, Any] = {}
    epsilons = tuple(epsilons)
    for name, make in sets.items():
        features = make()
        if f"training|{name}" not in known:
            known[f"training|{name}"] = tried(split, features, trainings)
        ways[name] = known[f"training|{name}"]
        jobs = [(method, epsilon, seed) for method in METHODS for epsilon in epsilons for seed in seeds]
        for method, epsilon, seed in jobs:
            key = f"{method}|{name}|{epsilon:g}|{seed}"
            if key not in known:
                made = partial(estimator, method, features, Training(**ways[name]["chosen"]), epsilon, seed)
                known[key] = split.judged(made, features)
                print(key, *(f"{figure:.4f}" for figure in known[key]), flush=True)
            if store is not None:
                store.parent.mkdir(parents=True, exist_ok=True)
                store.write_text(json.dumps(known), encoding="utf-8")
            found.setdefault(f"{method}, {name}", {}).setdefault(f"{epsilon:g}", []).append(known[key])
    return {"figures": found, "training": ways, "seeds": list(seeds)}


def table(measured: dict[str, Any]) -> list[list[str]]:
    """One line per method, features and ε: mean and standard deviation over seeds of every figure."""
    lines = []
    for name, by in measured["figures"].items():
        for epsilon, runs in by.items():
            values = np.asarray(runs)
            cells = [f"{m:.4f} ({s:.4f})" for m, s in zip(values.mean(axis=0), values.std(axis=0), strict=True)]
            lines.append([*name.split(", ", 1), epsilon, *cells])
    return lines


def page(measured: dict[str, Any], sizes: dict[str, int]) -> str:
    """The table in Markdown, with how many feature values there are and what ways of training gave."""
    text = "# Cast and directors, MovieLens 1M ratings\n\nTest RMSE, mean over "
    text += (
        f"{len(measured['seeds'])} noise seeds (standard deviation), δ = 1e-5. `python -m papers.public_features.cast` "
    )
    text += "measures it; the head of `cast.py` says what the columns are.\n\n"
    text += markdown(["method", "features", "ε", *FIGURES], table(measured)) + "\n"
    text += "How the encoder was trained, by RMSE on the validation part at ε = 5; the least was taken.\n\n"
    first = next(iter(measured["training"].values()))["tried"]
    ways = [f"{way['epochs']} epochs, rate {way['rate']:g}, decay {way['decay']:g}" for way in first]
    columns = [[f"{error:.4f}" for error in found["rmse"]] for found in measured["training"].values()]
    names = [f"{name} ({sizes[name]} feature values)" for name in measured["training"]]
    return text + markdown(["training", *names], list(zip(ways, *columns, strict=True)))


def generated(
    n_users: int = 400, n_movies: int = 80, per_user: int = 20, *, seed: int = 0
) -> tuple[Interactions, pa.Table, pa.Table]:
    """Ratings, movies and people of a small made-up set in which persons matter more than genres."""
    rng = np.random.default_rng(seed)
    genres, year = rng.integers(0, 6, n_movies), rng.integers(1950, 2001, n_movies)
    cast, director = rng.integers(0, 30, (n_movies, 3)), rng.integers(0, 12, n_movies)
    movies = pa.table({"movieId": np.arange(n_movies), "genres": [f"g{g}" for g in genres], "year": year})
    names = [*(f"a{p}" for p in cast.ravel()), *(f"d{p}" for p in director)]
    people = pa.table(
        {
            "movieId": np.concatenate([np.repeat(np.arange(n_movies), 3), np.arange(n_movies)]),
            "person": names,
            "role": ["actor"] * cast.size + ["director"] * n_movies,
        }
    )
    quality = 0.2 * rng.standard_normal(6)[genres] + rng.standard_normal(12)[director]
    quality += 0.5 * rng.standard_normal(30)[cast].mean(axis=1)
    tasks = np.argsort(rng.random((n_users, n_movies)), axis=1)[:, :per_user].ravel()
    scores = 3 + quality[tasks] + 0.6 * rng.standard_normal(len(tasks))
    values = np.clip(np.round(scores), 1, 5).astype(np.float32)
    users = np.repeat(np.arange(n_users), per_user)
    return Interactions.from_arrays(users, tasks, values, task_ids=np.arange(n_movies)), movies, people


def main(words: list[str] | None = None) -> int:
    """Measure, print and, on the real data, store."""
    parser = argparse.ArgumentParser(prog="papers.public_features.cast", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="on generated ratings, at ε = 5 and one seed")
    arguments = parser.parse_args(words)
    torch.set_num_threads(1)
    if arguments.quick:
        data, movies, people = generated()
        measured = run(Split.of(data), feature_sets(movies, people, 2), (5.0,), (0,), TRAININGS[:2])
    else:
        sets = feature_sets(movies_of_ml1m(), people_of_ml1m())
        measured = run(Split.of(movielens.ratings()), sets, store=PARTIAL / "features-cast.json")
        sizes = {name: make().rows.n_columns for name, make in sets.items()}
        (HERE / "cast.json").write_text(json.dumps({**measured, "feature_values": sizes}, indent=1) + "\n")
        (HERE / "cast.md").write_text(page(measured, sizes), encoding="utf-8")
    print_table(["method", "features", "ε", *FIGURES], table(measured))
    return 0


def _under(listed: Vocabulary, data: Interactions) -> Interactions:
    """The same rows under another list of movies."""
    codes = listed.find(data.task_ids.ids)[data.tasks]
    return Interactions.from_codes(data.users, codes, data.values, user_ids=data.user_ids, task_ids=listed)


def _quietly(make: Callable[[], ItemFeatures]) -> ItemFeatures:
    """Without the warning that features are fine, which is what this study is about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FineFeaturesWarning)
        return make()


if __name__ == "__main__":
    raise SystemExit(main())
