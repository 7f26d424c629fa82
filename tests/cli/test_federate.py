"""`federate`: keys, a rehearsal over files of rows, the client's page, and configurations that are refused."""

from __future__ import annotations

import json
import socket
from importlib.util import find_spec

import numpy as np
import pytest

from apportion import linalg
from apportion.cli.federate_app import ACCOUNT, KEY, agreed, desk_of, fit_over, secret_key, users_of
from apportion.federated import RefusedError
from apportion.recommend import load
from apportion.transport import Account, ClientsByPost, LocalPost
from apportion.transport.configuration import Federation
from federation_files import OneMachine, write_everybody, write_federation
from loopback_federation import write_certificates

TLS = ("--certificate", "x.pem", "--key", "x.pem")
pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")


@pytest.mark.parametrize("kind", ["ratings", "clicks"])
def test_a_rehearsal_writes_a_model_whose_statement_names_the_server(run, folder, kind):
    config, rows = write_federation(folder, 5, noise="server", kind=kind, seed=1)
    run("federate", "simulate", config, *rows, "--out", "model")
    statement = load(folder / "model").statement
    assert "Not protected: anything against the server, which draws the noise" in statement.to_text()
    assert not statement.releasable
    assert (folder / "model" / "report.html").exists()


def test_a_rehearsal_of_the_encoder_is_that_of_one_machine(run, folder):
    """With statistics that are released twice in a round (SSP-i)."""
    pytest.importorskip("torch", reason="encoders need torch")
    settings = {"kind": "encoder", "features": "features.csv", "resamples": 2, "seed": 1, "noise": "server"}
    config, rows = write_federation(folder, 5, **settings)
    items = (folder / "items.txt").read_text().split()
    lines = [f"{item},g{place % 3}\n" for place, item in enumerate(items)]
    (folder / "features.csv").write_text("item,genre\n" + "".join(lines))
    run("federate", "simulate", config, *rows, "--out", "model")
    told = Federation.read(config)
    clients = OneMachine(users_of(told, write_everybody(folder, rows)))
    fit_over(told, agreed(told), clients, folder / "memory")
    there, here = load(folder / "model"), load(folder / "memory")
    np.testing.assert_array_equal(there.vectors, here.vectors)
    assert len(there.statement.releases) == 2 + 2 * 2
    assert there.feature_map is not None


def test_clients_of_an_encoder_draw_the_noise(run, folder):
    """With statistics that are released once in a round (SSP-c)."""
    pytest.importorskip("torch", reason="encoders need torch")
    config, rows = write_federation(folder, 5, kind="encoder", features="features.csv")
    (folder / "features.csv").write_text("item,genre\n" + "".join(f"{each},g\n" for each in range(10)))
    said = run("federate", "simulate", config, *rows, "--out", "model").stdout
    assert "up to 1 of 5 clients who collude" in said
    assert len(load(folder / "model").statement.releases) == 4


def test_means_and_quantiles_are_near_those_of_all_rows(run, folder):
    for kind in ("mean", "quantiles"):
        config, rows = write_federation(folder / kind, 5, n_users=400, kind=kind, rounds=1)
        run("federate", "simulate", config, *rows, "--out", folder / kind / "out")
    mean = json.loads((folder / "mean" / "out" / "released.json").read_text())["mean"]
    median = json.loads((folder / "quantiles" / "out" / "released.json").read_text())["quantiles"]["0.5"]
    assert mean == pytest.approx(3.4, abs=0.4)
    assert median == pytest.approx(3.4, abs=0.6)


def test_clients_who_draw_the_noise_pay_from_their_own_account_and_see_it_on_their_page(run, folder):
    config, rows = write_federation(folder, 5)
    told = Federation.read(config)
    conditions = agreed(told)
    desks = {
        each: desk_of(conditions, users_of(told, rows[each]), folder / f"client{each}") for each in range(len(rows))
    }  # fmt: skip
    asking = secret_key(folder / "server", "server")
    statement = fit_over(told, conditions, ClientsByPost(LocalPost(desks), conditions, asking), folder / "model")
    assert "up to 1 of 5 clients who collude" in statement
    entries = Account.shown(folder / "client0" / ACCOUNT)
    assert len(entries) == len(load(folder / "model").statement.releases)
    run("federate", "page", config, "--client", folder / "client0")
    page = (folder / "client.html").read_text(encoding="utf-8")
    assert f"{len(entries)} questions agreed to. Your rows never left." in page
    assert "which items a person has" in page
    with pytest.raises(RefusedError, match="Only 0 clients are left"):  # a second fit
        fit_over(told, conditions, ClientsByPost(LocalPost(desks), conditions, asking), folder / "again")


def test_a_key_is_made_once_and_kept_from_others(run, folder):
    printed = run("federate", "key", "--client", "me").stdout.strip()
    assert len(bytes.fromhex(printed)) == 32
    assert {path.name: path.stat().st_mode & 0o077 for path in (folder / "me").iterdir()} == {KEY: 0, ACCOUNT: 0}
    assert printed not in (folder / "me" / KEY).read_text()
    assert "File exists" in run("federate", "key", "--client", "me", code=2).stderr


