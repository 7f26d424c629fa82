"""What the two sides of `apportion federate` do: the server's fit, and the desk of a client."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from apportion.cli.federate_encoder import fitted_encoder
from apportion.cli.federate_parties import RELEASED, fit_parties, rows_of_party
from apportion.cli.item_files import read_item_list
from apportion.cli.loading import load_data
from apportion.cli.options import DataOptions
from apportion.cli.outputs import version_of, write_paid_model, write_text
from apportion.data import Interactions
from apportion.data.users import Users
from apportion.engines import add_up_one
from apportion.errors import InputError
from apportion.estimators.counts import release_overview
from apportion.federated import Clients, DataElsewhere
from apportion.privacy import Budget, Purpose, Session
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender
from apportion.statistics.value_shares import SharesBetween
from apportion.transport import ClientAccount, Conditions, Desk
from apportion.transport.configuration import Federation

_CUTS = 40  # steps that a scale is divided into for quantiles
KEY, ACCOUNT = "key", "account"


def agreed(federation: Federation) -> Conditions:
    """Return the conditions of a federation, with the keys that its file names."""
    return federation.conditions(read_item_list(federation.items), federation.keys, federation.server_key)


def rehearsed(federation: Federation, keys: tuple[bytes, ...], server: bytes) -> Conditions:
    """Return the conditions of a rehearsal, with keys that were made for it."""
    return federation.conditions(read_item_list(federation.items), keys, server)


def users_of(federation: Federation, rows: Path) -> Users:
    """Return a client's own users, on the public list of items, or the rows of the party that it is."""
    if federation.kind == "parties":
        return rows_of_party(federation, rows)
    return rows_of(federation, rows).as_users


def rows_of(federation: Federation, rows: Path) -> Interactions:
    """Return the rows of a file, on the public list of items; rows of other items are left out."""
    low, high = federation.scale
    kind: Any = "clicks" if federation.kind == "clicks" else "ratings"
    options = DataOptions(kind=kind, items=federation.items, unlisted="drop", scale=(low, high))
    return load_data(rows, options, single_user=True).data


def new_client(folder: Path) -> str:
    """Make the secret key and the account of a new client in a folder; return its public key."""
    folder.mkdir(parents=True, exist_ok=True)
    secret = Ed25519PrivateKey.generate()
    handle = os.open(folder / KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(secret.private_bytes_raw().hex() + "\n")
    public = secret.public_key().public_bytes_raw()
    ClientAccount.created(folder / ACCOUNT, public)
    return public.hex()


def desk_of(conditions: Conditions, users: Users, folder: Path) -> Desk:
    """Return the desk of the client whose key and account are in a folder."""
    secret = secret_key(folder, "client")
    public = Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    return Desk(users, conditions, secret, ClientAccount(folder / ACCOUNT, public))


def secret_key(folder: Path, whose: str) -> bytes:
    """Return the secret key in a folder of a client or of the server."""
    try:
        secret = bytes.fromhex((folder / KEY).read_text(encoding="utf-8").strip())
        Ed25519PrivateKey.from_private_bytes(secret)
    except (OSError, ValueError):
        raise InputError(
            f"Expected the key of a {whose} in {folder.name}; `apportion federate key` makes one.", argument="client"
        ) from None
    return secret


def fit_over(federation: Federation, conditions: Conditions, clients: Clients, out: Path) -> str:
    """Fit what a federation is for, and write it; return the statement. The server has no rows."""
    before = version_of(out)
    data = DataElsewhere.of_items(read_item_list(federation.items))
    engine = federation.engine(conditions, clients)
    if federation.kind == "parties":
        return fit_parties(federation, conditions, engine, out)
    if federation.kind in ("mean", "quantiles"):
        return _released(federation, data, engine, out)
    common: dict[str, Any] = {
        **{name: getattr(federation, name) for name in ("epsilon", "delta", "dimension", "rounds", "window")},
        "noise": federation.source,
        "engine": engine,
    }
    low, high = federation.scale
    if federation.kind == "ratings":
        model: Any = PrivateRatingRecommender(value_range=(low, high), **common).fit(data).model_
    elif federation.kind == "encoder":
        model = fitted_encoder(federation, data, {**common, "value_range": (low, high)})
    else:
        model = PrivateClickRecommender(**common).fit(data).model_
    write_paid_model(model, out, None, before)
    return str(model.statement.to_text())


def _released(federation: Federation, data: DataElsewhere, engine: Any, out: Path) -> str:
    """Release the mean of users' means, or quantiles of the mean of users' distributions."""
    session = Session(
        Budget(federation.epsilon, federation.delta), noise=federation.source, window=federation.window
    )  # fmt: skip
    share, (low, high) = session.plan(all=1.0).one("all"), federation.scale
    if federation.kind == "mean":
        n_users, mean = release_overview(data.as_users, session, engine, share, (low, high), None)
        found: dict[str, Any] = {"number of users": n_users, "mean": mean}
    else:
        part = SharesBetween(tuple(np.linspace(low, high, _CUTS + 1)[1:-1].tolist()))
        total = add_up_one(engine, data.as_users, part.contribution())
        shares = session.release(Purpose.QUANTILES, total, share)
        points = part.quantiles(shares, np.array(federation.quantiles))
        found = {"quantiles": dict(zip(map(str, federation.quantiles), points.tolist(), strict=True))}
    statement = session.statement().to_text()
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / RELEASED, json.dumps({**found, "statement": statement}, indent=2) + "\n")
    return statement
