"""Public features of MovieLens 1M: genres and years from its own list of movies, finer genres, cast and directors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet

from apportion.data.features import FineFeaturesWarning, ItemFeatures
from benchmarks.claim import data_folder, need

GENRE_AND_YEAR = ("genres", "year")
EVERYTHING = ("genres", "year", "finer genres", "people")


def ml1m_features(which: Sequence[str] = GENRE_AND_YEAR, *, bins: int = 16) -> ItemFeatures:
    """Features of the 3883 movies: any of `EVERYTHING`, and "people x role"."""
    found = [_part(name, bins) for name in which]
    joined = found[0]
    for other in found[1:]:
        joined = joined.beside(other)
    return joined


def movies() -> pa.Table:
    """Id, title, year and genres of all movies, from the original list."""
    path = need(data_folder() / "ml-1m" / "movies.dat", "MovieLens 1M's list of movies")
    rows = [line.split("::") for line in path.read_text(encoding="latin-1").splitlines() if line]
    ids, titles, genres = zip(*rows, strict=True)
    table = pa.table({"movieId": pa.array([int(i) for i in ids]), "title": titles, "genres": genres})
    years = pc.extract_regex(table["title"], r"\((?P<year>[0-9]{4})[^()]*\)\s*$")
    return table.append_column("year", pc.struct_field(years, "year").cast(pa.int64()))


def _part(name: str, bins: int) -> ItemFeatures:
    if name in ("genres", "year"):
        frame = movies().select(["movieId", name])
        return ItemFeatures.from_frame(frame, kinds={"year": "binned"} if name == "year" else None, bins=bins)
    folder = data_folder() / "ml-1m"
    if name == "finer genres":
        finer = parquet.read_table(need(folder / "imdb_genres.parquet", "finer genres of MovieLens 1M"))
        return ItemFeatures.from_frame(finer.rename_columns(["movieId", "finer genres"]))
    people = parquet.read_table(need(folder / "people.parquet", "cast and directors of MovieLens 1M"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FineFeaturesWarning)
        if name == "people":
            return ItemFeatures.from_frame(people, kinds={"role": "ignore"})
        return ItemFeatures.from_frame(
            people, kinds={"role": "ignore", "person": "ignore"}, crosses=[("person", "role")]
        )
