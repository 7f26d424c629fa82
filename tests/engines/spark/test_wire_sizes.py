"""What crosses the network is as large as docs/spark.md says."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.data.synthetic import long_tailed_ratings
from apportion.engines import LocalEngine
from apportion.engines.spark.answers import Answer
from apportion.engines.spark.buckets import Bucket
from apportion.privacy import SeededNoise
from apportion.privacy.contributions import Channel, PartialSums
from apportion.recommend import PrivateRatingRecommender
from engine_passes import RecordingEngine

from strategies import random_interactions


@pytest.mark.parametrize(("items", "width", "buckets"), [(1000, 9, 16), (5000, 3, 200)])
def test_an_answer_has_8_bytes_for_each_number_and_40_for_each_bucket(items, width, buckets):
    sums = PartialSums([(np.ones((items, width), np.int64),)], 10)
    roll = {number: (10**6, "0123456789abcdef") for number in range(buckets)}
    sent = len(Answer(roll, sums.layout, sums).to_wire(Channel()))
    assert 8 * items * width <= sent <= 8 * items * width + 40 * buckets + 1024


def test_a_bucket_has_8_bytes_for_each_row_and_24_for_each_user():
    data = random_interactions(1, n_users=3000, n_tasks=50)
    body = Bucket(data.as_users, data.as_users.keys).to_bytes()
    most = 8 * data.n_observations + 24 * data.n_users + 1024
    assert 8 * data.n_observations + 24 * data.n_users <= len(body) <= most


def test_a_pass_sends_as_many_bytes_as_there_are_released_numbers_of_items():
    items, width = 1000, 5
    data, _ = long_tailed_ratings(100, items, 1500, rank=2, rng=np.random.default_rng(0))
    engine = RecordingEngine(LocalEngine(np.float64, exact=True))
    made = PrivateRatingRecommender(20.0, dimension=width - 1, rounds=3, engine=engine, noise=SeededNoise(1))
    made.fit(data.with_public_tasks())
    sent: dict[str, int] = {}
    for each in engine.passes:
        sent[str(each)] = max(len(each.written), sent.get(str(each), 0))
    assert 8 * items * (width + 4) <= sent["RatingParts"] <= 8 * items * (width + 4) + 4096
    assert 40 * items * (width + 2) <= sent["Votes"] <= 40 * items * (width + 2) + 4096
