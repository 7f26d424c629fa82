"""A server that makes one pass and two releases: in a federation of real processes, every stage takes seconds."""

from __future__ import annotations

import json
from pathlib import Path

from apportion.allocation import SplitEqually
from apportion.cli.item_files import read_item_list
from apportion.estimators.counts import number_of_users
from apportion.federated.configuration import Federation
from apportion.federated.elsewhere import DataElsewhere
from apportion.federated.flower import FlowerPost, connected, server_app
from apportion.federated.post import ClientsByPost
from apportion.privacy import Budget, SeededNoise, Session
from apportion.privacy.contributions import TaskCounts

APP = '"""A server of tests."""\n\nfrom one_pass import server\n\napp = server()\n'


def released(engine, users):
    """The number of users and the popularity of every item, as released with the same noise on any engine."""
    session = Session(Budget(5.0, 1e-6), noise=SeededNoise(3, exact=True))
    sums = engine.add_up(users, [number_of_users(session), TaskCounts(SplitEqually())])
    shares = session.plan(each=[0.5, 0.5]).several("each")
    names = ("number of users", "popularity")
    made = {name: session.release(name, *given).tolist() for name, *given in zip(names, sums, shares, strict=True)}
    return {**made, "not protected": session.statement().unprotected}


def run_server(grid, settings):
    told = Federation.read(Path(settings["federation"]))
    post = FlowerPost(grid, connected(grid, told.clients, told.timeout), told.timeout)
    data = DataElsewhere.of_items(read_item_list(told.items))
    found = released(told.engine(ClientsByPost(post)), data.as_users)
    part = Path(f"{settings['out']}.part")
    part.write_text(json.dumps(found), encoding="utf-8")
    part.rename(settings["out"])


def server():
    return server_app(run_server)
