"""Fits over real processes, by HTTPS and by Flower, over TLS, release what one machine's memory does.

Flower moves pins of the development environment, so this runs in one of its own: `make test-federated`.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from apportion import linalg
from apportion.cli.federate_app import agreed, fit_over, users_of
from apportion.cli.federate_processes import environment, link_command, started_run, write_app, write_connection
from apportion.transport import ClientAccount
from apportion.transport.configuration import Federation
from apportion.transport.flower import fit_in_run
from federation_files import OneMachine, write_everybody, write_federation
from loopback_federation import ended, free_port, outer_address, run_over_loopback, wait_for, write_certificates

pytest.importorskip("flwr", reason="Flower has an environment of its own: make test-federated")
pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")
PLANTED = """
import os
from pathlib import Path
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
Path({folder!r}, "ran-" + os.environ.get("WHOSE_NODE", "nobody")).touch()
app = ClientApp()
"""


def in_memory(config, rows, folder):
    """What the same fit releases from one machine's memory."""
    federation = Federation.read(config)
    everybody = users_of(federation, write_everybody(folder, rows))
    fit_over(federation, agreed(federation), OneMachine(everybody), folder / "memory")
    return json.loads((folder / "memory" / "released.json").read_text())


def test_real_processes_release_what_memory_does_and_run_no_code_of_the_server(tmp_path):
    """The server plants code in the app that Flower sends to nodes. Flower's own node runs it; our clients do not."""
    config, rows = write_federation(tmp_path, 5, noise="server", seed=1, kind="mean", timeout=60.0)
    planted = PLANTED.format(folder=str(tmp_path))
    said = run_over_loopback(tmp_path, config, rows, planted=planted, stranger=True)
    assert (tmp_path / "out" / "released.json").exists(), said
    there = json.loads((tmp_path / "out" / "released.json").read_text())
    assert there == in_memory(config, rows, tmp_path)
    assert (tmp_path / "ran-stranger").exists(), said
    assert not (tmp_path / "ran-ours").exists()
    assert [entry.names for entry in ClientAccount.shown(tmp_path / "client0" / "account")] == [("user-means",)]
    page = tmp_path / "page.html"
    show = ["federate", "page", str(config), "--client", str(tmp_path / "client0"), "--out", str(page)]
    command = [sys.executable, "-c", "from apportion.cli.main import main; main()", *show]
    subprocess.run(command, check=True, env=environment(tmp_path))
    assert "1 question agreed to" in page.read_text(encoding="utf-8")


def test_processes_over_https_release_what_memory_does(tmp_path):
    """The server listens on an address that other machines reach, and clients connect to that one."""
    config, rows = write_federation(tmp_path, 5, noise="server", seed=1, kind="mean", timeout=60.0)
    host = outer_address() or "127.0.0.1"
    said = run_over_loopback(tmp_path, config, rows, carrier="https", host=host)
    assert (tmp_path / "out" / "released.json").exists(), said
    assert json.loads((tmp_path / "out" / "released.json").read_text()) == in_memory(config, rows, tmp_path)
    assert [entry.names for entry in ClientAccount.shown(tmp_path / "client0" / "account")] == [("user-means",)]


def test_clients_who_draw_the_noise_finish_without_one_of_them(tmp_path):
    config, rows = write_federation(tmp_path, 5, kind="quantiles", timeout=25.0)
    said = run_over_loopback(tmp_path, config, rows, clients=(0, 1, 2, 4))
    assert (tmp_path / "out" / "released.json").exists(), said
    released = json.loads((tmp_path / "out" / "released.json").read_text())
    assert set(released["quantiles"]) == {"0.25", "0.5", "0.75"}
    assert "up to 1 of 5 clients who collude" in released["statement"]
    (entry,) = ClientAccount.shown(tmp_path / "client1" / "account")
    assert entry.cost == pytest.approx(agreed(Federation.read(config)).budget.mu ** 2)


def test_a_strangers_run_on_the_link_is_ended_and_no_code_of_any_run_is_loaded(tmp_path, monkeypatch):
    """Whoever reaches a link can start a run with an app; nothing of it runs, and the server gets to its own run."""
    certificate, key, root = write_certificates(tmp_path)
    port, secret, home = free_port(), tmp_path / "secret", tmp_path / "flower"
    secret.write_bytes(b"s" * 64)
    write_connection(home, f"localhost:{port}", root)
    monkeypatch.setattr("apportion.cli.federate_processes._SERVER", PLANTED.format(folder=str(tmp_path)))
    write_app(tmp_path / "app")
    link = subprocess.Popen(link_command(port, certificate, key, root, secret), env=environment(home))
    try:
        wait_for(port, link)
        stranger, own = started_run(tmp_path / "app", home), started_run(tmp_path / "app", home)
        seen = []
        fit_in_run(f"localhost:{port}", root.read_bytes(), b"s" * 64, own, lambda grid: seen.append(grid.run.run_id))
    finally:
        ended([link])
    assert seen == [own]
    assert stranger != own
    assert list(tmp_path.glob("ran-*")) == []
