"""Rates by address: a burst, then the rate, each address for itself, and only so many addresses are kept."""

from __future__ import annotations

import pytest

from apportion.errors import InputError
from apportion.serving import Service
from apportion.serving.limits import Limits, Rate
from apportion.serving.running import server


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_a_burst_is_let_through_and_then_so_many_a_second():
    clock = Clock()
    rate = Rate(5.0, clock)
    assert [rate.seconds_to_wait("one") for _ in range(10)] == [0.0] * 10
    assert rate.seconds_to_wait("one") == pytest.approx(0.2)
    assert rate.seconds_to_wait("other") == 0.0
    let_through = 0
    for _ in range(400):
        clock.now += 0.05
        let_through += rate.seconds_to_wait("one") == 0.0
    assert let_through in (99, 100)  # 20 seconds of 5 a second


def test_only_the_addresses_seen_last_are_kept(monkeypatch):
    monkeypatch.setattr("apportion.serving.limits._ADDRESSES_KEPT", 50)
    rate = Rate(1.0, Clock())
    for number in range(1000):
        rate.seconds_to_wait(f"address {number}")
    assert list(rate._buckets) == [f"address {number}" for number in range(950, 1000)]


@pytest.mark.parametrize("wrong", [{"body_bytes": 0}, {"seconds": -1.0}, {"rate": -1.0}, {"rate": float("nan")}])
def test_limits_that_let_nothing_through_are_refused(wrong):
    with pytest.raises(InputError, match="Expected"):
        Limits(**wrong)


def test_a_variable_of_the_environment_does_not_let_anybody_name_another_address(monkeypatch, clicks_model):
    """The header X-Forwarded-For is believed from a proxy on this machine alone."""
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    assert server(Service(clicks_model), Limits(), grace=1).config.forwarded_allow_ips == "127.0.0.1"
