"""Real servers on free ports: the program in a process of its own, or a service in a thread."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

from apportion.serving import Service
from apportion.serving.running import bound, server


class Client:
    """Asks one service."""

    def __init__(self, port):
        self.port = port

    def ask(self, method, path, body=None, headers=None):
        """Status, headers and the body as it came."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if headers is None else headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def get(self, path):
        status, _, body = self.ask("GET", path)
        assert status == 200, body
        return body

    def recommend(self, status=200, **asked):
        """The answer to a request; other than 200, the sentence of the error."""
        found, _, body = self.ask("POST", "/recommend", json.dumps(asked))
        assert found == status, body
        return json.loads(body) if status == 200 else json.loads(body)["error"]


@contextmanager
def in_a_thread(model, limits, **further):
    """A service of this process; ended with the server."""
    running = server(Service(model, limits=limits, **further), limits, grace=5)
    with bound("127.0.0.1", 0) as at:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [at]})
        thread.start()
        try:
            while not running.started:
                time.sleep(0.01)
            yield Client(at.getsockname()[1])
        finally:
            running.should_exit = True
            thread.join()


class Program:
    """The program in a process of its own."""

    def __init__(self, arguments, before=""):
        code = f"{before}\nfrom apportion.cli.main import main\nmain()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, "serve", *map(str, arguments), "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.said = self.process.stdout.readline() + self.process.stdout.readline()
        self.client = Client(int(re.search(r":(\d+) ", self.said)[1]))
        while not self.is_up():
            time.sleep(0.02)

    def is_up(self):
        try:
            return self.client.ask("GET", "/health")[0] == 200
        except OSError:
            return False

    def stop(self, with_signal=signal.SIGTERM):
        """Exit code, the rest of stdout, and stderr."""
        self.process.send_signal(with_signal)
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out, err
