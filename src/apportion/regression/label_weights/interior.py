"""Optimal label weights for p = 1 by an interior-point method: slower than Newton's method, but it always converges.

With c_i split into parts a_i, b_i ≥ 0, c_i = a_i − b_i, the problem of `dual` is the quadratic program

    minimise v (‖a‖² + ‖b‖²) + A T²   subject to   Σ_i (a_i − b_i) q_iᵀ = R,   Σ_{i ∈ S_l} (|a_i| + |b_i|) + k_l = T,

with rooms k_l ≥ 0. Its multipliers are Λ, thresholds τ_l ≥ 0 with A T = Σ_l τ_l, and slacks s = v a − Λ q + τ ≥ 0 and
v b + Λ q + τ ≥ 0. The method keeps all this true and drives the products of parts and slacks, and of rooms and
thresholds, to zero together. Every step aims at a hundredth of their mean, and is then corrected several times to bring
back those that would stray from it (the multiple centrality correctors of Gondzio, 1996). Its equations for Λ have the
form of those of `dual`, except that an entry counts as a / (s + v a) + b / (s + v b) instead of 0 or 1, and k_l /
τ_l is added to the count. v = 0 is allowed: apart from T², the problem is then a linear program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from apportion.regression.label_weights.certificate import Certificate
from apportion.regression.label_weights.curvature import add_grams, block_diagonal
from apportion.regression.label_weights.dual import CappedUsers
from apportion.regression.label_weights.projection import Floats, UserBlock, sum_of_products

_AIM = 0.01  # share of their mean at which the products aim
_SPREAD = 0.03  # factor from the aim beyond which products are corrected
_CORRECTORS = 5
_WORTHWHILE = 0.01  # least gain, relative to the longer step that was hoped for
_TO_THE_BOUNDARY = 0.99
_SHORTEST = 1e-6
_IDLE = 40  # steps without a smaller gap, including those of the search before, after which the method gives up
_RIDGE = 1e-10  # relative; prevents rounding errors from being amplified when the equations are nearly singular


@dataclass(eq=False)
class _Part:
    """One block's unknowns: positive and negative parts of the weights, and their slacks, [2, user, row, column]."""

    block: UserBlock
    parts: Floats
    slacks: Floats

    @property
    def weights(self) -> Floats:
        """The weights themselves."""
        return np.asarray(self.parts[0] - self.parts[1])

    def slope(self, variance: float) -> Floats:
        """Return the resistance to moves: s + v a."""
        return self.slacks + variance * self.parts if variance else self.slacks


@dataclass(frozen=True, eq=False)
class _Direction:
    """A direction of all unknowns; those of a block are computed from it when they are needed.

    Attributes:
        matrix: the direction of Λ.
        cap: the direction of T.
        thresholds: the direction of τ.
        room: the direction of k, relative to k.
        rises: the relative rise wanted for the products of parts and slacks, block by block.
        room_rises: the relative rise wanted for the products of rooms and thresholds.
    """

    matrix: Floats
    cap: float
    thresholds: Floats
    room: Floats
    rises: Sequence[Floats]
    room_rises: Floats


