"""Failures of a cluster in one sentence."""

from __future__ import annotations

import pytest

from apportion.engines.spark.failures import in_one_sentence

PAGE = "Job aborted due to stage failure: Task 3 failed 4 times\nTraceback ...\n"


@pytest.mark.parametrize("raised", ["apportion.errors.InputError", "RuntimeError: External error: InputError"])
def test_what_a_worker_refused_is_all_that_is_said(raised):
    error = in_one_sentence(RuntimeError(f"{PAGE}{raised}: Bucket 3 came twice.\n\tat org.apache.spark"))
    assert str(error) == "Bucket 3 came twice."


def test_other_failures_are_the_first_line_of_the_server():
    said = str(in_one_sentence(RuntimeError(PAGE + 400 * "x")))
    assert said.endswith("nothing was released. It says: Job aborted due to stage failure: Task 3 failed 4 times")
    raised = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'apportion'\n\tat org.apache"
    assert str(in_one_sentence(RuntimeError(PAGE + raised))).endswith(
        "It says: ModuleNotFoundError: No module named 'apportion'"
    )
    assert str(in_one_sentence(RuntimeError())).endswith("It says: RuntimeError")
