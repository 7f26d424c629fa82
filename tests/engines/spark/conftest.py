"""One server for all tests here: Sail, which installs by pip, or Apache Spark where APPORTION_SPARK asks for it.

APPORTION_SPARK is `sail` (default), `classic` or `connect`; the last two need Java.
"""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest

from apportion.engines import SparkEngine


@pytest.fixture(scope="session")
def spark():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PySpark on pandas 3, of which this library needs nothing
        yield from {"sail": on_sail, "classic": on_classic, "connect": on_connect}[
            os.environ.get("APPORTION_SPARK", "sail")
        ]()


def on_sail():
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer()
    server.start()
    session = SparkSession.builder.remote(f"sc://localhost:{server.listening_address[1]}").create()
    yield session
    session.stop()
    server.stop()


def on_classic():
    from pyspark.sql import SparkSession

    session = configured(SparkSession.builder.master("local[2]")).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def on_connect():
    from pyspark.sql import SparkSession

    session = configured(SparkSession.builder.remote("local[2]")).getOrCreate()
    yield session
    session.stop()


def configured(builder):
    return builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "1g")


@pytest.fixture(scope="session")
def engine(spark):
    return SparkEngine(spark, np.float32, partitions=2)
