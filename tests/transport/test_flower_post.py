"""Letters by Flower: what comes from elsewhere than the nodes of clients does not count."""

from __future__ import annotations

from apportion.transport import flower


def test_answers_of_nodes_that_were_not_asked_or_are_too_long_do_not_count(monkeypatch):
    came = {70: b"short", 71: b"much too long", 99: b"nobody"}
    monkeypatch.setattr(flower, "_exchanged", lambda grid, by_node, timeout: came)
    assert flower.FlowerPost(None, {0: 70, 1: 71}, 1.0).exchanged({0: b"a", 1: b"b"}, 8) == {0: b"short"}
