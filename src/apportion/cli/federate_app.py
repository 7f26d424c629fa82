"""The two apps of `apportion federate`: what the server fits, and the desk of each client.

Flower loads this module in processes of its own. The server learns from the run's configuration where the federation's
file is; a client learns from its node's configuration where that file, its rows and its state are.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apportion.cli.federate_state import state_at
from apportion.cli.item_files import read_item_list
from apportion.cli.loading import load_data
from apportion.cli.options import DataOptions
from apportion.cli.outputs import write_model
from apportion.data.users import Users
from apportion.errors import InputError
from apportion.federated.configuration import Federation
from apportion.federated.desk import Desk
from apportion.federated.elsewhere import DataElsewhere
from apportion.federated.engine import Clients
from apportion.federated.flower import FlowerPost, client_app, connected, server_app
from apportion.federated.post import ClientsByPost
from apportion.federated.values import to_bytes
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender

if TYPE_CHECKING:
    from apportion.recommend.model import ItemModel


def fit_over(federation: Federation, clients: Clients) -> ItemModel:
    """Fit the model of a federation. The server has the public list of items and no rows."""
    data = DataElsewhere.of_items(read_item_list(federation.items))
    common: dict[str, Any] = {
        "epsilon": federation.epsilon,
        "delta": federation.delta,
        "dimension": federation.dimension,
        "rounds": federation.rounds,
        "window": federation.window,
        "noise": federation.source,
        "engine": federation.engine(clients),
    }
    if federation.kind == "ratings":
        return PrivateRatingRecommender(value_range=federation.scale, **common).fit(data).model_
    return PrivateClickRecommender(**common).fit(data).model_


def users_of(federation: Federation, rows: Path) -> Users:
    """Return a client's own users, on the public list of items; rows of other items are left out."""
    options = DataOptions(
        kind=federation.kind, items=federation.items, unlisted="drop", scale=federation.scale
    )  # fmt: skip
    return load_data(rows, options).data.as_users


@contextmanager
def open_desk(node: Mapping[str, Any]) -> Iterator[Desk]:
    """Open the desk of a node for one letter, with the state that it kept; one letter at a time."""
    federation = Federation.read(Path(_given(node, "federation")))
    rows, kept = Path(_given(node, "rows")), Path(_given(node, "state"))
    with Path(f"{kept}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        desk = Desk(lambda: users_of(federation, rows), federation.conditions, state=state_at(kept))
        yield desk
        _replace(kept, to_bytes(desk.state))


def _replace(target: Path, content: bytes) -> None:
    """Write a file in place of the one before, durably, readable by its owner alone."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")  # made with mode 0600
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(name, target)


def _given(settings: Mapping[str, Any], name: str) -> str:
    if name not in settings:
        raise InputError(
            f"Expected {name!r} in the configuration of this process, got {sorted(settings)}.", argument=None
        )
    return str(settings[name])


def run_server(grid: Any, settings: Mapping[str, Any]) -> None:
    """Fit over the connected clients, and write the model."""
    federation = Federation.read(Path(_given(settings, "federation")))
    nodes = connected(grid, federation.clients, federation.timeout)
    clients = ClientsByPost(FlowerPost(grid, nodes, federation.timeout))
    write_model(fit_over(federation, clients), Path(_given(settings, "out")), None)


def server() -> Any:
    """Return the Flower ServerApp."""
    return server_app(run_server)


def client() -> Any:
    """Return the Flower ClientApp."""
    return client_app(open_desk)
