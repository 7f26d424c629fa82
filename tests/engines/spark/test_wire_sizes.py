"""What crosses the network is as large as docs/spark.md says."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.engines.spark.answers import Answer
from apportion.engines.spark.buckets import Bucket
from apportion.privacy.contributions import Channel, PartialSums

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
