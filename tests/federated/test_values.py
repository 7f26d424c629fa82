"""Questions as bytes: every contribution comes back as it was, and other people's bytes run nothing."""

from __future__ import annotations

import io
import json
import pickle
from functools import partial

import numpy as np
import pytest

from apportion import linalg
from apportion.engines import LocalEngine
from apportion.errors import InputError
from apportion.estimators.counts import ScaledMeans, number_of_users
from apportion.federated.values import from_bytes, to_bytes
from apportion.privacy import Rows, Session
from apportion.privacy.contributions import HeldOut
from apportion.privacy.purposes import Purpose
from engine_passes import differences, forgetful, reference_passes

SENT = ["ratings", "clicks", "mean", "quantiles, private sizes", "logistic loss, private sizes"]


@pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")
@pytest.mark.parametrize("name", SENT)
def test_contributions_that_were_sent_add_up_to_the_same(name):
    for one in reference_passes(name):
        sent = from_bytes(to_bytes(one.contributions))
        sums = LocalEngine(exact=True).add_up(forgetful(one.users), sent)
        assert [differences(*both) for both in zip(one.sums, sums, strict=True)] == [[]] * len(one.sums), str(one)


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 0.1, float("inf"), "text", b"bytes", (1, [2, {"a": None}]), {3: "x"}, np.dtype(np.float32)],
    ids=repr,
)
def test_plain_values_come_back(value):
    assert from_bytes(to_bytes(value)) == value


def test_arrays_keep_their_kind_and_methods_and_functions_their_meaning():
    array = from_bytes(to_bytes(np.float32([[1, 2]])))
    assert (array.dtype, array.shape) == (np.float32, (1, 2))
    assert from_bytes(to_bytes(np.int32(7))).dtype == np.int32
    assert from_bytes(to_bytes(number_of_users)) is number_of_users
    kept = from_bytes(to_bytes(HeldOut(0.5, seed=3).kept))
    assert kept.__self__ == HeldOut(0.5, seed=3)
    assert from_bytes(to_bytes(partial(ScaledMeans, 1.0, half=2.0)))() == ScaledMeans(1.0, 2.0)


class Outsider:
    """Of no package of the library."""


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (Outsider(), "Expected a name in this library"),
        (lambda users: users, "Expected a name in this library"),
        (json.dumps, "Expected a name in this library"),
        (np.array([object()]), "arrays of numbers or texts"),
        (Rows.clipped(np.ones((2, 2)), 1.0), "holds private values and cannot be sent"),
    ],
    ids=["an object", "a lambda", "a function", "an array of objects", "hidden rows"],
)
def test_what_clients_could_not_read_or_should_not_see_is_not_sent(value, problem):
    with pytest.raises(InputError, match=problem):
        to_bytes(value)


def forged(tree):
    body = io.BytesIO()
    np.savez(body, tree=np.frombuffer(json.dumps(tree).encode(), np.uint8))
    return body.getvalue()


@pytest.mark.parametrize(
    "tree",
    [
        {"name": "os:system"},
        {"name": "apportion.cli.main:main"},
        {"name": "apportion.privacy.noise:os"},
        {"name": "apportion.privacy.noise:np.save"},
        {"name": "apportion.privacy.session:Session.__init__"},
        {"object": "apportion.privacy.bounded_sum:BoundedSum", "fields": {"dict": []}},
        {"object": "apportion.estimators.counts:number_of_users", "fields": {"dict": []}},
        {"method": ["text", "format"]},
        {"method": [{"object": "apportion.privacy.contributions.votes:HeldOut", "fields": {"dict": []}}, "__init__"]},
        {"call": ["x"]},
    ],
    ids=lambda tree: str(next(iter(tree.values())))[:40],
)
def test_forged_names_are_refused(tree):
    with pytest.raises(InputError, match="Expected"):
        from_bytes(forged(tree))


@pytest.mark.parametrize("content", [b"", b"not an archive", pickle.dumps(Session), forged({"array": "a9"})])
def test_other_bytes_are_refused(content):
    with pytest.raises(InputError, match="Expected a message of this library, got other bytes"):
        from_bytes(content)


def test_members_of_enumerations_come_back_as_themselves():
    assert from_bytes(to_bytes(Purpose.VOTES)) == Purpose.VOTES
