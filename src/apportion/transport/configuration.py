"""The one configuration file of a federation. The server has one, and every client has a copy of its own.

A client reads its copy to know what it agrees to. Where copies differ in what terms are made of, passes come to
nothing.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, get_args

from apportion.errors import InputError
from apportion.federated import Clients, FederatedEngine, NoisyClientsEngine
from apportion.privacy.noise import NoiseSource, SeededNoise, SystemNoise
from apportion.transport.conditions import Conditions, NoisePlace
from apportion.transport.listed import PublicFacts

Kind = Literal["ratings", "clicks", "encoder", "mean", "quantiles", "parties"]

ASKED: Final[Mapping[str, tuple[str, ...]]] = {
    "ratings": (
        "number-of-users",
        "user-means",
        "popularity",
        "choice-totals",
        "choice-tastes",
        "click-votes",
        "clip-norms",
        "user-spread",
        "rating-round",
        "variance-votes",
    ),
    "clicks": (
        "number-of-users",
        "popularity",
        "leading-popularity",
        "click-totals",
        "click-tastes",
        "click-votes",
    ),
    "encoder": ("user-means", "popularity", "encoder-matrices", "encoder-vectors"),
    "mean": ("user-means",),
    "quantiles": ("value-shares",),
    "parties": ("party-models",),
}
"""What each kind of federation asks its clients for."""
_IN_ROUNDS: Final = {
    "rating-round", "choice-tastes", "click-tastes", "encoder-matrices", "encoder-vectors", "party-models"
}  # fmt: skip
_MOST_ROUNDS: Final = 15  # of a fit whose file does not say how many
_OF_CHOICES: Final = 4  # rounds in which ratings fits ask for tastes of choices at most, however many rounds they have
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "int": int,
    "int | None": int,
    "float": (int, float),
    "tuple[float, ...]": list,
}


@dataclass(frozen=True)
class Federation:
    """What is agreed on before a federated fit.

    Attributes:
        items: file with the public list of items, one id in each line; of `kind` parties, the names of the features.
        roster: file with the public keys of all clients, one in each line; `apportion federate key` prints one.
        server: the public key of the server, in hexadecimal digits; clients answer nobody else.
        kind: what is learned: a recommender from ratings or clicks, or from ratings and public item features by an
            encoder, or the mean or quantiles of users' values, or linear models of parties (clients).
        epsilon: ε that a client allows in all.
        delta: δ of it.
        colluding: how many clients may collude with the server.
        dropping: how many may drop out of a pass.
        noise: who draws it.
        passes: the most passes that a client answers in all.
        fits: how many fits a client takes part in, if the server draws the noise.
        scale: of values, low and high.
        quantiles: which ones, of `kind` quantiles.
        features: file with public features of items, of `kind` encoder; the server alone needs it.
        resamples: releases of statistics in a round of the encoder: 1 for SSP-c, more for SSP-i.
        label: the column that parties predict, of `kind` parties.
        dimension: length of item vectors; None for the default.
        rounds: number of rounds; None for the default.
        timeout: seconds that the server waits for answers.
        window: the time span of the data, for the statement.
        seed: of the server's noise, for a rehearsal: what it makes is not for release. None for a real fit.
    """

    items: Path
    roster: Path
    server: str
    kind: Kind = "ratings"
    epsilon: float = 1.0
    delta: float = 1e-6
    colluding: int = 1
    dropping: int = 1
    noise: NoisePlace = "clients"
    passes: int = 100
    fits: int = 1
    scale: tuple[float, ...] = (1.0, 5.0)
    quantiles: tuple[float, ...] = (0.25, 0.5, 0.75)
    features: Path | None = None
    resamples: int = 1
    label: str = "label"
    dimension: int | None = None
    rounds: int | None = None
    timeout: float = 120.0
    window: str = "not declared"
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"Expected kind to be one of {', '.join(ASKED)}, got {self.kind!r}.", argument="kind")
        if self.seed is not None and self.noise != "server":
            raise InputError("A seed is for noise of the server; clients draw theirs afresh.", argument="seed")
        if (self.kind == "encoder") != (self.features is not None):
            raise InputError(
                f"Expected features with the kind encoder and with no other, got the kind {self.kind}.",
                argument="features",
            )
        if self.fits < 1:
            raise InputError(f"Expected at least 1 fit, got {self.fits}.", argument="fits")
        if len(self.scale) != 2 or not self.timeout > 0:
            raise InputError(
                f"Expected a scale [low, high] and a timeout above 0, got {list(self.scale)} and {self.timeout:g}.",
                argument="scale",
            )

    @classmethod
    def read(cls, path: Path) -> Federation:
        """Read a TOML file. Paths in it are relative to the file."""
        try:
            return cls.of(tomllib.loads(path.read_text(encoding="utf-8")), path.parent)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
            raise InputError(f"{path.name}: {problem}.", argument=None) from None
        except InputError as problem:
            raise problem.inside(path.name) from None

    @classmethod
    def of(cls, given: Mapping[str, Any], folder: Path) -> Federation:
        """Return what a table of settings says; refuse unknown, missing and mistyped ones."""
        known = {each.name: str(each.type) for each in fields(cls)}
        for name, value in given.items():
            if name not in known:
                raise InputError(f"Expected one of the settings {', '.join(known)}, got {name!r}.", argument=None)
            if isinstance(value, bool) or not isinstance(value, _TYPES.get(known[name], str)):
                raise InputError(f"Expected {name} of type {known[name]}, got {value!r}.", argument=None)
        missing = [name for name in ("items", "roster", "server") if name not in given]
        if missing:
            raise InputError(f"Expected the setting {missing[0]!r}, got none.", argument=None)
        paths = {name: folder / given[name] for name in ("items", "roster", "features") if name in given}
        lists = {name: _numbers(name, given[name]) for name in ("scale", "quantiles") if name in given}
        return cls(**{**given, **paths, **lists})

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The public keys of the roster, in order."""
        try:
            return tuple(bytes.fromhex(line) for line in self.roster.read_text(encoding="utf-8").split())
        except (ValueError, OSError):
            raise InputError(
                f"Expected public keys in hexadecimal digits in {self.roster.name}, got something else or no file.",
                argument="roster",
            ) from None

    @property
    def server_key(self) -> bytes:
        """The public key of the server."""
        try:
            return bytes.fromhex(self.server)
        except ValueError:
            raise InputError(
                f"Expected the server's public key in hexadecimal digits, got {self.server!r}.", argument="server"
            ) from None

    def conditions(self, items: Sequence[Any], keys: tuple[bytes, ...], server: bytes) -> Conditions:
        """Return what a client with this file agrees to.

        Args:
            items: the public list of items.
            keys: the roster.
            server: the public key of the server.
        """
        listed = hashlib.sha256(repr([str(each) for each in items]).encode()).digest()
        low, high = self.scale
        return Conditions(
            roster=keys,
            server=server,
            facts=PublicFacts(len(items), (low, high), listed),
            allowed=frozenset(ASKED[self.kind]),
            sums=self.sums,
            **{
                name: getattr(self, name)
                for name in ("colluding", "dropping", "noise", "epsilon", "delta", "passes")
            },
        )  # fmt: skip

    @property
    def sums(self) -> dict[str, int]:
        """How many sums of each name its fits need: one of each in a fit, and of some one in every round.

        A round may be run again for each client that can drop out, if that client stops it.
        """
        rounds = max(_OF_CHOICES, 1 + (self.rounds or _MOST_ROUNDS)) * self.resamples + self.dropping
        return {name: self.fits * (rounds if name in _IN_ROUNDS else 1) for name in ASKED[self.kind]}

    @property
    def source(self) -> NoiseSource:
        """The server's source of noise, with exact arithmetic."""
        return SystemNoise(exact=True) if self.seed is None else SeededNoise(self.seed, exact=True)

    def engine(self, conditions: Conditions, clients: Clients) -> FederatedEngine:
        """Return the engine of the fit."""
        made = NoisyClientsEngine if self.noise == "clients" else FederatedEngine
        return made(conditions.trust, clients, "float32" if self.kind in ("clicks", "encoder") else "float64")


def _numbers(name: str, given: Sequence[Any]) -> tuple[float, ...]:
    if any(isinstance(each, bool) or not isinstance(each, int | float) for each in given):
        raise InputError(f"Expected numbers in {name}, got {list(given)!r}.", argument=None)
    return tuple(map(float, given))
