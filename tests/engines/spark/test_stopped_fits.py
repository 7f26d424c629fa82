"""A fit on a cluster that was stopped goes on: no pass for what is stored, and never on other rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from apportion import linalg
from apportion.engines import SparkEngine
from apportion.errors import InputError
from apportion.privacy import Budget, Checkpoint, SeededNoise, Session
from apportion.privacy.ledger.keys import LedgerKey
from apportion.recommend import PrivateClickRecommender

from strategies import random_interactions

pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")


class Killed(BaseException):
    """What stands for kill -9."""


@pytest.fixture
def fit(engine, spark, tmp_path):
    (tmp_path / "keys").mkdir()
    key = LedgerKey.create(tmp_path / "keys" / "key").place

    def fitted(seed=5, name="fit"):
        data = random_interactions(seed, n_users=30, n_tasks=6)
        frame = spark.createDataFrame(pa.table({"user": data.users, "item": data.tasks}))
        checkpoint = Checkpoint(tmp_path / name, key=key)
        session = Session(Budget(50.0, 1e-5), noise=SeededNoise(2), checkpoint=checkpoint)
        try:
            made = PrivateClickRecommender(dimension=2, rounds=2, items="from-data", engine=engine)
            return made.fit(frame, session=session).model_
        finally:
            checkpoint.close()

    return fitted


def test_a_fit_on_a_cluster_goes_on(fit, monkeypatch):
    whole, store = fit(name="whole"), Checkpoint.store

    def until(self, number, *given):
        store(self, number, *given)
        if number == 1:
            raise Killed

    with monkeypatch.context() as stopping:
        stopping.setattr(Checkpoint, "store", until)
        with pytest.raises(Killed):
            fit()
    passes, add_up = [], SparkEngine.add_up
    monkeypatch.setattr(SparkEngine, "add_up", lambda self, *given: passes.append(1) or add_up(self, *given))
    gone_on = fit()
    assert len(passes) == len(whole.statement.releases) - 2
    assert np.array_equal(gone_on.vectors, whole.vectors)
    assert gone_on.statement == whole.statement
    with pytest.raises(InputError, match="other data"):
        fit(seed=6)
