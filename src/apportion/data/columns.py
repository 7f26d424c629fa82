"""Which column plays which role: by the names that were given, or guessed from the usual names.

A guess ignores case and punctuation (`userId`, `user_id` and `User ID` are one name). It is made only if exactly one
column fits; otherwise the error lists the columns in the file.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from apportion.data.vocabulary import shortened
from apportion.errors import InputError


class _Ignore(enum.Enum):
    IGNORE = "ignore"

    def __repr__(self) -> str:
        return "IGNORE"


IGNORE: Final = _Ignore.IGNORE
"""Given as `value=` or `timestamp=`: do not look for such a column."""

ColumnChoice = str | _Ignore | None
"""A column's name, `IGNORE`, or `None` to guess."""


@dataclass(frozen=True)
class Columns:
    """The names of the columns to read; `value` and `timestamp` may be absent."""

    user: str
    task: str
    value: str | None = None
    timestamp: str | None = None

    @property
    def names(self) -> list[str]:
        """All names, in the order user, task, value, timestamp."""
        every = (self.user, self.task, self.value, self.timestamp)
        return [name for name in every if name is not None]


_WHO = "user uid userid userkey reviewer reviewerid customer customerid member memberid visitor visitorid"
_WHAT = (
    "item itemid iid task taskid movie movieid film filmid product productid song songid track trackid "
    "artist artistid album albumid book bookid article articleid game gameid business businessid asin sku"
)
_VALUE = "rating ratings value score scores star stars starrating overall plays playcount listencount"
_WHEN = "timestamp time ts unixtime unixreviewtime datetime"

USUAL_NAMES: Final[Mapping[str, frozenset[str]]] = {
    "user": frozenset(_WHO.split()),
    "task": frozenset(_WHAT.split()),
    "value": frozenset(_VALUE.split()),
    "timestamp": frozenset(_WHEN.split()),
}
"""For each role the names it usually has, in lower case and without punctuation."""

_ALSO_WHO = (
    "username client clientid buyer buyerid shopper shopperid reader readerid listener listenerid viewer viewerid "
    "student studentid learner learnerid guest guestid person personid account accountid subscriber subscriberid "
    "benutzer benutzerid nutzer nutzerid kunde kundenid kundennummer kundennr utilisateur utilisateurid idutilisateur "
    "idclient usuario usuarioid idusuario cliente clienteid idcliente"
)
_ALSO_WHAT = (
    "productcode stockcode isbn isbn10 isbn13 ean gtin show showid video videoid podcast podcastid episode episodeid "
    "recipe recipeid course courseid lesson lessonid exercise exerciseid place placeid poi poiid venue venueid "
    "restaurant restaurantid hotel hotelid listing listingid beer beerid wine wineid app appid page pageid "
    "artikel artikelid artikelnummer artikelnr produkt produktid buch produit produitid idproduit livre idarticle "
    "artículo articulo articuloid idarticulo producto productoid idproducto película pelicula libro"
)

OTHER_NAMES: Final[Mapping[str, frozenset[str]]] = {
    "user": frozenset(_ALSO_WHO.split()),
    "task": frozenset(_ALSO_WHAT.split()),
    "value": frozenset(
        (
            "bookrating",
            "reviewoverall",
            "userrating",
            "grade",
            "bewertung",
            "sterne",
            "évaluation",
            "evaluation",
            "étoiles",
            "etoiles",
            "calificación",
            "calificacion",
            "puntuación",
            "puntuacion",
        )
    ),
    "timestamp": frozenset(("zeitstempel", "zeitpunkt", "horodatage")),
}
"""Names from shops, books, music, places and courses, also German, French and Spanish ones, for a role that no column
with a usual name has."""

_REQUIRED = ("user", "task")
_MOST_SHOWN = 20  # names in a message
_CALLED: Final = {"task": "item"}  # in messages


