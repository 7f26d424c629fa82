"""Sail, a Spark Connect server that installs by pip, and a session with it."""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager


def sail_server():
    """A server that runs in this process."""
    from pysail.spark import SparkConnectServer

    server = SparkConnectServer()
    server.start()
    return server, f"sc://localhost:{server.listening_address[1]}"


def sail_session(master):
    """A session of its own with the server at this address."""
    from pyspark.sql import SparkSession

    with _a_main_module(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PySpark on pandas 3, of which this library needs nothing
        return SparkSession.builder.remote(master).create()


@contextmanager
def _a_main_module():
    """PySpark takes a process whose main module has no file for its own doctests; those of pytest-xdist have none."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None or hasattr(main, "__file__"):
        yield
        return
    main.__file__ = __file__
    try:
        yield
    finally:
        del main.__file__
