"""The files of a small federation: a public list of items, rows and a folder of each client, and the configuration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from apportion.cli.federate_app import new_client
from apportion.data.synthetic import long_tailed_ratings
from apportion.federated import SimulatedClients


def write_federation(folder, n_clients, n_users=60, n_items=10, n_rows=8, **settings):
    """Write everything; return the configuration and the files of rows. Folders of clients are client0, client1, ..."""
    folder.mkdir(parents=True, exist_ok=True)
    data, _ = long_tailed_ratings(n_users, n_items, n_rows * n_users, rank=1, rng=np.random.default_rng(0))
    (folder / "items.txt").write_text("".join(f"{each}\n" for each in data.task_ids.ids))
    rows = []
    for number in range(n_clients):
        mine = data.users % n_clients == number
        triples = zip(data.users[mine], data.tasks[mine], data.values[mine].clip(1, 5), strict=True)
        lines = [f"u{user},{data.task_ids.id_of(int(task))},{value}\n" for user, task, value in triples]
        rows.append(folder / f"rows{number}.csv")
        rows[-1].write_text("user,item,rating\n" + "".join(lines))
    keys = [new_client(folder / f"client{number}") for number in range(n_clients)]
    (folder / "roster.txt").write_text("\n".join(keys) + "\n")
    files = {"items": "items.txt", "roster": "roster.txt", "server": new_client(folder / "server")}
    given = {**files, "epsilon": 5.0, "rounds": 1, "dimension": 1, **settings}
    lines = [f"{name} = {value!r}\n".replace("'", '"') for name, value in given.items()]
    (folder / "federation.toml").write_text("".join(lines))
    return folder / "federation.toml", rows


def write_everybody(folder, rows):
    """Write all rows into one file, as one machine would have them."""
    everybody = folder / "all.csv"
    everybody.write_text("user,item,rating\n" + "".join(path.read_text().split("\n", 1)[1] for path in rows))
    return everybody


class OneMachine:
    """All rows in memory, in one process, with the same masks."""

    def __init__(self, users):
        self.users = users

    def add_up(self, terms, question, users):
        return SimulatedClients().add_up(replace(terms, identities=()), question, self.users)