class InteriorPoint:
    """The iterate, strictly inside all bounds.

    Args:
        blocks: the features in coordinates with Σ q qᵀ = I.
        target: R.
        variance: v.
        price: A > 0.
    """

    def __init__(self, blocks: Sequence[UserBlock], target: Floats, variance: float, price: float) -> None:
        self.target, self.variance, self.price = target, variance, price
        self.n_users = blocks[-1].users.stop
        largest = max(float(np.abs(block.mapped(target)).sum(axis=(1, 2)).max()) for block in blocks)
        self.cap, self.matrix = 2 * largest, variance * target
        self.thresholds = np.full(self.n_users, price * self.cap / self.n_users)
        self.room = np.empty(self.n_users)
        self.parts: list[_Part] = []
        for block in blocks:
            least_squares = block.mapped(target)
            both = np.stack([least_squares, -least_squares])
            parts = np.maximum(both, 0) + self.cap / (8 * least_squares[0].size)
            self.parts.append(_Part(block, parts, variance * (parts - both) + self.thresholds[0]))
            self.room[block.users] = self.cap - parts.sum(axis=(0, 2, 3))

    @property
    def mean_product(self) -> float:
        """The mean of all products that must become zero."""
        total = sum(sum_of_products(part.parts, part.slacks) for part in self.parts)
        count = sum(part.parts.size for part in self.parts) + self.n_users
        return float((total + float(self.room @ self.thresholds)) / count)

    def advance(self) -> bool:
        """Take one step; return False if none is possible."""
        try:
            equations = _Equations(self)
        except np.linalg.LinAlgError:
            return False
        aim = _AIM * self.mean_product
        rises = [aim / (part.parts * part.slacks) - 1 for part in self.parts]
        direction, length = equations.solved(rises, aim / (self.room * self.thresholds) - 1)
        for _ in range(_CORRECTORS):
            hoped = min(1.5 * length + 0.3, 1.0)
            corrected, longer = equations.solved(*self._corrected(direction, hoped, aim))
            if min(longer, 1) < min(length, 1) + _WORTHWHILE * (hoped - min(length, 1)):
                break
            direction, length = corrected, longer
            if length >= 1:
                break
        length = min(_TO_THE_BOUNDARY * length, 1.0)
        self._move(direction, length)
        return length > _SHORTEST

    def moves(self, part: _Part, pull: Floats, rises: Floats) -> tuple[Floats, Floats]:
        """Return the relative moves of a block's parts and slacks; pull is Δ q minus the move of τ."""
        parts = (part.slacks * rises + pull) / part.slope(self.variance)
        return parts, rises - parts

    def _moved(self, direction: _Direction) -> Iterator[tuple[_Part, Floats, Floats, Floats]]:
        """Yield every block with the moves of its parts and slacks, and the wanted relative rise of their products."""
        for part, rises in zip(self.parts, direction.rises, strict=True):
            image = part.block.mapped(direction.matrix)
            pull = np.stack([image, -image]) - direction.thresholds[part.block.users][:, None, None]
            yield part, *self.moves(part, pull, rises), rises

    def _corrected(self, direction: _Direction, length: float, aim: float) -> tuple[list[Floats], Floats]:
        """Return rises that correct products which a step of this length would take far from their aim."""

        def corrected(rises: Floats, products: Floats, grown: Floats) -> Floats:
            reached = products * grown
            wanted = np.clip(reached, _SPREAD * aim, aim / _SPREAD)
            return rises + np.maximum(wanted - reached, -aim / _SPREAD) / products

        blocks = [
            corrected(rises, part.parts * part.slacks, (1 + length * parts) * (1 + length * slacks))
            for part, parts, slacks, rises in self._moved(direction)
        ]
        thresholds = direction.thresholds / self.thresholds
        grown = (1 + length * direction.room) * (1 + length * thresholds)
        return blocks, corrected(direction.room_rises, self.room * self.thresholds, grown)

    def _move(self, direction: _Direction, length: float) -> None:
        for part, parts, slacks, _ in self._moved(direction):
            part.parts *= 1 + length * parts
            part.slacks *= 1 + length * slacks
        self.matrix = self.matrix + length * direction.matrix
        self.cap += length * direction.cap
        self.thresholds = self.thresholds + length * direction.thresholds
        self.room = self.room * (1 + length * direction.room)

    def note(self, certificate: Certificate) -> bool:
        """Record the weights and the multipliers in the certificate.

        Return whether these weights are the best so far.
        """
        squares, cap, over, largest = 0.0, 0.0, 0.0, 0.0
        correction = self._correction()
        for part in self.parts:
            weights = part.weights @ correction.T
            squares += sum_of_products(weights, weights)
            cap = max(cap, float(np.abs(weights).sum(axis=(1, 2)).max()))
            image = np.abs(part.block.mapped(self.matrix))
            largest += float(image.max(axis=(1, 2)).sum())
            excess = np.maximum(image - self.thresholds[part.block.users][:, None, None], 0)
            over += sum_of_products(excess, excess)
        linear, scale = float(np.vdot(self.matrix, self.target)), certificate.price / self.price
        if linear > 0:
            certificate.bounded(certificate.price * (linear / largest) ** 2)
        if linear > 0 and self.variance > 0:
            whole = over / self.variance + float(self.thresholds.sum()) ** 2 / self.price
            certificate.bounded(scale * linear**2 / whole)
        return certificate.improves(squares, cap)

    def rows(self, n_rows: int) -> Floats:
        """Return the weights, in the order in which the features were given."""
        result, correction = np.zeros((n_rows, len(self.target))), self._correction()
        for part in self.parts:
            there = part.block.rows >= 0
            result[part.block.rows[there]] = part.weights[there] @ correction.T
        return result

    def _correction(self) -> Floats:
        """Return the matrix that corrects rounding in the constraint."""
        moment = np.zeros_like(self.target)
        for part in self.parts:
            moment += part.block.moment(part.weights)
        correction: Floats = self.target @ np.linalg.inv(moment)
        return correction


