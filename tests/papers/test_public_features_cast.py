"""The study of cast and directors in short: its forms of features, new movies, and what is stored."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
import torch

from papers.public_features import cast

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def made():
    data, movies, people = cast.generated(300, 60, 16)
    return cast.Split.of(data), cast.feature_sets(movies, people, 2)


def test_persons_are_kept_by_how_many_movies_they_have_the_same_role_in():
    people = pa.table(
        {"movieId": [0, 1, 2, 2], "person": ["p", "p", "p", "q"], "role": ["actor"] * 2 + ["director"] * 2}
    )
    assert cast.in_enough(people, 1).num_rows == 4
    kept = cast.in_enough(people, 2)
    assert kept.to_pydict() == {"movieId": [0, 1], "person": ["p", "p"], "role": ["actor", "actor"]}


def test_every_form_has_the_plain_features_and_its_own_groups(made):
    _, sets = made
    groups = {name: [group.name for group in make().rows.groups] for name, make in sets.items()}
    assert groups[cast.PLAIN] == ["genres", "year"]
    assert groups[cast.ALL] == groups[cast.SOME] == ["genres", "year", "person x role"]
    assert groups[cast.APART] == ["genres", "year", "cast", "directors"]
    assert sets[cast.SOME]().rows.n_columns <= sets[cast.ALL]().rows.n_columns


def test_new_movies_are_a_tenth_and_the_parts_are_those_of_the_other_claims(made):
    split, _ = made
    assert split.new.sum() == 6
    sizes = [part.n_observations for part in (split.train, split.validation, split.test)]
    assert sum(sizes) == 300 * 16
    assert sizes[0] == pytest.approx(0.8 * sum(sizes), rel=0.02)


def test_where_persons_make_a_movie_they_tell_new_ones_apart(made, tmp_path):
    """A director's part in the generated ratings is several times that of a genre."""
    split, sets = made
    chosen = {name: sets[name] for name in (cast.PLAIN, cast.ALL)}
    store = tmp_path / "figures.json"
    found = cast.run(split, chosen, (20.0,), (0,), cast.TRAININGS[:1], store)
    lines = {(line[0], line[1]): line[3:] for line in cast.table(found)}
    assert len(lines) == 4
    plain, known = (float(lines[cast.LINEAR, name][2].split()[0]) for name in (cast.PLAIN, cast.ALL))
    assert known < 0.8 * plain
    stored = json.loads(store.read_text())
    stored[f"{cast.LINEAR}|{cast.PLAIN}|20|0"] = [1.0, 2.0, 3.0]
    store.write_text(json.dumps(stored))
    again = cast.run(split, chosen, (20.0,), (0,), cast.TRAININGS[:1], store)
    assert again["figures"][f"{cast.LINEAR}, {cast.PLAIN}"]["20"] == [[1.0, 2.0, 3.0]]
    page = cast.page(found, dict.fromkeys(chosen, 7))
    assert page.count("\n| AM-SSP + own") == 2
    assert all(np.isfinite(runs).all() for by in found["figures"].values() for runs in by.values())
