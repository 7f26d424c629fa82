"""Failures of a job on a cluster, in one sentence: the server's own text is a page, most of it stack traces."""

from __future__ import annotations

import re

from apportion.errors import ApportionError, InputError

_RAISED = re.compile(r"\bInputError: (?P<said>[^\n]+)")
_OTHERWISE = re.compile(r"^\w[\w.]*(?:Error|Exception): .+$", re.MULTILINE)
_LONGEST = 300


def in_one_sentence(error: Exception) -> ApportionError:
    """Return what a worker refused, in its words; otherwise what it raised, or the first line of the server's text.

    >>> in_one_sentence(Exception("Stage failure: apportion.errors.InputError: Bucket 3 came twice."))
    InputError('Bucket 3 came twice.')
    """
    text = str(error)
    refused = _RAISED.search(text)
    if refused:
        return InputError(refused["said"].strip(), argument=None)
    lines = [line.strip() for line in (*_OTHERWISE.findall(text)[-1:], *text.splitlines()) if line.strip()]
    first = (lines[0] if lines else type(error).__name__)[:_LONGEST]
    return InputError(f"The cluster could not finish a pass; nothing was released. It says: {first}", argument=None)
