"""Constructors of estimators: written once, documented in full, and cloned by scikit-learn."""

from __future__ import annotations

import inspect
import re
from dataclasses import KW_ONLY, field
from typing import get_type_hints

import pytest
from sklearn.base import clone

from apportion.engines import Engine
from apportion.estimators import PrivateEstimator
from apportion.estimators.base import Estimator, defaults_of
from apportion.estimators.constructors import with_constructor
from apportion.parties import ProtectedMultiTask
from apportion.published.skew import AlternatingMinimisation
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender
from apportion.regression import LabelPrivateRegression, MultiTaskERM, MultiTaskRidge, UserERM
from apportion.statistics import UserCovariance, UserGroupBy, UserKeys, UserMean, UserPCA, UserQuantile
from apportion.statistics.paper_mean import PaperMean

ESTIMATORS = [
    AlternatingMinimisation, LabelPrivateRegression, MultiTaskERM, MultiTaskRidge, PaperMean, PrivateClickRecommender,
    PrivateRatingRecommender, ProtectedMultiTask, UserCovariance, UserERM, UserGroupBy, UserKeys, UserMean,
    UserPCA, UserQuantile,
]  # fmt: skip


@with_constructor
class Base(Estimator):
    """A base.

    Args:
        seed: where it starts.
        noise: of all.
    """

    _: KW_ONLY
    seed: int = 3
    noise: str = "secure"


@with_constructor
class Final(Base):
    """An estimator.

    Args:
        size: how large,
            in two lines.
        noise: its own.

    Privacy: none.
    """

    size: int = 1
    _: KW_ONLY
    rate: float

    found_: int = field(init=False)


def documented(cls):
    section = re.search(r"^Args:\n((?:    .*\n)+)", inspect.getdoc(cls), re.M)
    return re.findall(r"^    (\w+): ", section[1], re.M)


def all_subclasses(cls):
    return {each for direct in cls.__subclasses__() for each in (direct, *all_subclasses(direct))}


def test_every_estimator_that_a_user_can_make_is_on_the_list():
    """But for methods with features as published, which other tests may or may not have imported."""
    known = all_subclasses(PrivateEstimator)
    within = {each for each in known if re.match(r"apportion\.(?!published\.public_features)", each.__module__)}
    assert {each for each in within if within.isdisjoint(each.__subclasses__())} == set(ESTIMATORS)


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_help_shows_every_argument_once_in_the_order_of_the_constructor(cls):
    assert documented(cls) == list(inspect.signature(cls).parameters)


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_a_clone_has_every_argument_as_it_was_given(cls):
    required = {name: (0.0, 1.0) for name, default in defaults_of(cls).items() if default is inspect.Parameter.empty}
    given = {"epsilon": 0.5, "public": ("the weather",), "window": "May", "tuning": "by hand", "noise": "exact"}
    made = cls(**required, **given)
    assert clone(made).get_params() == made.get_params() == {**defaults_of(cls), **required, **given}


def test_own_arguments_come_before_those_of_bases_and_what_a_fit_learns_is_none():
    assert str(inspect.signature(Final)) == (
        "(size: 'int' = 1, *, rate: 'float', seed: 'int' = 3, noise: 'str' = 'secure') -> None"
    )
    made = Final(2, rate=0.5)
    assert made.get_params() == {"size": 2, "rate": 0.5, "seed": 3, "noise": "secure"}
    assert not hasattr(made, "found_")
    with pytest.raises(TypeError, match="rate"):
        Final(2)


def test_lines_on_arguments_are_inherited_and_the_own_line_wins():
    args = inspect.getdoc(Final).split("Args:\n")[1].split("\n\n")[0]
    assert args == "    size: how large,\n        in two lines.\n    seed: where it starts.\n    noise: its own."
    assert "noise: of all." in Base.__doc__


def test_two_estimators_with_equal_arguments_are_not_equal():
    assert Final(rate=1.0) != Final(rate=1.0)
    assert len({Final(rate=1.0), Final(rate=1.0)}) == 2


def test_types_are_those_of_the_module_in_which_a_field_stands():
    types = get_type_hints(UserMean.__init__)
    assert types["engine"] == Engine | None  # a name that the module of `UserMean` does not have
    assert list(types) == [*inspect.signature(UserMean).parameters, "return"]
