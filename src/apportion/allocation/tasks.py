"""Weights over a user's tasks, all of one type that guarantees Σ w² ≤ 1 per user.

A user who touches many tasks has the same unit of sensitivity as one who touches few; these functions say where it
goes. They look at one user's own task list and at released popularity, never at other users.

Equation numbers are those of Krichene et al., "Multi-Task Differential Privacy Under Distribution Skew" (2023).
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from apportion.data import Interactions, Vocabulary
from apportion.errors import InputError
from apportion.linalg import keyed_words
from apportion.privacy.bounds import MARGIN, FloatArray, Weights


def equal_split(data: Interactions) -> Weights:
    """Every task of user j gets 1/√n^j: nothing is sampled, nothing dropped, sensitivity exactly 1.

    Summed over users this measures weighted popularity Σ_j 1/√n^j, not the number of users n_i; see
    `observations_from_popularity`.
    """
    ones = np.ones(data.n_observations, dtype=data.values.dtype)
    return Weights.normalised(ones, data.by_user.indptr, "equal split 1/sqrt(n^j)")


def adaptive(data: Interactions, popularity: FloatArray, exponent: float) -> Weights:
    """w_ij ∝ popularity_i^(−exponent), scaled up or down until each user's squares sum to 1.

    An exponent of 0 is the equal split, 1/4 and 1/2 are the optima of eq. 11 for convex and strongly convex
    losses. Unlike eq. 12, light users are scaled up as well.
    """
    omega = _powers(popularity, exponent)
    raw = (omega / omega.max()).astype(data.values.dtype)[data.tasks]
    return Weights.normalised(raw, data.by_user.indptr, f"adaptive, popularity^-{exponent:g}, normalised")


def closed_form(data: Interactions, counts: FloatArray, exponent: float, n_users: float) -> Weights:
    """Eq. 16 with a user budget of 1, clipped per user by eq. 12; eq. 11 at exponent (1 + γ)/4.

    ω_i = n̂_i^(−μ) / √(Σ_i' n̂_i'^(1 − 2μ) / n), where μ is the exponent and c(n) = 1: eq. 12 enforces the
    bound, whatever the log factor would have been.

    Args:
        data: the interactions.
        counts: released or public numbers of users per task.
        exponent: μ of eq. 16.
        n_users: public or released number of users.
    """
    omega = closed_form_of_tasks(counts, exponent, n_users)
    largest = float(np.finfo(data.values.dtype).max) ** 0.25  # so that no square overflows, whoever has the task
    raw = np.minimum(omega, largest).astype(data.values.dtype)[data.tasks]
    return Weights.clipped(raw, data.by_user.indptr, f"closed form, counts^-{exponent:g}, clipped")


def closed_form_of_tasks(counts: FloatArray, exponent: float, n_users: float) -> NDArray[np.float64]:
    """ω of eq. 16 for every task, before any user's weights are clipped."""
    if not n_users > 0:
        raise InputError(f"Expected a positive number of users, got {n_users}.")
    return np.asarray(_powers(counts, exponent) / np.sqrt(_powers(counts, 2 * exponent - 1).sum() / n_users))


def uniform_sample(data: Interactions, limit: int, seed: int) -> Weights:
    """Keep at most `limit` tasks of each user, chosen uniformly, with weight 1/√limit each."""
    return _kept(data, pair_keys(data, seed), limit, f"uniform sample of {limit} tasks a user")


def tail_sample(data: Interactions, popularity: FloatArray, limit: int) -> Weights:
    """Keep each user's `limit` rarest tasks by released popularity, with weight 1/√limit each."""
    return _kept(data, popularity[data.tasks], limit, f"the {limit} rarest tasks of a user")


def observations_from_popularity(popularity: FloatArray, tasks_per_user: float) -> FloatArray:
    """Turn weighted popularity Σ_j 1/√n^j into counts n_i, given a typical number of tasks a user.

    n_i = Σ_j 1 and popularity_i = Σ_j (n^j)^(−1/2), so n_i = popularity_i · √n̄ when every user has n̄ tasks. With
    unequal users it is an approximation: tasks that heavy users prefer are under-counted.
    """
    return np.asarray(popularity * np.sqrt(tasks_per_user))


def _kept(data: Interactions, keys: NDArray[np.generic], limit: int, description: str) -> Weights:
    if limit < 1:
        raise InputError(f"Expected a limit of at least 1 task a user, got {limit}.")
    order = np.lexsort((data.tasks, keys, data.users))
    rank = np.arange(data.n_observations) - np.repeat(data.by_user.indptr[:-1], np.diff(data.by_user.indptr))
    weights = np.zeros(data.n_observations, dtype=data.values.dtype)
    weights[order[rank < limit]] = (1 - MARGIN) / np.sqrt(limit)
    return Weights(weights, data.by_user.indptr, description)


def _powers(popularity: FloatArray, exponent: float) -> NDArray[np.float64]:
    values = np.asarray(popularity, dtype=np.float64)
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise InputError("Expected positive popularity for every task; floor released counts first.")
    with np.errstate(over="ignore"):
        powers = values**-exponent
    if not np.isfinite(powers).all():  # for every task, whoever has it
        raise InputError(f"Popularity to the power {-exponent:g} is not finite; use a smaller exponent.")
    return powers


def user_keys(user_ids: Vocabulary, seed: int) -> NDArray[np.uint64]:
    """A number for each user from its id and a public seed: codes would shift when another user leaves the data."""
    return keyed_words((seed % 2**256).to_bytes(32, "little"), sampling_keys(user_ids))


def sampling_keys(user_ids: Vocabulary) -> NDArray[np.uint64]:
    """Two numbers for each user from its id alone, [n_users, 2], for Poisson samples.

    Whole numbers are their own keys, also where they are kept as text since somebody else's id is text. Other text is
    hashed to 127 bits, so that nobody can choose two ids that are always sampled together; the last bit keeps it apart
    from whole numbers.
    """
    if user_ids.holds_text:
        keys = np.frombuffer(b"".join(_key_of_text(str(name)) for name in user_ids), "<u8")
        return keys.reshape(-1, 2).astype(np.uint64)
    ids = np.asarray(user_ids.ids).astype(np.uint64)
    return np.stack([ids, np.zeros_like(ids)], axis=1)


def _key_of_text(name: str) -> bytes:
    """16 bytes; those of a whole number if the text is one, written plainly."""
    plain = name.isascii() and name.removeprefix("-").isdigit() and len(name) <= 20 and str(int(name)) == name
    if plain and -(2**63) <= int(name) < 2**63:
        return (int(name) % 2**64).to_bytes(8, "little") + bytes(8)
    digest = blake2b(name.encode(), digest_size=16).digest()
    return digest[:15] + bytes([digest[15] | 0x80])


def pair_keys(data: Interactions, seed: int) -> NDArray[np.uint64]:
    """Hash (user, task, seed) of each observation, so that a user's sample of tasks does not depend on other users.

    The sample needs no secrecy: whichever tasks are kept, the user's weights are within the bound. So the user's number
    comes from ChaCha20, once, and its tasks from a mixer (the finaliser of SplitMix64).
    """
    users, tasks = user_keys(data.user_ids, seed)[data.users], data.tasks.astype(np.uint64)
    mixed = (users ^ (tasks * np.uint64(0xA24BAED4963EE407))) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))
