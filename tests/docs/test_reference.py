"""The API reference lists what is public and nothing else."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
from pathlib import Path

import pytest

import apportion

GENERATOR = Path(__file__).parents[2] / "docs" / "generate.py"


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("generate_docs", GENERATOR)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(generate, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    generate.write_api(folder)
    return {page.stem: page.read_text(encoding="utf-8") for page in folder.glob("*.md")}


def listed(text):
    return re.findall(r"^\.\. (?:autoclass|autofunction|py:data):: (\S+)$", text, flags=re.M)


def test_the_front_door_comes_first_with_all_its_names_described(pages):
    assert pages["index"].split("\n\n")[2].split()[0] == "apportion"
    assert listed(pages["apportion"]) == [f"apportion.{name}" for name in apportion.__all__]


def test_every_public_name_is_described_once_and_no_other_is(generate, pages):
    described = [name for page in pages.values() for name in listed(page)]
    assert len(set(described)) == len(described)
    modules = {"apportion": apportion, **generate.public_modules()}
    public = {f"{module}.{name}": getattr(held, name) for module, held in modules.items() for name in held.__all__}
    assert set(described) <= set(public)
    assert {id(public[name]) for name in described} == {id(thing) for thing in public.values()}


def test_lists_of_public_names_hold_each_once_and_none_with_an_underscore(generate):
    for name, module in generate.public_modules().items():
        assert len(set(module.__all__)) == len(module.__all__), name
        assert not [each for each in module.__all__ if each.startswith("_")], name


def test_every_package_says_what_is_public():
    packages = [each.name for each in pkgutil.walk_packages(apportion.__path__, "apportion.") if each.ispkg]
    assert [name for name in packages if not hasattr(importlib.import_module(name), "__all__")] == []
