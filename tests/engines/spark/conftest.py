"""One server for all tests here: Sail, which installs by pip, or Apache Spark where APPORTION_SPARK asks for it.

APPORTION_SPARK is `sail` (default), `classic` or `connect`; the last two need Java.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from apportion.engines import SparkEngine


@pytest.fixture(scope="session")
def spark(master):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PySpark on pandas 3, of which this library needs nothing
        yield from {"sail": on_sail, "classic": on_classic, "connect": on_connect}[
            os.environ.get("APPORTION_SPARK", "sail")
        ](master)


@pytest.fixture(scope="session")
def master():
    """Where the server is: of Sail, an address; Apache Spark is started by the session itself."""
    if os.environ.get("APPORTION_SPARK", "sail") != "sail":
        yield "local[2]"
        return
    from sail_server import sail_server

    server, address = sail_server()
    yield address
    server.stop()


def on_sail(master):
    from sail_server import sail_session

    session = sail_session(master)
    yield session
    session.stop()


def on_classic(master):
    from pyspark.sql import SparkSession

    known = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), *known.split(os.pathsep)])  # of workers

    session = configured(SparkSession.builder.master(master)).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def on_connect(master):
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(master).getOrCreate()
    yield session
    session.stop()


def configured(builder):
    return builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "1g")


@pytest.fixture(scope="session")
def engine(spark):
    return SparkEngine(spark, np.float32, partitions=2)
