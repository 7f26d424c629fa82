"""What crosses between parties and curator: one sealed, bounded part up, one released answer down, nothing else."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from apportion.parties import Answer, Curator, GaussianRelease, estimator
from apportion.parties.common import common_of, moment_weights
from apportion.parties.structure import Covariance, structure_of
from apportion.privacy import Budget, SeededNoise, Session
from apportion.privacy.neighbours import REPLACE_TASK
from apportion.privacy.party_sums import PartForm
from apportion.privacy.task_sums import SizedModels, TaskMatrices, TaskModels

from party_cases import FITS, low_rank_tasks

EVERY_FIT = pytest.mark.parametrize("make", FITS.values(), ids=FITS)


class Watched(Curator):
    """A curator that writes down everything that passes."""

    passed: list[tuple[object, object]]

    def answer(self, sent):
        returned = super().answer(sent)
        self.passed.append((sent, returned))
        return returned


@EVERY_FIT
def test_one_bounded_part_goes_up_and_one_released_answer_comes_down(make, monkeypatch):
    Watched.passed = []
    monkeypatch.setattr(estimator, "Curator", Watched)
    model = make(noise=SeededNoise(3)).fit(*low_rank_tasks(1, logistic=make().loss == "logistic"))
    assert len(Watched.passed) == make()._rounds
    for (sent, returned), released in zip(Watched.passed, model.released_, strict=True):
        assert type(sent) in (TaskModels, SizedModels, TaskMatrices)
        assert sent.norm == (make().clip_norm or 1.0)
        assert type(returned) is Answer
        assert np.array_equal(returned.shared, released.shared)
        assert returned.common is released.common


@EVERY_FIT
def test_what_comes_down_is_a_function_of_what_was_released(make):
    """Read again from the released matrix, its noise and public numbers alone."""
    model = make(noise=SeededNoise(4), epsilon=50.0)
    model.fit(*low_rank_tasks(2, logistic=model.loss == "logistic"))
    structure = structure_of(model.structure, estimator._PENALTIES[model.structure])
    for released in model.released_:
        unit = (model.clip_norm or 1.0) ** 2
        again = _read_again(structure, released, unit)
        assert again.shared == pytest.approx(released.shared, rel=1e-9, abs=1e-9)
        assert again.values == pytest.approx(released.values, rel=1e-9)
        assert again.kept == released.kept
        left_out = model.instance_epsilon is not None or model.contribution == "posterior" or not model.share_mean
        assert (released.mean is None) == left_out
        if released.mean is not None:
            _assert_common_is_read_from_the_mean(model, released, unit)


def _read_again(structure, released, unit):
    matrix, stddev = released.matrix / unit, released.stddev / unit
    if released.mean is None or not isinstance(structure, Covariance):
        return structure.read(matrix, stddev, 40.0)
    part = moment_weights(6, 1 / Budget(50.0, 1e-5).mu, 40).mean / 2
    return structure.read_beside(np.sqrt(part) * 40 * released.mean[:-1], part, matrix, stddev, 40.0)


def _assert_common_is_read_from_the_mean(model, released, unit):
    weights = moment_weights(6, 1 / Budget(50.0, 1e-5).mu, 40)
    noise = [released.stddev / (unit * np.sqrt(weight)) for weight in (weights.mean, weights.size)]
    again = common_of(40 * released.mean[:-1], 40 * released.mean[-1], *noise, 40)
    assert (again is None) == (released.common is None)
    if again is not None:
        assert again.direction == pytest.approx(released.common.direction)
        assert (again.share, again.size) == pytest.approx((released.common.share, released.common.size))


def test_the_curator_has_no_way_to_see_rows_or_models():
    """Its only inputs are the session, its settings, and parts that refuse to be read."""
    assert list(inspect.signature(Curator.answer).parameters) == ["self", "sent"]
    session = Session(Budget(1.0, 1e-5), noise=SeededNoise(0), neighbours=REPLACE_TASK)
    shares = session.plan(rounds=[1.0]).several("rounds")
    form = PartForm(2, 1.0, REPLACE_TASK)
    curator = Curator(session, GaussianRelease(), shares, structure_of("em", 1.0), 3, form, pooled=True)
    sent = TaskModels.scaled(np.ones((3, 2)), 1.0)
    curator.answer(sent)
    with pytest.raises(TypeError, match="private"):
        np.asarray(sent)
    with pytest.raises(IndexError):
        curator.answer(sent)  # one part a round, and only as many rounds as were planned


def test_a_party_that_changes_its_own_rows_changes_nobody_else_once_releases_are_the_same():
    """Feed a second fit the releases of the first: all other parties end with the same model, bit for bit."""
    from apportion.auditing import RecordingSession, ReplayingSession

    arguments = {"budget": Budget(50.0, 1e-5), "noise": SeededNoise(5), "neighbours": REPLACE_TASK}
    features, labels = low_rank_tasks(3)
    changed = [*labels[:9], -5 * labels[9][::-1], *labels[10:]]
    for make in FITS.values():
        if make().loss == "logistic":
            continue
        first = RecordingSession(**arguments)
        one = make().fit(features, labels, session=first)
        other = make().fit(features, changed, session=ReplayingSession(first, **arguments))
        rest = np.arange(40) != 9
        assert np.array_equal(one.coef_[rest], other.coef_[rest])
        assert not np.array_equal(one.coef_[9], other.coef_[9])
