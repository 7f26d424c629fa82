"""Remarks on the terminal: guarantees that protect nobody (too large an ε or δ), and data that are loaded whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from apportion.data.sources import Place

OF_QUERY: Final = "that each row of the query is made of one user's data alone"
"""What whoever takes rows from a query declares, for the statement."""
_LARGEST_EPSILON: Final = 10.0


def weak_epsilon(epsilon: float) -> list[str]:
    """Return a warning if ε gives no protection worth the name."""
    if epsilon <= _LARGEST_EPSILON:
        return []
    return [
        f"Warning: an epsilon of {epsilon:g} gives no protection worth the name. Above {_LARGEST_EPSILON:g}, a result "
        "may be more than 22,000 times as likely with a person's data as without. Choose a smaller --epsilon."
    ]


def weak_delta(delta: float, n_users: float) -> list[str]:
    """Return a warning if δ is not below 1 / a number of users that is public or released."""
    if delta * n_users < 1:
        return []
    return [
        f"Warning: a delta of {delta:g} is not below 1 / {n_users:.0f} users. It would allow publishing one person's "
        "data outright. Choose a smaller --delta."
    ]


def said_of_folder(path: Place) -> list[str]:
    """Return a remark if a command loads a whole folder of users into memory."""
    from apportion.data.on_disk.manifest import is_user_folder

    if not is_user_folder(path):
        return []
    return [f"{path.name}: this command loads the folder of users into memory with these options."]


def declared_of(path: object) -> tuple[str, ...]:
    """Return what whoever made a folder of users declared, for the statement; nothing for other data."""
    from apportion.data.on_disk.manifest import FolderManifest, is_user_folder

    return (OF_QUERY,) if is_user_folder(path) and FolderManifest.read(path).of_query else ()
