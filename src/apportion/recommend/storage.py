"""Models on disk: a directory with tensors, a JSON description and the privacy statement. No pickle.

The directory is written to a temporary place and then moved, so a crash leaves the old one or the new one, never half
of either.
"""

from __future__ import annotations

import errno
import json
import math
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from apportion import registry
from apportion.data import Vocabulary
from apportion.data.features import FeatureSpace
from apportion.errors import InputError, require_format
from apportion.privacy.statement import Statement
from apportion.recommend.categories import Categories
from apportion.recommend.features.new_items import FeatureMap, NewItemMap
from apportion.recommend.model import ClickModel, FoldIn, ItemModel, RatingModel

FORMAT = 2
_TENSORS, _DESCRIPTION, _STATEMENT = "model.safetensors", "model.json", "statement.json"
REPORT = "report.html"
"""Name of the page that the command line writes beside a model."""
CARD = "privacy-card.json"
"""Name of the privacy card that it writes there too."""
_MAP = "feature_map."
_CATEGORIES = "categories."
_CHOICE = "choice."


def save(model: ItemModel, path: str | Path) -> None:
    """Write a model with its statement. An existing model at that path is replaced, nothing else is.

    Args:
        model: the `model_` of a recommender.
        path: a directory, which is made.

    Example:
        >>> import tempfile
        >>> from apportion.data.synthetic import long_tailed_ratings
        >>> from apportion.recommend import PrivateRatingRecommender
        >>> data, _ = long_tailed_ratings(200, 30, 2000, rank=2, rng=np.random.default_rng(0))
        >>> folder = tempfile.mkdtemp() + "/model"
        >>> save(PrivateRatingRecommender(epsilon=1.0, dimension=2, rounds=1).fit(data).model_, folder)
        >>> load(folder).statement.epsilon
        1.0
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    target = Path(path)
    refuse_unless_model(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        try:
            save_file(_tensors(model), str(staging / _TENSORS))
        except SafetensorError as error:  # a full disk, in words of its own
            raise OSError(errno.EIO, f"The tensors could not be written: {error}", str(target)) from None
        (staging / _DESCRIPTION).write_text(json.dumps(_description(model), indent=2), encoding="utf-8")
        if model.statement is not None:
            (staging / _STATEMENT).write_text(model.statement.to_json(), encoding="utf-8")
        _replace(staging, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def refuse_unless_model(target: Path) -> None:
    """Refuse a path that holds something other than a model, because it would be replaced."""
    if not target.exists() and not target.is_symlink():
        return
    ours = {_TENSORS, _DESCRIPTION, _STATEMENT, REPORT, CARD}
    names = {file.name for file in target.iterdir()} if target.is_dir() else {target.name}
    if _DESCRIPTION not in names or names - ours or _model_kind(_kind_of(target)) is None:
        raise InputError(
            f"Refusing to replace {str(target)!r}: it already exists and is not a saved model.", argument=None
        )


def _kind_of(folder: Path) -> object:
    try:
        return json.loads((folder / _DESCRIPTION).read_text(encoding="utf-8")).get("kind")
    except (OSError, ValueError, AttributeError):
        return None


def load(path: str | Path, *, encoder: Any = None) -> ItemModel:
    """Read a model back, including its statement.

    Args:
        path: where it was saved.
        encoder: for a model with a custom encoder: a module of the same form. The stored parameters replace its own, so
            that new items can be scored.

    Example:
        >>> import tempfile
        >>> from apportion.data.synthetic import long_tailed_clicks
        >>> from apportion.recommend import PrivateClickRecommender
        >>> data, _ = long_tailed_clicks(200, 30, 2000, rank=2, rng=np.random.default_rng(0))
        >>> folder = tempfile.mkdtemp() + "/model"
        >>> save(PrivateClickRecommender(epsilon=1.0, dimension=2, rounds=1).fit(data).model_, folder)
        >>> load(folder).vectors.shape
        (30, 2)
    """
    folder = Path(path)
    if not (folder / _DESCRIPTION).is_file():
        raise InputError(f"There is no saved model at {str(folder)!r}.", argument=None)
    try:
        model = _loaded(folder)
        _check(model)
    except InputError:
        raise
    except Exception as damage:  # whatever a damaged file makes its reader raise
        said = str(damage) if isinstance(damage, _OddPartError) else type(damage).__name__
        raise InputError(f"The model at {str(folder)!r} is damaged: {said}.", argument=None) from damage
    if encoder is not None:
        if model.feature_map is None:
            raise InputError(f"The model at {str(folder)!r} has no encoder, so it needs no module.", argument="encoder")
        model.feature_map = model.feature_map.with_encoder(encoder)
    return model


def _loaded(folder: Path) -> ItemModel:
    from safetensors.numpy import load_file

    description: dict[str, Any] = json.loads((folder / _DESCRIPTION).read_text(encoding="utf-8"))
    require_format(f"The model at {str(folder)!r}", description.get("format"), FORMAT)
    kind = _model_kind(description.get("kind"))
    if kind is None:
        raise InputError(
            f"The model at {str(folder)!r} is of kind {description.get('kind')!r}, which no installed package knows.",
            argument=None,
        )
    tensors = load_file(str(folder / _TENSORS))
    statement = folder / _STATEMENT
    if description["private"] and not statement.is_file():
        raise InputError(f"The privacy statement of the model at {str(folder)!r} is missing.", argument=None)
    ids = tensors["task_ids"] if description["task_ids"] is None else np.array(description["task_ids"], dtype=object)
    fold_in = FoldIn(*(tensors[f"fold_in.{name}"] for name in FoldIn.__dataclass_fields__))
    further = kind.extra_from_stored(description)
    if f"{_CHOICE}features" in tensors:
        further["choice"] = FoldIn(*(tensors[_CHOICE + name] for name in FoldIn.__dataclass_fields__))
    if "no_map" in description:
        further["no_map"] = description["no_map"]
    model = kind(
        fold_in=fold_in,
        vectors=tensors["vectors"],
        popularity=tensors["popularity"],
        reliability=tensors["reliability"],
        task_ids=_items(ids, description),
        statement=Statement.from_json(statement.read_text(encoding="utf-8")) if description["private"] else None,
        offset=description["offset"],
        value_range=(description["value_range"][0], description["value_range"][1]),
        settings=description["settings"],
        feature_map=_feature_map(description, tensors),
        categories=_categories(description, tensors),
        **further,
    )
    titles = zip(model.task_ids, description.get("titles") or (), strict=False)
    model.titles = {task: title for task, title in titles if title is not None}
    return model


def _items(ids: Any, description: dict[str, Any]) -> Vocabulary:
    try:
        return Vocabulary(ids, name=description["task_name"], declared=description["tasks_declared"])
    except InputError as error:
        raise _OddPartError(f"the list of items: {error.problem.rstrip('.')}") from None


class _OddPartError(ValueError):
    """A part of a stored model that no fit writes."""


def _check(model: ItemModel) -> None:
    """Refuse numbers that no fit writes: with them, scores would be wrong or would fail later."""
    low, high = model.value_range
    for name, number in (("offset", model.offset), ("value_range", low), ("value_range", high)):
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise _OddPartError(f"{name} holds {number!r}, not a finite number")
    if not low < high:
        raise _OddPartError(f"value_range goes from {low} to {high}")
    n_tasks, length = model.fold_in.features.shape
    for name, array, shape in (
        ("the list of items", model.task_ids.ids, (n_tasks,)),
        ("vectors", model.vectors[:, :0], (n_tasks, 0)),
        ("popularity", model.popularity, (n_tasks,)),
        ("reliability", model.reliability, (n_tasks,)),
        ("weights of observations", model.fold_in.observation_weights, (n_tasks,)),
        ("base", model.fold_in.base, (length, length)),
        ("right-hand side", model.fold_in.base_rhs, (length,)),
    ):
        if array.shape != shape:
            raise _OddPartError(f"{name}: expected shape {shape}, got {array.shape}")
    parts = (*vars(model.fold_in).values(), model.vectors, model.popularity, model.reliability)
    if not all(np.isfinite(part).all() for part in parts):
        raise _OddPartError("a tensor holds a number that is not finite")


def _model_kind(name: object) -> type[ItemModel] | None:
    own: dict[object, type[ItemModel]] = {kind.kind: kind for kind in (RatingModel, ClickModel)}
    return own.get(name) or registry.lookup(registry.MODELS, name)


def _feature_map(description: dict[str, Any], tensors: dict[str, Any]) -> NewItemMap | None:
    held = description.get("features")
    if held is None:
        return None
    name = held["kind"]
    kind: type[NewItemMap] | None = (
        FeatureMap if name == FeatureMap.kind else registry.lookup(registry.FEATURE_MAPS, name)
    )
    if kind is None:
        raise InputError(
            f"The model's feature map is of kind {name!r}, which no installed package knows.", argument=None
        )
    shared = {
        "space": FeatureSpace.from_json(json.dumps(held["space"])),
        "observation_weight": held["observation_weight"],
    }
    own = {name.removeprefix(_MAP): value for name, value in tensors.items() if name.startswith(_MAP)}
    return kind.restored(shared, held, own)


def _categories(description: dict[str, Any], tensors: dict[str, Any]) -> Categories | None:
    if "categories" not in description:
        return None
    own = {name.removeprefix(_CATEGORIES): value for name, value in tensors.items() if name.startswith(_CATEGORIES)}
    return Categories.restored(description["categories"], own)


def _tensors(model: ItemModel) -> dict[str, Any]:
    tensors = {f"fold_in.{name}": getattr(model.fold_in, name) for name in FoldIn.__dataclass_fields__}
    tensors |= {"vectors": model.vectors, "popularity": model.popularity, "reliability": model.reliability}
    if model.feature_map is not None:
        tensors |= {_MAP + name: values for name, values in model.feature_map.tensors().items()}
    if model.categories is not None:
        tensors |= {_CATEGORIES + name: values for name, values in model.categories.tensors().items()}
    if model.choice is not None:
        tensors |= {_CHOICE + name: getattr(model.choice, name) for name in FoldIn.__dataclass_fields__}
    if not model.task_ids.holds_text:
        tensors["task_ids"] = np.array(model.task_ids.ids)
    return {name: np.ascontiguousarray(values) for name, values in tensors.items()}


def _description(model: ItemModel) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "kind": model.kind,
        "private": model.statement is not None,
        "task_name": model.task_ids.name,
        "tasks_declared": model.task_ids.declared,
        "task_ids": list(model.task_ids) if model.task_ids.holds_text else None,
        "offset": model.offset,
        "value_range": list(model.value_range),
        "settings": model.settings,
        **model.stored_fields(),
        **_category_groups(model.categories),
        **({"titles": [model.titles.get(each) for each in model.task_ids]} if model.titles else {}),
        **({"no_map": model.no_map} if model.feature_map is None else {"features": _map(model.feature_map)}),
    }


def _category_groups(categories: Categories | None) -> dict[str, Any]:
    if categories is None:
        return {}
    return {"categories": [{"name": name, "words": list(words)} for name, words in categories.groups.items()]}


def _map(known: NewItemMap) -> dict[str, Any]:
    description = {"space": json.loads(known.space.to_json()), "observation_weight": known.observation_weight}
    return {"kind": known.kind, **description, **known.stored_fields()}


def _replace(staging: Path, target: Path) -> None:
    staging.chmod(0o755)
    for file in staging.iterdir():
        file.chmod(0o644)
    if target.exists():
        old = staging.with_name(staging.name + "-old")
        target.rename(old)
        staging.rename(target)
        shutil.rmtree(old)
    else:
        staging.rename(target)
