"""Flower's programs as `apportion federate` starts them: the link of a server, the node of a client, and the run.

Flower takes an app as a folder, and sends it to clients. The apps in the folder that is written here do nothing:
neither our server nor our clients run code of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from apportion.errors import ApportionError, InputError

LINK: Final = "federation"
LOCAL: Final = "127.0.0.1"
_PROJECT: Final = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "apportion-federation"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "apportion"

[tool.flwr.app.components]
serverapp = "apportion_federation.server:app"
clientapp = "apportion_federation.client:app"
"""
_SERVER: Final = '''\
"""Nothing: `apportion federate server` fits by itself."""

from flwr.serverapp import ServerApp

app = ServerApp()
'''
_CLIENT: Final = '''\
"""Nothing: `apportion federate client` answers by itself."""

from flwr.clientapp import ClientApp

app = ClientApp()
'''


def write_app(folder: Path) -> None:
    """Write the folder that Flower takes as an app."""
    package = folder / "apportion_federation"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(_PROJECT, encoding="utf-8")
    (package / "__init__.py").write_text('"""A federation."""\n', encoding="utf-8")
    (package / "server.py").write_text(_SERVER, encoding="utf-8")
    (package / "client.py").write_text(_CLIENT, encoding="utf-8")


def write_connection(home: Path, address: str, root_certificates: Path) -> None:
    """Write where Flower's own command finds the link."""
    home.mkdir(parents=True, exist_ok=True)
    lines = [
        "[superlink]",
        f'default = "{LINK}"',
        f"[superlink.{LINK}]",
        f'address = "{address}"',
        f'root-certificates = "{root_certificates.resolve()}"',
    ]
    (home / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def link_command(port: int, certificate: Path, key: Path, root_certificates: Path, secret: Path) -> list[str]:
    """Return the command of the server's link, which clients connect to over TLS. It runs no app itself.

    Args:
        port: on this machine alone.
        certificate: of the link.
        key: of the certificate.
        root_certificates: that it is checked against.
        secret: file with what a process must know that takes the task of a run.
    """
    return [
        *_program("flower-superlink"),
        *("--isolation", "process", "--host", LOCAL, "--port", str(port)),
        *("--superexec-auth-secret-file", str(secret)),
        *("--ssl-certfile", str(certificate), "--ssl-keyfile", str(key)),
        *("--ssl-ca-certfile", str(root_certificates)),
        "--disable-runtime-dependency-installation",
    ]


def node_command(address: str, root_certificates: Path, port: int, secret: Path) -> list[str]:
    """Return the command of a client's node. It leaves messages to another process, and runs no app itself.

    Args:
        address: of the link.
        root_certificates: that the link's certificate is checked against.
        port: on this machine alone, where the other process takes messages.
        secret: file with what that process must know.
    """
    return [
        *_program("flower-supernode"),
        *("--superlink", address, "--root-certificates", str(root_certificates)),
        *("--isolation", "process", "--host", LOCAL, "--port", str(port)),
        *("--superexec-auth-secret-file", str(secret)),
    ]


def started_run(app: Path, home: Path) -> int:
    """Start a run on the link, which is what nodes get messages in; return its number."""
    command = [*_program("flwr"), "run", str(app), LINK, "--format", "json"]
    said = subprocess.run(command, env=environment(home), check=False, capture_output=True, text=True)
    try:
        return int(json.loads(said.stdout)["run-id"])
    except (ValueError, KeyError, TypeError):
        raise ApportionError(f"Flower did not start a run: {said.stdout} {said.stderr}") from None


def environment(home: Path) -> dict[str, str]:
    """Return the environment of Flower's programs: no telemetry, and a folder of their own."""
    folder = str(Path(sys.executable).parent)
    path = os.pathsep.join([folder, os.environ.get("PATH", "")])
    own = {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "PATH": path}
    ports = dict.fromkeys(("FLWR_INTERNAL_GRPC_CONTROL_API", "FLWR_INTERNAL_GRPC_FLEET_API"), "0")  # no further ones
    return {**os.environ, **own, **ports}


def _program(name: str) -> list[str]:
    """Return a program of Flower beside this Python."""
    found = Path(sys.executable).parent / name
    if not found.exists():
        raise InputError("A federation needs Flower: pip install 'apportion[federated]'.", argument=None)
    return [str(found)]
