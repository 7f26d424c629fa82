"""Commands and requests on the page about serving are as the program and the service take them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from apportion.cli.main import program
from apportion.data.features import ItemFeatures
from apportion.data.synthetic import long_tailed_ratings
from apportion.recommend import PrivateRatingRecommender
from apportion.recommend.categories import Categories
from apportion.serving.limits import Limits
from apportion.serving.requests import FIELDS, Reader

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
COMMANDS = sorted({line for line in re.findall(r"^(apportion .*)$", PAGE, re.MULTILINE)})
REQUESTS = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) + re.findall(r"--json '(.*)'", PAGE)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_has_the_options_that_the_page_gives_it(line):
    words = shlex.split(line)
    known = {name for option in program.commands[words[1]].params for name in option.opts}
    assert {word for word in words if word.startswith("-")} <= known


def test_options_named_in_the_text_exist():
    known = {
        name
        for each in ("serve", "recommend", "export", "explore")
        for p in program.commands[each].params
        for name in p.opts
    }
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) <= known


@pytest.mark.parametrize("text", REQUESTS)
def test_a_request_of_the_page_is_answered_and_all_fields_are_shown(text):
    data, _ = long_tailed_ratings(60, 300, 3000, rank=2, rng=np.random.default_rng(0))
    model = PrivateRatingRecommender(epsilon=5.0, dimension=2, rounds=1).fit(data).model_
    ids = list(range(300))
    frame = pa.table({"item": ids, "genres": ["drama" if k % 2 else "western" for k in ids]})
    model.categories = Categories.of(ItemFeatures.from_frame(frame), model.task_ids)
    asked = Reader(model, Limits()).read(text.encode())
    assert asked.n_unknown == 0
    assert any(set(json.loads(each)) == set(FIELDS) for each in REQUESTS)
