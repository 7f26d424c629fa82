"""The names of `import apportion`: all there, each with an example, and loaded only when used."""

from __future__ import annotations

import doctest
import subprocess
import sys

import pytest

import apportion

HEAVY = ("numpy", "scipy", "pyarrow", "jinja2", "rich", "sklearn", "dp_accounting", "safetensors", "torch", "click")
WITHOUT_TORCH = sorted(set(apportion.__all__) - {"PrivateTrainer"})


def loaded_after(code):
    """Which of the heavy packages a fresh interpreter has loaded after some code."""
    report = f"import sys\n{code}\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def test_importing_the_package_loads_nothing_heavy():
    assert loaded_after("import apportion\ndir(apportion)") == "[]"


def test_every_name_but_the_trainer_needs_numpy_alone():
    names = ", ".join(WITHOUT_TORCH)
    assert loaded_after(f"from apportion import {names}") == "['numpy']"


def test_a_star_import_brings_the_front_door_and_nothing_else():
    names = {}
    exec("from apportion import *", names)
    assert sorted(set(names) - {"__builtins__"}) == sorted(apportion.__all__)
    assert set(apportion.__all__) <= set(dir(apportion))


@pytest.mark.parametrize("name", apportion.__all__)
def test_every_name_has_an_example_of_its_own(name):
    (found,) = (test for test in doctest.DocTestFinder(recurse=False).find(getattr(apportion, name), name))
    assert any(name in example.source for example in found.examples)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'PrivateMean'"):
        _ = apportion.PrivateMean
