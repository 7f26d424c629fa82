"""How every party learns and what it sends, as a value: public, and the same for all parties.

A party on another machine receives this value and the answers so far. It learns from them with its own rows, as it
would on the same machine as all others. Its part of a round is the same, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from apportion.data.vocabulary import Vocabulary
from apportion.parties.curator import Answer
from apportion.parties.parties import BayesParties, Disturb, Parties, Party, ProximalParties, Sending
from apportion.parties.posterior import local_side
from apportion.parties.tasks import TaskRows, rows_of_lists
from apportion.privacy.neighbours import Neighbours
from apportion.privacy.party_sums import PartForm, PartyParts
from apportion.privacy.task_sums import MomentWeights, TaskMatrices, TaskModels


@dataclass(frozen=True)
class PartySide:
    """The settings of the parties' side; see `ProtectedMultiTask`.

    Attributes:
        loss: "squared" or "logistic".
        structure: "em", or the name of a proximal method.
        clip_norm: K; None to scale every model to norm 1.
        weights: how directions and sizes are sent beside products; None if they are not.
        fit_intercept: whether a party subtracts its own means first.
        accelerated: whether proximal steps have momentum.
        condition: κ of a strongly convex loss, for the momentum.
        sparse_penalty: the penalty of a sparse part; None without one.
        whole_posterior: whether EM sends second moments instead of means.
    """

    loss: str = "squared"
    structure: str = "em"
    clip_norm: float | None = None
    weights: MomentWeights | None = None
    fit_intercept: bool = False
    accelerated: bool = True
    condition: float | None = None
    sparse_penalty: float | None = None
    whole_posterior: bool = False

    def form(self, dimension: int, neighbours: Neighbours) -> PartForm:
        """Return what the parts are made of."""
        norm, diagonal = 1.0 if self.clip_norm is None else self.clip_norm, self.structure == "group-sparse"
        return PartForm(dimension, norm, neighbours, diagonal, self.weights, self.clip_norm is None)

    def members(self, data: TaskRows, disturb: Disturb | None = None) -> Parties:
        """Return parties with these rows before the first round. With intercepts, each party's means are subtracted."""
        local = local_side(data, self.loss)
        sending = Sending(self.clip_norm, disturb, self.weights is not None)
        if self.structure == "em":
            return BayesParties(local, sending, whole_posterior=self.whole_posterior)
        return ProximalParties(
            local, sending, accelerated=self.accelerated, condition=self.condition, sparse_penalty=self.sparse_penalty
        )

    def after(self, data: TaskRows, answers: Iterable[Answer]) -> Parties:
        """Return the parties after some rounds."""
        members = self.members(data)
        for answer in answers:
            members.receive(answer)
        return members

    def learned(self, answers: Iterable[Answer], X: Any, y: Any, task: int | str = "own") -> Party:  # noqa: N803
        """Learn from answers with the rows of one party, on its own machine. Nothing in the result may be shared.

        Args:
            answers: the answers of all rounds.
            X: the party's features, one row per observation.
            y: its labels.
            task: the name of the party.
        """
        rows, feature_means, label_mean = rows_of_lists([X], [y]), 0.0, 0.0
        if self.fit_intercept:
            rows, means, labels = rows.centred()
            feature_means, label_mean = means[0], labels[0]
        members = self.after(rows, answers)
        model, alone = members.models()[0], members.alone()[0]
        intercepts = [float(label_mean - np.sum(feature_means * each)) for each in (model, alone)]
        return Party(task, model, intercepts[0], alone, intercepts[1], float(members.own_weight()[0]))

    def parts(self, answers: tuple[Answer, ...], form: PartForm) -> PartyParts:
        """Return, for an engine, what the parties add in the round after these answers."""
        return PartyParts(SentAfter(self, answers), form)


@dataclass(frozen=True, eq=False)
class SentAfter:
    """What parties send after some answers.

    Attributes:
        side: the settings by which they learn.
        answers: the answers of all rounds so far.
    """

    side: PartySide
    answers: tuple[Answer, ...]

    def __call__(self, users: Any) -> TaskModels | TaskMatrices:
        """Return the parts of these parties."""
        names = Vocabulary.of_range(users.n_users, name="task")
        rows = TaskRows(names, users.column("features"), users.column("labels"), users.indptr)
        own = rows.centred()[0] if self.side.fit_intercept else rows
        return self.side.after(own, self.answers).send()
