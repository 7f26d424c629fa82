"""Fits that can be resumed: a checkpoint is bound to the data and to everything else that the releases depend on."""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from apportion import __version__
from apportion.data.user_data import UnlistedData, UserData
from apportion.data.vocabulary import Vocabulary
from apportion.engines import DeferredEngine, Engine, LocalEngine, SparkEngine
from apportion.errors import InputError
from apportion.estimators.base import Estimator
from apportion.estimators.counts import number_of_users
from apportion.privacy import Session

_NOT_TOLD = {"noise", "engine"}  # the session and the kernels contribute what matters about these


def resumable(engine: Engine, session: Session, estimator: Estimator, data: UserData | UnlistedData) -> Engine:
    """Bind the session's checkpoint, if it has one, and return the engine of the fit.

    A resumed fit makes no pass for what was released before. It may use another engine, if that engine forms the same
    sums.
    """
    if session.checkpoint is None:
        return engine
    digest = _digest_of(data, engine, session)
    arithmetic = {"exact": engine.exact, "dtype": str(getattr(engine.kernels, "dtype", ""))}
    listed: Vocabulary | None = getattr(data, "task_ids", None)
    tasks = None if listed is None else [listed, listed.declared]
    charged = {"account": session.account}  # stored releases were charged to this account and to no other
    about = [__version__, session.budget, session.noise.description, session.neighbours, arithmetic, tasks, charged]
    told = {name: value for name, value in estimator.get_params().items() if name not in _NOT_TOLD}
    session.checkpoint.bind(digest, in_words([type(estimator).__name__, told, *about]))
    # with other engines, clients form sums that include noise
    forms_sums = isinstance(engine, LocalEngine | SparkEngine)
    return DeferredEngine(engine) if forms_sums and session.checkpoint.n_stored else engine


def _digest_of(data: UserData | UnlistedData, engine: Engine, session: Session) -> str:
    digest: str | None = getattr(data, "digest", None)
    if digest is None and isinstance(engine, SparkEngine):
        digest = engine.digest_of(data.as_users, number_of_users(session))  # type: ignore[arg-type]
    if digest is None:
        raise InputError(f"Expected data with a digest for a checkpoint, got {type(data).__name__}.", argument="data")
    return digest


def in_words(value: Any) -> str:
    """Return a text that is the same for equal settings, in any process, and different for different ones.

    >>> in_words({"b": 1, "a": (None, "x")})
    "{'a': [None, 'x'], 'b': 1}"
    """
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        held = "".join(map(repr, array.tolist())).encode() if array.dtype.hasobject else array.tobytes()
        return f"array({array.dtype}, {array.shape}, {hashlib.sha256(held).hexdigest()})"
    if isinstance(value, Vocabulary):
        return f"ids({hashlib.sha256(repr(value.ids.tolist()).encode('utf-8', 'surrogatepass')).hexdigest()})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {in_words(value[key])}" for key in sorted(value, key=str)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(in_words, value)) + "]"
    names = [each.name for each in fields(value)] if is_dataclass(value) else sorted(getattr(value, "__dict__", ()))
    return f"{type(value).__qualname__}({in_words({name: getattr(value, name) for name in names})})"
