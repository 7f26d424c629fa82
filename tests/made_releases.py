"""Releases of statements that are made by hand."""

from __future__ import annotations

from apportion.privacy.purposes import release_name
from apportion.privacy.statement import Release

WORDS = {
    "gaussian": "Gaussian",
    "laplace": "Laplace",
    "exponential": "exponential",
    "exponential-on-the-line": "exponential, on the line",
}


def a_release(name, mechanism, *rest, **further):
    """A release by its name and the key of its mechanism."""
    named = release_name(name)
    return Release(named.text, named.purpose, named.stage, mechanism, WORDS[mechanism], *rest, **further)
