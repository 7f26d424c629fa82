"""The one configuration file of a federation, for the server and for every client.

It is public. Clients read it to know what they agree to; the server reads it to know what it may ask.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from apportion.errors import InputError
from apportion.federated.desk import Conditions
from apportion.federated.engine import Clients, FederatedEngine, NoisyClientsEngine, Trust
from apportion.privacy.noise import NoiseSource, SeededNoise, SystemNoise

Kind = Literal["ratings", "clicks"]
NoiseFrom = Literal["server", "clients"]


@dataclass(frozen=True)
class Federation:
    """What is agreed on before a federated fit.

    Attributes:
        items: file with the public list of items, one id in each line.
        clients: number of clients.
        kind: what is learned from.
        epsilon: ε of the whole fit.
        delta: δ of the whole fit.
        colluding: how many clients may collude with the server.
        dropping: how many may drop out of a pass.
        noise: who draws it.
        scale: of ratings, low and high.
        dimension: length of item vectors; None for the default.
        rounds: number of rounds; None for the default.
        timeout: seconds that the server waits for answers.
        window: the time span of the data, for the statement.
        seed: of the server's noise, for a rehearsal: what it makes is not for release. None for a real fit.
    """

    items: Path
    clients: int
    kind: Kind = "ratings"
    epsilon: float = 1.0
    delta: float = 1e-6
    colluding: int = 1
    dropping: int = 1
    noise: NoiseFrom = "clients"
    scale: tuple[float, float] = (1.0, 5.0)
    dimension: int | None = None
    rounds: int | None = None
    timeout: float = 120.0
    window: str = "not declared"
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, allowed in (("kind", get_args(Kind)), ("noise", get_args(NoiseFrom))):
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"Expected {name} to be one of {', '.join(allowed)}, got {getattr(self, name)!r}.", argument=name
                )
        if self.seed is not None and self.noise != "server":
            raise InputError("A seed is for noise of the server; clients draw theirs afresh.", argument="seed")
        _ = self.trust  # refuses impossible numbers

    @classmethod
    def read(cls, path: Path) -> Federation:
        """Read a TOML file. Paths in it are relative to the file."""
        try:
            given = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
            raise InputError(f"{path.name}: {problem}.", argument=None) from None
        try:
            return cls.of(given, path.parent)
        except InputError as problem:
            raise problem.inside(path.name) from None

    @classmethod
    def of(cls, given: Mapping[str, Any], folder: Path) -> Federation:
        """Return what a table of settings says; refuse unknown, missing and mistyped ones."""
        known = {each.name: str(each.type) for each in fields(cls)}
        for name, value in given.items():
            if name not in known:
                raise InputError(f"Expected one of the settings {', '.join(known)}, got {name!r}.", argument=None)
            _require_type(name, value, known[name])
        missing = [name for name in ("items", "clients") if name not in given]
        if missing:
            raise InputError(f"Expected the setting {missing[0]!r}, got none.", argument=None)
        paths = {"items": folder / given["items"]}
        scale = {"scale": tuple(map(float, given["scale"]))} if "scale" in given else {}
        return cls(**{**given, **paths, **scale})

    @property
    def trust(self) -> Trust:
        """How many clients there are, collude and drop out."""
        return Trust(self.clients, self.colluding, self.dropping)

    @property
    def source(self) -> NoiseSource:
        """The server's source of noise, with exact arithmetic."""
        return SystemNoise(exact=True) if self.seed is None else SeededNoise(self.seed, exact=True)

    @property
    def conditions(self) -> Conditions:
        """What a client that reads this file agrees to."""
        noisy = self.noise == "clients"
        return Conditions(self.trust.least, self.colluding, noisy, self.epsilon, self.delta)

    def engine(self, clients: Clients) -> FederatedEngine:
        """Return the engine of the fit."""
        made = NoisyClientsEngine if self.noise == "clients" else FederatedEngine
        return made(self.trust, clients, "float64" if self.kind == "ratings" else "float32")


def _require_type(name: str, value: object, wanted: str) -> None:
    good = {
        "int": isinstance(value, int) and not isinstance(value, bool),
        "int | None": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
        "tuple[float, float]": isinstance(value, list)
        and len(value) == 2
        and all(isinstance(each, int | float) for each in value),
    }.get(wanted, isinstance(value, str))
    if not good:
        raise InputError(f"Expected {name} of type {wanted}, got {value!r}.", argument=None)