def interior_search(
    blocks: Sequence[UserBlock], target: Floats, n_rows: int, certificate: Certificate
) -> Floats | None:
    """Return the best weights that the method found, if they are better than the best that the certificate knows."""
    scale = certificate.variance or certificate.price
    point = InteriorPoint(blocks, target, certificate.variance / scale, certificate.price / scale)
    best: Floats | None = None
    idle = 0
    while not certificate.over and idle < _IDLE and point.advance():
        certificate.iterations += 1
        gap = certificate.gap
        if point.note(certificate):
            best = point.rows(n_rows)
        certificate.report()
        idle = 0 if certificate.gap < gap else idle + 1
    return best


class _Equations:
    """The linear equations of one step, reduced to Λ. Their matrix serves all right-hand sides of the step."""

    def __init__(self, at: InteriorPoint) -> None:
        self.at, d = at, len(at.target)
        self.counts, self.missing = np.empty(at.n_users), at.target.copy()
        packed, capped = np.zeros((d, d * (d + 1) // 2)), CappedUsers(d * d)
        for part in at.parts:
            block, gives = part.block, part.parts / part.slope(at.variance)
            both = gives[0] + gives[1]
            add_grams(packed, both.reshape(-1, d), block.flat)
            counts = both.sum(axis=(1, 2)) + at.room[block.users] / at.thresholds[block.users]
            users = np.matmul((gives[0] - gives[1]).transpose(0, 2, 1), block.features)
            capped.add(users.reshape(len(users), -1), counts)
            self.counts[block.users] = counts
            self.missing -= block.moment(part.weights)
        matrix = block_diagonal(packed) + capped.form(at.price)
        self.weighted, self.inverse_counts = capped.weighted, capped.inverse_counts
        diagonal = np.diag(matrix)
        if not (diagonal > 0).all():
            raise np.linalg.LinAlgError("rounding made the equations singular")
        self.scale = 1 / np.sqrt(diagonal)
        self.inverse = np.linalg.inv(matrix * np.outer(self.scale, self.scale) + _RIDGE * np.eye(d * d))

    def solved(self, rises: Sequence[Floats], room_rises: Floats) -> tuple[_Direction, float]:
        """Return the direction in which products rise as wanted, and the longest step.

        The products rise so to first order, and all other equations stay true.
        """
        at, d = self.at, len(self.at.target)
        right, given = self.missing.copy(), np.empty(at.n_users)
        for part, rise in zip(at.parts, rises, strict=True):
            users = part.block.users
            gives = part.parts / part.slope(at.variance)
            shift = gives * part.slacks * rise
            given[users] = shift.sum(axis=(0, 2, 3)) + room_rises[users] * at.room[users]
            per_user = (given[users] / self.counts[users])[:, None, None]
            net = per_user * (gives[0] - gives[1]) - (shift[0] - shift[1])
            right += part.block.moment(net)
        total, price = float((given / self.counts).sum()), at.price + self.inverse_counts
        flat = self.scale * (self.inverse @ (self.scale * (right.ravel() - self.weighted * total / price)))
        cap = (float(self.weighted @ flat) + total) / price
        return self._completed(flat.reshape(d, d), cap, given - cap, rises, room_rises)

    def _completed(
        self, matrix: Floats, cap: float, given: Floats, rises: Sequence[Floats], room_rises: Floats
    ) -> tuple[_Direction, float]:
        """Return the moves of thresholds and rooms that follow from those of Λ and T, and the longest step."""
        at, thresholds, least = self.at, np.empty(self.at.n_users), 0.0
        for part, rise in zip(at.parts, rises, strict=True):
            users, image = part.block.users, part.block.mapped(matrix)
            gives = part.parts / part.slope(at.variance)
            pulled = ((gives[0] - gives[1]) * image).sum(axis=(1, 2))
            thresholds[users] = (pulled + given[users]) / self.counts[users]
            pull = np.stack([image, -image]) - thresholds[users][:, None, None]
            least = min(least, *(float(moves.min()) for moves in at.moves(part, pull, rise)))
        relative = thresholds / at.thresholds
        room = room_rises - relative
        least = min(least, float(relative.min()), float(room.min()))
        direction = _Direction(matrix, cap, thresholds, room, rises, room_rises)
        return direction, 1 / max(-least, np.finfo(float).tiny)
