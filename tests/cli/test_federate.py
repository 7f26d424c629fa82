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
from apportion.parties import ProtectedMultiTask
from apportion.privacy.neighbours import ADD_REMOVE_TASK
from apportion.recommend import load
from apportion.report.client_page import client_page
from apportion.transport import ClientAccount, ClientsByPost, LocalPost
from apportion.transport.configuration import Federation
from federation_files import OneMachine, write_everybody, write_federation
from loopback_federation import write_certificates

from party_cases import low_rank_tasks

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


def test_ratings_of_clear_popularity_are_fitted_with_choices_as_in_memory(run, folder):
    """Such a fit asks clients for choices, too: they must know these questions."""
    config, rows = write_federation(folder, 5, 400, 60, 40, noise="server", seed=1, rounds=2, epsilon=40.0)
    run("federate", "simulate", config, *rows, "--out", "model")
    told = Federation.read(config)
    fit_over(told, agreed(told), OneMachine(users_of(told, write_everybody(folder, rows))), folder / "memory")
    there, here = load(folder / "model"), load(folder / "memory")
    assert any("choice" in release.name for release in there.statement.releases)
    assert there.statement.releases == here.statement.releases
    np.testing.assert_array_equal(there.vectors, here.vectors)


def test_a_file_allows_the_sums_that_its_fits_need_and_no_others(folder):
    config, _ = write_federation(folder, 5, rounds=6, fits=2)
    sums = Federation.read(config).sums
    assert (sums["popularity"], sums["rating-round"]) == (2, 2 * (1 + 6 + 1))  # one round may be run again


@pytest.mark.parametrize("fits", [1, 2])
def test_clients_take_part_in_as_many_fits_as_their_file_says_if_the_server_draws_the_noise(folder, fits):
    config, rows = write_federation(folder, 5, noise="server", seed=1, fits=fits)
    told = Federation.read(config)
    conditions, asking = agreed(told), secret_key(folder / "server", "server")
    desks = {each: desk_of(conditions, users_of(told, rows[each]), folder / f"client{each}") for each in range(5)}
    words = f"read the sums of\n{fits} fit{'s' if fits > 1 else ''}: each kind of question once in a fit"
    for number in range(fits):
        fit_over(told, conditions, ClientsByPost(LocalPost(desks), conditions, asking), folder / str(number))
    with pytest.raises(RefusedError, match="Only 0 clients are left"):
        fit_over(told, conditions, ClientsByPost(LocalPost(desks), conditions, asking), folder / "again")
    page = client_page(told, 5, ClientAccount.shown(folder / "client0" / ACCOUNT))
    assert words in page
    assert "may have been read" in page


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


def write_parties(folder, n_parties=5, **settings):
    """Write a federation whose clients are parties, with rows of features and labels."""
    config, _ = write_federation(folder, n_parties, n_users=10, kind="parties", label="wage", **settings)
    (folder / "items.txt").write_text("age\nyears\n")
    x, y = low_rank_tasks(2, n_parties, dimension=2, rank=1)
    files = [folder / f"party{number}.csv" for number in range(n_parties)]
    for file, rows, labels in zip(files, x, y, strict=True):
        lines = [f"{a!r},{label!r},{b!r}\n" for (a, b), label in zip(rows.tolist(), labels.tolist(), strict=True)]
        file.write_text("age,wage,years\n" + "".join(lines))
    return config, files, (x, y)


def test_parties_rehearse_and_each_learns_its_own_model_at_home(run, folder):
    config, files, (x, y) = write_parties(folder, noise="server", seed=1, rounds=2)
    run("federate", "simulate", config, *files, "--out", "shared")
    run("federate", "learn", config, files[3], folder / "shared" / "released.json", "--out", "own.json")
    told, own = Federation.read(config), json.loads((folder / "own.json").read_text())["model"]
    settings = {"n_tasks": 5, "neighbours": ADD_REMOVE_TASK, "fit_intercept": True, "rounds": 2, "noise": told.source}
    together = ProtectedMultiTask(told.epsilon, told.delta, **settings).fit(x, y)
    assert [own["age"], own["years"]] == pytest.approx(together.coef_[3].tolist(), rel=1e-12)
    assert own["intercept"] == pytest.approx(together.intercept_[3], rel=1e-12)


def test_a_release_on_features_in_another_order_is_refused_because_the_model_would_have_wrong_names(run, folder):
    config, files, _ = write_parties(folder, noise="server", seed=1, rounds=1)
    run("federate", "simulate", config, *files, "--out", "shared")
    path = folder / "shared" / "released.json"
    held = json.loads(path.read_text())
    path.write_text(json.dumps({**held, "features": held["features"][::-1]}))
    refused = run("federate", "learn", config, files[0], path, "--out", "own.json", code=2)
    assert "on the features of items.txt, in their order" in refused.stderr


def test_a_party_without_a_feature_or_with_another_file_is_refused(run, folder):
    config, files, _ = write_parties(folder, noise="server", seed=1, rounds=1)
    files[1].write_text("age,wage\n1,2\n")
    refused = run("federate", "simulate", config, *files, "--out", "shared", code=2)
    assert "party1.csv: Expected the column 'years'" in refused.stderr
    again = run("federate", "learn", config, files[0], config, "--out", "own.json", code=2)
    assert "Expected what a federation of parties released" in again.stderr


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
    entries = ClientAccount.shown(folder / "client0" / ACCOUNT)
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
        ({"fits": 0}, "Expected at least 1 fit, got 0"),
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
