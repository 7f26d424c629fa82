"""`federate`: a rehearsal over files of rows, the client's page, and configurations that are refused."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from apportion import linalg
from apportion.cli.federate_app import fit_over, open_desk, users_of
from apportion.cli.federate_state import state_at
from apportion.federated.configuration import Federation
from apportion.federated.desk import Desk
from apportion.federated.messages import RefusedError
from apportion.federated.post import ClientsByPost
from apportion.recommend import load
from federation_files import write_federation

pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")


@pytest.mark.parametrize("kind", ["ratings", "clicks"])
def test_a_rehearsal_writes_a_model_whose_statement_names_the_server(run, folder, kind):
    config, rows = write_federation(folder, 4, noise="server", kind=kind, seed=1)
    run("federate", "simulate", config, *rows, "--out", "model")
    statement = load(folder / "model").statement
    assert "Not protected: anything against the server, which draws the noise" in statement.to_text()
    assert not statement.releasable
    assert (folder / "model" / "report.html").exists()


def test_clients_who_draw_the_noise_pay_from_their_own_budget_and_see_it_on_their_page(run, folder):
    config, rows = write_federation(folder, 4)
    node = {"federation": config, "rows": rows[0], "state": folder / "state"}

    class OneByFile:
        """Desks of three clients in memory, and one whose state is in a file between letters."""

        def __init__(self, told):
            users = [users_of(told, path) for path in rows]
            self.desks = {each: Desk(lambda own=own: own, told.conditions) for each, own in enumerate(users)}

        def exchanged(self, letters):
            answers = {each: self.desks[each].answered(letter) for each, letter in letters.items() if each}
            with open_desk(node) as desk:
                answers[0] = desk.answered(letters[0])
            return answers

    told = Federation.read(config)
    model = fit_over(told, ClientsByPost(OneByFile(told)))
    assert "up to 1 of 4 clients who collude" in model.statement.to_text()
    kept = state_at(folder / "state")
    assert len(kept.journal) == len(model.statement.releases)
    run("federate", "page", config, "--state", folder / "state")
    page = (folder / "client.html").read_text(encoding="utf-8")
    assert f"{len(kept.journal)} questions answered. Your rows never left." in page
    with pytest.raises(RefusedError, match="more than what is left of epsilon = 5"):  # a second fit
        fit_over(told, ClientsByPost(OneByFile(told)))


def test_a_wrong_number_of_files_and_a_client_without_answers_are_refused(run, folder):
    config, rows = write_federation(folder, 4)
    few = run("federate", "simulate", config, *rows[:2], "--out", "model", code=2)
    assert "Expected rows of 4 clients, got 2 files" in few.stderr
    assert "this client has answered nothing yet" in run("federate", "page", config, code=2).stderr


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"noise": "nobody"}, "federation.toml: Expected noise to be one of server, clients, got 'nobody'"),
        ({"kind": "texts"}, "Expected kind to be one of ratings, clicks"),
        ({"colour": 1}, "Expected one of the settings items, clients"),
        ({"epsilon": "one"}, "Expected epsilon of type float, got 'one'"),
        ({"clients": 2.5}, "Expected clients of type int, got 2.5"),
        ({"scale": [1]}, "Expected scale of type tuple[float, float], got [1]"),
        ({"colluding": 3}, "at least 2 honest clients who stay"),
        ({"seed": 1, "noise": "clients"}, "A seed is for noise of the server"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_a_configuration_that_makes_no_sense_is_refused(run, folder, settings, problem):
    config, rows = write_federation(folder, 4, **settings)
    assert problem in run("federate", "simulate", config, *rows, "--out", "model", code=2).stderr


def test_a_file_that_is_no_toml_or_lacks_a_setting_is_refused(run, folder):
    write_federation(folder, 2)
    for text, problem in (("items =", "federation.toml"), ('items = "items.txt"\n', "Expected the setting 'clients'")):
        (folder / "federation.toml").write_text(text)
        assert problem in run("federate", "simulate", "federation.toml", "rows0.csv", "--out", "model", code=2).stderr


@pytest.mark.skipif(find_spec("flwr") is not None, reason="Flower is there")
@pytest.mark.parametrize("command", ["server", "client"])
def test_without_flower_the_commands_say_what_to_install(run, folder, command):
    config, rows = write_federation(folder, 4)
    (folder / "x.pem").write_text("x")
    pem = ("--root-certificates", "x.pem")
    asked = {
        "server": ("server", config, "--out", "model", "--certificate", "x.pem", "--key", "x.pem", *pem),
        "client": ("client", config, rows[0], "--server", "localhost:1", *pem),
    }
    assert "pip install 'apportion[federated]'" in run("federate", *asked[command], code=2).stderr
