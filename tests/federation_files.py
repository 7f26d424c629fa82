"""The files of a small federation: a public list of items, rows of each client, and the one configuration."""

from __future__ import annotations

import numpy as np

from apportion.data.synthetic import long_tailed_ratings


def write_federation(folder, n_clients, **settings):
    """Write everything; return the configuration and the files of rows."""
    data, _ = long_tailed_ratings(60, 10, 500, rank=1, rng=np.random.default_rng(0))
    (folder / "items.txt").write_text("".join(f"{each}\n" for each in data.task_ids.ids))
    rows = []
    for number in range(n_clients):
        mine = data.users % n_clients == number
        triples = zip(data.users[mine], data.tasks[mine], data.values[mine].clip(1, 5), strict=True)
        lines = [f"u{user},{data.task_ids.id_of(int(task))},{value}\n" for user, task, value in triples]
        rows.append(folder / f"rows{number}.csv")
        rows[-1].write_text("user,item,rating\n" + "".join(lines))
    given = {"items": "items.txt", "clients": n_clients, "epsilon": 5.0, "rounds": 1, "dimension": 1, **settings}
    lines = [f"{name} = {value!r}\n".replace("'", '"') for name, value in given.items()]
    (folder / "federation.toml").write_text("".join(lines))
    return folder / "federation.toml", rows