def test_a_person_alone_is_a_client(folder):
    config, rows = write_federation(folder, 5)
    first, *lines = rows[0].read_text().splitlines(keepends=True)
    alone = folder / "alone.csv"
    alone.write_text(first + "".join(line for line in lines if line.split(",")[0] == lines[0].split(",")[0]))
    assert users_of(Federation.read(config), alone).n_users == 1


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"noise": "nobody"}, "Expected noise of clients or of the server, got 'nobody'"),
        ({"kind": "texts"}, "federation.toml: Expected kind to be one of ratings, clicks"),
        ({"colour": 1}, "Expected one of the settings items, roster"),
        ({"epsilon": "one"}, "Expected epsilon of type float, got 'one'"),
        ({"passes": 2.5}, "Expected passes of type int, got 2.5"),
        ({"scale": [1]}, "Expected a scale [low, high]"),
        ({"scale": ["a", "b"]}, "Expected numbers in scale"),
        ({"colluding": 4}, "at least 2 honest clients who stay"),
        ({"dropping": 2}, "Expected at least 8 clients, three for each that may drop out"),
        ({"features": "items.txt"}, "Expected features with the kind encoder and with no other, got the kind ratings"),
        ({"kind": "encoder"}, "Expected features with the kind encoder"),
        ({"seed": 1, "noise": "clients"}, "A seed is for noise of the server"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_a_configuration_that_makes_no_sense_is_refused(run, folder, settings, problem):
    config, rows = write_federation(folder, 5, **settings)
    assert problem in run("federate", "simulate", config, *rows, "--out", "model", code=2).stderr


def test_a_file_that_is_no_toml_or_lacks_a_setting_or_a_roster_is_refused(run, folder):
    config, rows = write_federation(folder, 5)
    (folder / "roster.txt").write_text("me and you")
    assert "hexadecimal digits in roster.txt" in run("federate", "page", config, "--client", "client0", code=2).stderr
    for text, problem in (("items =", "federation.toml"), ('items = "items.txt"\n', "Expected the setting 'roster'")):
        config.write_text(text)
        assert problem in run("federate", "simulate", config, *rows, "--out", "model", code=2).stderr


def test_a_client_without_a_key_is_refused(run, folder):
    config, rows = write_federation(folder, 5)
    (folder / "x.pem").write_text("x")
    asked = ("client", config, rows[0], "--server", "localhost:1", "--root-certificates", "x.pem")
    assert "Expected the key of a client in nowhere" in run("federate", *asked, "--client", "nowhere", code=2).stderr
    assert "There is no account in nowhere" in run("federate", "page", config, "--client", "nowhere", code=2).stderr


@pytest.mark.skipif(find_spec("flwr") is not None, reason="Flower is there")
@pytest.mark.parametrize("command", ["server", "client"])
def test_without_flower_the_commands_say_what_to_install(run, folder, command):
    config, rows = write_federation(folder, 5)
    (folder / "x.pem").write_text("x")
    pem = ("--root-certificates", "x.pem", "--carrier", "flower")
    asked = {
        "server": ("server", config, "--out", "model", *TLS, "--identity", folder / "server", *pem),
        "client": ("client", config, rows[0], "--server", "localhost:1", *pem, "--client", folder / "client0"),
    }
    assert "pip install 'apportion[federated]'" in run("federate", *asked[command], code=2).stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "localhost", "::", "192.0.2.1"])
def test_a_link_of_flower_for_other_machines_is_refused_with_the_reason(run, folder, host):
    config, _ = write_federation(folder, 5)
    (folder / "x.pem").write_text("x")
    asked = (config, "--out", "model", *TLS, "--root-certificates", "x.pem", "--host", host, "--carrier", "flower")
    said = run("federate", "server", *asked, code=2).stderr
    assert f"Expected the host 127.0.0.1, got {host}: whoever reaches a link of Flower can start" in said


def test_a_server_that_cannot_listen_or_has_no_certificate_says_so(run, folder):
    config, _ = write_federation(folder, 5)
    asked = ("federate", "server", config, "--out", "model")
    (folder / "x.pem").write_text("x")
    assert "Expected a certificate and its private key (PEM) in x.pem" in run(*asked, *TLS, code=2).stderr
    certificate, key, _ = write_certificates(folder)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = ("--certificate", certificate, "--key", key, "--port", taken.getsockname()[1])
        assert "Nothing can listen at 127.0.0.1 port" in run(*asked, *place, code=2).stderr
    assert "Flower needs the certificates" in run(*asked, *place, "--carrier", "flower", code=2).stderr
    assert not (folder / "model").exists()


def test_a_server_without_its_key_and_a_file_without_it_are_refused(run, folder):
    config, rows = write_federation(folder, 5)
    (folder / "x.pem").write_text("x")
    asked = (config, "--out", "model", *TLS, "--root-certificates", "x.pem", "--identity", "nowhere")
    assert "Expected the key of a server in nowhere" in run("federate", "server", *asked, code=2).stderr
    text = config.read_text()
    config.write_text("".join(line for line in text.splitlines(keepends=True) if not line.startswith("server")))
    assert "Expected the setting 'server'" in run("federate", "simulate", config, *rows, "--out", "m", code=2).stderr
    assert not (folder / "model").exists()
