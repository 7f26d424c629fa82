"""Contributions are values: they can be sent anywhere, no later step changes them, and nobody's rows are in them."""

from __future__ import annotations

import io
import pickle

import numpy as np
import pytest

from apportion import linalg
from apportion.data import Interactions
from apportion.data.users import Users
from apportion.engines import LocalEngine, Processors, TorchEngine
from apportion.privacy.bounds import Hidden
from apportion.privacy.contributions import PartialSums
from engine_passes import FITS, differences, forgetful, passes_of, reference_passes

pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")
every_fit = pytest.mark.parametrize("name", FITS)


@every_fit
def test_a_contribution_that_was_sent_adds_the_same_as_the_one_that_stayed(name):
    """Though the estimator has gone on since: what it trains further is not what it handed out."""
    engine = LocalEngine(exact=True)
    for one in reference_passes(name):
        for given in (pickle.loads(one.written), one.contributions):
            sums = engine.add_up(forgetful(one.users), given)
            assert [differences(*both) for both in zip(one.sums, sums, strict=True)] == [[]] * len(one.sums)


@every_fit
def test_users_and_contributions_that_were_sent_in_seven_messages_add_up_to_the_same(name):
    """Nothing is left behind that a part needs: each worker solves for its own users."""
    kernels = Processors(np.float32, exact=True)
    for one in reference_passes(name):
        runs = [pickle.loads(pickle.dumps(run)) for run in one.users.cut(7)]
        first, *rest = (PartialSums.over(run, pickle.loads(one.written), kernels) for run in runs)
        sums = sum(rest, first).sealed(one.contributions)
        assert [differences(*both) for both in zip(one.sums, sums, strict=True)] == [[]] * len(one.sums)


class Everything(pickle.Pickler):
    """Looks at every object that is sent along."""

    def __init__(self):
        super().__init__(io.BytesIO())
        self.seen = []

    def reducer_override(self, sent):
        self.seen.append(sent)
        return NotImplemented


def private_objects(sent, users):
    """What of an object belongs to users: data sets, sealed arrays, columns, and arrays as long as a column."""
    pickler = Everything()
    pickler.dump(sent)
    return [each for each in pickler.seen if isinstance(each, (Users, Interactions, Hidden)) or is_column(each, users)]


def is_column(each, users):
    """Whether an array shares memory with a column of the users, or has an entry for each user or each row."""
    columns = [*users._columns.values(), *users._user_columns.values(), users.indptr]
    return isinstance(each, np.ndarray) and (
        each.shape[:1] in ((users.n_users,), (users.n_rows,)) or any(np.shares_memory(each, held) for held in columns)
    )


def assert_nothing_private(passes):
    for one in passes:
        for each in one.contributions:
            assert private_objects(each, one.users) == []


@every_fit
def test_no_contribution_holds_rows_of_users(name):
    assert_nothing_private(reference_passes(name))


@pytest.mark.parametrize("name", ["ratings, gradient, adaptive", "ridge, adaptive", "clicks of default size"])
def test_contributions_made_for_a_device_hold_no_rows_either(name):
    """Kernels of a device remember where rows are; they do not tell."""
    pytest.importorskip("torch", reason="torch is not installed")
    passes = passes_of(name, TorchEngine("cpu", exact=True))
    assert_nothing_private(passes)
    engine = TorchEngine("cpu", exact=True)
    for one in passes:
        engine.add_up(one.users, one.contributions)
    assert engine.kernels._placed
    assert pickle.loads(pickle.dumps(engine.kernels))._placed == []


def test_rows_in_a_contribution_would_be_seen():
    one = reference_passes("ridge, adaptive")[0]
    engine = LocalEngine()
    values = one.users.column("values")
    assert private_objects([one.users], one.users)
    assert private_objects({"deep": [engine, values[3:]]}, one.users)
    assert private_objects((one.users.indptr[1:],), one.users)
    assert private_objects([np.sort(values)], one.users)
    assert not private_objects([engine, values[:12].copy()], one.users)
