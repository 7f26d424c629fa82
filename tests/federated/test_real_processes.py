"""A pass over real processes: a link and nodes of Flower, over TLS, release what one machine's memory does.

Flower moves pins of the development environment, so this runs in one of its own: `make test-federated`.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from apportion import linalg
from apportion.cli.federate_app import users_of
from apportion.cli.federate_state import journal_of
from apportion.engines import LocalEngine
from apportion.federated.configuration import Federation
from federation_files import write_federation
from loopback_federation import run_over_loopback
from one_pass import released

pytest.importorskip("flwr", reason="Flower has an environment of its own: make test-federated")
pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")
N_CLIENTS = 3


def test_real_processes_over_tls_release_what_memory_does(tmp_path):
    config, rows = write_federation(tmp_path, N_CLIENTS, noise="server", dropping=0, timeout=150)
    said = run_over_loopback(tmp_path, config, rows)
    assert (tmp_path / "released.json").exists(), said
    there = json.loads((tmp_path / "released.json").read_text())
    everybody = tmp_path / "all.csv"
    everybody.write_text("user,item,rating\n" + "".join(path.read_text().split("\n", 1)[1] for path in rows))
    users = users_of(Federation.read(config), everybody)
    here = released(LocalEngine(np.float64, exact=True), users)
    assert {name: there[name] for name in ("number of users", "popularity")} == {
        name: here[name] for name in ("number of users", "popularity")
    }
    assert "anything against the server" in there["not protected"][0]
    assert [entry.asked for entry in journal_of(tmp_path / "desk0")] == [("ClippedParts", "TaskCounts")]
    assert (tmp_path / "desk0").stat().st_mode & 0o077 == 0
