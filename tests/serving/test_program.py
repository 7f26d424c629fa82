"""`apportion serve` as a process: it starts, says how to try it, stops when told, and logs nobody's history."""

from __future__ import annotations

import json
import re
import signal
import socket
import time

import pytest
from click.testing import CliRunner

from apportion.cli.main import program as command
from apportion.recommend import load
from apportion.report.explorer import explorer_page

BODY = json.dumps({"history": ["item41", "item42"]}).encode()
HEAD = b"POST /recommend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(
    BODY
)
WITHOUT_PRIVACY = "Warning: this model was fitted without privacy; its answers may reveal training data.\n"
BUG = """
from apportion.recommend.model import ItemModel
def broken(self, history, *others, **named):
    raise ValueError(f"cannot rank for {[self.task_ids.id_of(int(task)) for task in history.tasks]}")
ItemModel.recommend_in_parts = broken
"""


def test_it_says_how_to_try_it_and_serves_the_explorer(program, saved):
    running = program(saved / "ratings", "--explorer")
    request = re.search(r"--json '(.*)'", running.said)[1]
    status, _, body = running.client.ask("POST", "/recommend", request)
    assert (status, len(json.loads(body)["items"])) == (200, 5)
    assert running.client.get("/").decode() == explorer_page(load(saved / "ratings"))
    code, out, err = running.stop(signal.SIGINT)
    assert (code, out.splitlines()[-1], err) == (0, "Stopped.", "")


def test_a_request_that_is_open_when_it_is_told_to_stop_is_answered(program, saved):
    running = program(saved / "clicks")
    with socket.create_connection(("127.0.0.1", running.client.port), timeout=20) as raw:
        raw.sendall(HEAD + BODY[:-5])
        time.sleep(0.2)
        running.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert not running.is_up()
        raw.sendall(BODY[-5:])
        assert raw.recv(1 << 16).startswith(b"HTTP/1.1 200")
    out, err = running.process.communicate(timeout=20)
    assert (running.process.returncode, out, err) == (0, "Stopped.\n", WITHOUT_PRIVACY)


def test_a_bug_is_logged_by_its_place_and_never_by_what_was_asked(program, saved):
    running = program(saved / "clicks", before=BUG)
    said = running.client.recommend(status=500, history=["item41", "item42"])
    assert said == "Something went wrong in the service; the request was not answered."
    running.client.recommend(status=422, history=["item43", {"item": "item44", "value": "item45"}])
    running.client.ask("GET", "/recommend?history=item46")
    code, _, err = running.stop()
    assert code == 0
    assert err.removeprefix(WITHOUT_PRIVACY) == "ERROR: POST /recommend failed: ValueError in broken (<string>:4)\n"


@pytest.mark.parametrize("kind", ["clicks", "ratings"])
def test_a_port_that_is_taken_is_an_error_of_one_sentence(saved, kind):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = CliRunner().invoke(command, ["serve", str(saved / kind), "--port", str(taken.getsockname()[1])])
    assert result.exit_code == 2
    assert re.match(r"Error: Address already in use.*\.$", result.stderr.splitlines()[-1])
