"""A fit over real processes: a link and nodes of Flower, over TLS, give the model of one machine's memory.

Flower moves pins of the development environment, so this runs in one of its own: `make test-federated`.
"""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from apportion import linalg
from apportion.cli.federate_app import fit_over, users_of
from apportion.cli.federate_processes import environment, run_command
from apportion.cli.federate_state import journal_of
from apportion.federated.configuration import Federation
from apportion.federated.desk import Desk
from apportion.federated.post import ClientsByPost, LocalPost
from apportion.recommend import load
from federation_files import write_federation
from loopback_federation import federation as running_federation

pytest.importorskip("flwr", reason="Flower has an environment of its own: make test-federated")
pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")
N_CLIENTS = 3


def test_real_processes_over_tls_fit_the_model_of_clients_in_this_process(tmp_path):
    config, rows = write_federation(tmp_path, N_CLIENTS, noise="server", seed=3, dropping=0, timeout=200)
    nodes = [{"federation": config, "rows": path, "state": tmp_path / f"desk{k}"} for k, path in enumerate(rows)]
    with running_federation(tmp_path, nodes) as (app, home):
        asked = {"federation": str(config), "out": str(tmp_path / "model")}
        done = subprocess.run(
            run_command(app, asked), env=environment(home), capture_output=True, text=True, timeout=550, check=False
        )
    assert (tmp_path / "model").is_dir(), done.stdout[-3000:] + (tmp_path / "link.log").read_text()[-3000:]
    told = Federation.read(config)
    desks = {k: Desk(lambda path=path: users_of(told, path), told.conditions) for k, path in enumerate(rows)}
    here, there = fit_over(told, ClientsByPost(LocalPost(desks))), load(tmp_path / "model")
    np.testing.assert_array_equal(np.asarray(here.vectors, np.float32), np.asarray(there.vectors, np.float32))
    assert here.statement.releases == there.statement.releases
    journal = journal_of(tmp_path / "desk0")
    assert len(journal) == len(desks[0].state.journal)
    assert (tmp_path / "desk0").stat().st_mode & 0o077 == 0
