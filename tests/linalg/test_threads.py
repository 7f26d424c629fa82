import threading

import numpy as np
import pytest

from apportion import linalg


def test_results_come_in_order_and_from_several_threads():
    together = threading.Barrier(2, timeout=20)

    def work(piece):
        if piece < 2:
            together.wait()  # passes only if two are worked on at a time
        return piece, linalg.thread_count(5)

    assert list(linalg.side_by_side(work, range(7), 2)) == [(piece, 1) for piece in range(7)]
    assert linalg.thread_count(5) == 5


def test_work_has_the_context_of_the_caller():
    def work(_):
        return linalg.active_backend(), np.geterr()["divide"], list(linalg.side_by_side(abs, [-1], 4))

    with linalg.use_backend("numpy"), np.errstate(divide="raise"):
        assert list(linalg.side_by_side(work, [0, 1], 2)) == [("numpy", "raise", [1])] * 2


def test_pieces_are_taken_as_they_are_needed_and_an_error_ends_the_work():
    taken = []

    def pieces():
        for piece in range(1000):
            taken.append(piece)
            yield piece

    with pytest.raises(ZeroDivisionError):
        list(linalg.side_by_side(lambda piece: 1 // (3 - piece), pieces(), 2))
    assert len(taken) < 12
