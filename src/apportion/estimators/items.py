"""How a recommender begins: one release says which items there are and how popular each one is.

If the list of items is private, popularity is released first and pays for both. Items whose noisy popularity passes a
threshold are listed, and rows with other items are dropped within each user. The fit then continues as if the list had
been given (docs/proofs/keys.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from apportion.allocation.policies import ReleasedCounts
from apportion.data.features import ItemFeatures
from apportion.data.item_lists import Data, in_text_order, on_list, texts_of, with_priorities
from apportion.data.user_data import UnlistedData, UserData
from apportion.data.users import Users
from apportion.data.vocabulary import Vocabulary, ids_of_texts
from apportion.engines import DiskEngine, Engine, LocalEngine, add_up_one
from apportion.errors import InputError
from apportion.estimators.counts import ReleasedPopularity, release_number_of_users
from apportion.estimators.private import SettingsEstimator
from apportion.estimators.resuming import resumable
from apportion.postprocessing.popularity import posterior_popularity
from apportion.privacy import Budget, Purpose, Session, Share
from apportion.privacy.contributions import KeyCounts, KeyShares
from apportion.privacy.keys import KeyedSum, Listed, threshold_for

ItemsGiven = Literal["private", "from-data"] | Sequence[int] | Sequence[str] | Vocabulary | None

PRIVATE: Final = "private"
FROM_DATA: Final = "from-data"
KEYS_PART: Final = 0.25  # part of δ for the list
USERS_SHARE: Final = 0.002  # share of the budget for the number of users, on which the list's share depends
MOST_ITEMS: Final = 300  # most items of one user that count for the list
FEWEST_ITEMS: Final = 3  # a user with fewer items counts as having this many
LEAST_ITEMS: Final = 2  # least number of items for a model


@dataclass(frozen=True, eq=False)
class PrivateItems:
    """The listed items, and what was released about each.

    Attributes:
        listed: the release.
        stddev: the standard deviation of its noise.
        taken: the share of the budget spent so far.
    """

    listed: Listed
    stddev: float
    taken: float

    def popularity(self, n_users: float) -> ReleasedPopularity:
        """Return popularity estimated from the noisy counts, given that they passed the threshold."""
        listed = self.listed
        posterior = posterior_popularity(listed.counts, self.stddev, n_users, listed.threshold, listed.known)
        return ReleasedPopularity(posterior.mean, posterior, ReleasedCounts(posterior.mean, self.stddev, n_users))


def are_private(items: Any, data: UserData | UnlistedData) -> bool:
    """Return whether the list of items must be released: it was asked for, or no list was given."""
    if isinstance(items, str) and items not in (PRIVATE, FROM_DATA):
        raise InputError(
            f"Expected items to be {PRIVATE!r}, {FROM_DATA!r} or a list of ids, got {items!r}.", argument="items"
        )
    if isinstance(items, str):
        return items == PRIVATE
    return items is None and (isinstance(data, UnlistedData) or not data.task_ids.declared)


def on_public_list(items: Any, data: UserData | UnlistedData) -> UserData:
    """Return the data coded by a given list, or by their own. Data with other items are refused."""
    if isinstance(data, UnlistedData):
        return data.with_own_list() if isinstance(items, str) else data.on_list(_declared_list(items, "item"))
    return data if items is None or isinstance(items, str) else _on_given_list(items, data)


def _declared_list(items: Any, name: str) -> Vocabulary:
    return items if isinstance(items, Vocabulary) else Vocabulary(items, name=name, declared=True)


def _on_given_list(items: Any, data: Data) -> Data:
    listed = _declared_list(items, data.task_ids.name)
    codes = listed.find(data.task_ids.ids)
    unlisted = data.first_task(codes < 0)
    if unlisted is not None:
        shown = data.task_ids.id_of(unlisted)
        raise InputError(f"Expected items of the {len(listed)} that are listed, got {shown!r}.", argument="items")
    return data.recoded(codes, listed)


def release_items(
    data: UserData | UnlistedData, session: Session, engine: Engine, share: Share, known: Sequence[str] = ()
) -> tuple[UserData, PrivateItems]:
    """Release the list of items with their popularity; return the data on that list.

    Args:
        data: data with any items.
        session: a session whose budget reserves a part of δ for the list.
        engine: the engine that adds up.
        share: pays for popularity.
        known: ids of public items, as text; these are always listed.
    """
    form = (KeyShares if session.budget.pure else KeyCounts)(MOST_ITEMS, session.neighbours, FEWEST_ITEMS)
    keyed = data if isinstance(data, UnlistedData) else in_text_order(data)
    hidden = KeyedSum(*_counted(keyed, engine, form), known)
    listed = session.release_keys(Purpose.ITEM_LIST, hidden, share, session.budget.keys_delta)
    if len(listed.texts) < LEAST_ITEMS:
        few = "Only 1 item" if listed.texts else "No item"
        raise InputError(
            f"{few} reached the threshold of {listed.threshold:.4g} for the private list of items; that release is "
            "paid for. There are too few users for this budget",
            argument="items",
            remedy="if your catalogue is public, give it with",
        )
    found = PrivateItems(listed, form.moved / share.mu, share.fraction)
    if isinstance(keyed, UnlistedData):
        return keyed.on_list(_declared_list(ids_of_texts(listed.texts), "item"), drop=True), found
    return on_list(keyed, listed.texts), found


def refuse_too_few_users(n_users: float, session: Session, share: Share) -> None:
    """Refuse a private list that cannot hold an item, before anything is paid for.

    Args:
        n_users: declared public.
        session: a session whose budget reserves a part of δ for the list.
        share: pays for popularity.
    """
    if session.budget.pure:
        return
    form, most = KeyCounts(MOST_ITEMS, session.neighbours, FEWEST_ITEMS), n_users / FEWEST_ITEMS**0.5
    scale = form.moved / share.mu
    threshold = threshold_for(session.budget.keys_delta, scale, MOST_ITEMS, "gaussian", FEWEST_ITEMS)
    if most < threshold:
        raise InputError(
            f"{n_users:,.0f} users are too few for a private list of items at this budget: an item of all of them "
            f"would count {most:.4g} at most, below the threshold of {threshold:.4g}. Nothing was spent",
            argument="items",
            remedy="if your catalogue is public, give it with",
        )


def _counted(data: UserData | UnlistedData, engine: Engine, form: KeyShares | KeyCounts) -> tuple[Any, list[str]]:
    """Return the hidden counts of all items that occur, and their texts."""
    if isinstance(data, UnlistedData):
        return data.count_keys(form)
    return add_up_one(engine, with_priorities(data), form), texts_of(data.task_ids)


@dataclass(frozen=True, eq=False)
class Entrance:
    """What a fit starts from, once the list of items is settled.

    Attributes:
        session: the session that pays for the rest.
        engine: the engine that adds up.
        data: the data, coded by the list of items.
        items: what was released about the items, if the list is private.
        n_users: the number of users, declared or released; None if it is still to be released.
    """

    session: Session
    engine: Engine
    data: UserData
    items: PrivateItems | None
    n_users: float | None


def share_of_list(mu: float, n_users: float) -> float:
    """Return the share of the budget for a private list: 1/2 (5000 / (n μ²))^0.4, between 0.1 and 0.6.

    With fewer users or a smaller budget fewer items pass, so the list deserves more of the budget. The constants are
    public. They were found on MovieLens 1M at ε = 1, 5, 20 and on generated ratings of 200,000 users at ε = 1.

    >>> share_of_list(0.23, 6040.0), round(share_of_list(0.23, 1e6), 2)
    (0.6, 0.19)
    """
    return float(np.clip(0.5 * (5000 / max(n_users * mu**2, 1e-9)) ** 0.4, 0.1, 0.6))


class ItemsEstimator(SettingsEstimator):
    """A private estimator of items whose list may be private as well."""

    items: ItemsGiven
    features: ItemFeatures | None

    def _entered(
        self,
        given: Session | None,
        data: UserData | UnlistedData,
        public: list[str],
        counts_share: float,
        default: LocalEngine,
    ) -> Entrance:
        """Open the session and settle the list of items. A private list is released here.

        Args:
            given: the caller's session.
            data: the observations.
            public: sentences for the statement.
            counts_share: the share of the budget for popularity if the list is public.
            default: the engine to use if none was given.
        """
        if not isinstance(data.as_users, Users):  # not in memory: sums over several parts must be whole numbers
            default = DiskEngine(dtype=default.dtype, threads=default.threads)
        if not are_private(self.items, data):
            listed = on_public_list(self.items, data)
            session = self._declared(given, listed, public)
            engine = resumable(self._engine_or(default, session), session, self, data)
            return Entrance(session, engine, listed, None, self.n_users)
        known = [] if self.features is None else texts_of(self.features.item_ids)
        about = [f"the list of the {len(known)} items that have features"] if known else []
        session = self._with_keys(given, [*about, *public])
        engine, before = resumable(self._engine_or(default, session), session, self, data), session.spent
        n_users = float(self.n_users or release_number_of_users(data.as_users, session, engine, _few(session)))
        share = max(counts_share, share_of_list(session.budget.mu, n_users))
        planned = session.plan(items=share).one("items")
        if self.n_users is not None and not known:
            refuse_too_few_users(n_users, session, planned)
        on_it, found = release_items(data, session, engine, planned, known)
        return Entrance(session, engine, on_it, replace(found, taken=session.spent - before), n_users)

    def _with_keys(self, given: Session | None, public: list[str]) -> Session:
        """Open the session of a fit with a private list of items; part of its δ is for the list."""
        budget = self._budget()
        kept = Budget(budget.epsilon, budget.delta, KEYS_PART * budget.delta)
        session = self._open(given, kept, self._neighbours, public)
        if not session.budget.keys_delta:
            raise InputError(
                "A private list of items takes a part of delta, and this session keeps none for it; open it with "
                "Budget(epsilon, delta, keys_delta), or declare the list public",
                argument="items",
                remedy="give it with",
            )
        if self.n_users is not None:
            session.declare_users(self.n_users)
        return session


def _few(session: Session) -> Share:
    return session.plan(users=USERS_SHARE).one("users")