def choose_columns(found: Sequence[str], choices: Mapping[str, ColumnChoice]) -> Columns:
    """Decide which of the columns found play the roles user, task, value and timestamp.

    Args:
        found: the names of the columns, in order.
        choices: for each role a name, `IGNORE`, or `None` to guess.
    """
    given = {role: choice for role, choice in choices.items() if isinstance(choice, str)}
    for role, name in given.items():
        _check_given(role, name, found)
    _check_distinct(given)
    left = [name for name in found if name not in given.values()]
    guessed = {role: _guess(role, left, found) for role in USUAL_NAMES if choices.get(role) is None}
    return Columns(**(given | {role: name for role, name in guessed.items() if name is not None}))


def choose_user(found: Sequence[str], given: str | None) -> str:
    """Return the user column of a table without items: the given one, or a guess."""
    if given is not None:
        _check_given("user", given, found)
        return given
    guessed = _guess("user", found, found)
    assert guessed is not None  # a missing user column was refused before
    return guessed


def refuse_uneven_guess(source: object, choices: Mapping[str, ColumnChoice]) -> None:
    """Refuse to guess columns by their names where rows have the names, unless all rows have the same candidates.

    Else a name in one user's rows alone could change which columns are read of everybody.

    Args:
        source: an open table.
        choices: as in `choose_columns`.
    """
    check = getattr(source, "refuse_uneven", None)
    guessed = [role for role in USUAL_NAMES if choices.get(role) is None]
    if check is not None and guessed:
        check({role: partial(candidates, role) for role in guessed})


def candidates(role: str, names: Sequence[str]) -> list[str]:
    """Return the columns with a usual or a rarer name of this role."""
    known = USUAL_NAMES[role] | OTHER_NAMES[role]
    return [name for name in names if _plain(name) in known]


def usually(role: str, names: Sequence[str]) -> list[str]:
    """Return the columns with a usual name of this role; if there is none, those with a rarer name."""
    usual = [name for name in names if _plain(name) in USUAL_NAMES[role]]
    return usual or [name for name in names if _plain(name) in OTHER_NAMES[role]]


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def _called(role: str) -> str:
    return _CALLED.get(role, role)


def _check_given(role: str, name: str, found: Sequence[str]) -> None:
    if name not in found:
        raise InputError(
            f"There is no column {name!r} to use as {_called(role)}; the columns are {listed(found)}.", argument=role
        )
    if found.count(name) > 1:
        raise InputError(
            f"Column {name!r} occurs {found.count(name)} times; the columns are {listed(found)}.", argument=role
        )


def _check_distinct(given: Mapping[str, str]) -> None:
    roles = list(given)
    for position, role in enumerate(roles):
        for other in roles[:position]:
            if given[role] == given[other]:
                problem = f"Column {given[role]!r} cannot be both {_called(other)} and {_called(role)}."
                raise InputError(problem, argument=role)


def _guess(role: str, candidates: Sequence[str], found: Sequence[str]) -> str | None:
    fitting = usually(role, candidates)
    if len(fitting) > 1 and len(set(fitting)) == 1:
        problem = f"Column {fitting[0]!r} occurs {len(fitting)} times; the columns are {listed(found)}; rename one."
        raise InputError(problem, argument=role)
    if len(fitting) > 1:
        raise InputError(
            f"Columns {listed(fitting)} among {listed(found)} could each be the {_called(role)}",
            argument=role,
            remedy="say which with",
        )
    if not fitting and role in _REQUIRED:
        problem = f"No column looks like the {_called(role)} among {listed(found)}"
        if any(name.strip().replace(".", "", 1).isdigit() for name in found):
            remedy = "if the first line holds data, name the columns with"
            raise InputError(problem, argument="columns", remedy=remedy)
        raise InputError(problem, argument=role, remedy="name it with")
    return fitting[0] if fitting else None


def listed(names: Sequence[str]) -> str:
    """Return the names, the first ones of very many."""
    shown = [shortened(name) for name in names[:_MOST_SHOWN]]
    more = [f"{len(names) - _MOST_SHOWN} more"] if len(names) > _MOST_SHOWN else []
    return ", ".join(shown + more) if names else "no columns"
