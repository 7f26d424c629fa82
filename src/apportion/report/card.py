"""The privacy card: the guarantee as one JSON document for machines, and a page for people.

A card is made from a statement and, if private selection chose the settings, from its cost. Its format is
docs/privacy-card.schema.json.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from apportion.errors import InputError, require_format
from apportion.privacy.budget import Budget
from apportion.privacy.neighbours import relation_of
from apportion.privacy.statement import SEEDED, Release, Statement, Tuning
from apportion.recommend.storage import CARD
from apportion.report.rendering import render
from apportion.report.wording import best_guess_of, best_guess_of_pair, whole

FORMAT: Final = 3
STATEMENT_FILE: Final = "statement.json"


def privacy_card(statement: Statement, selection: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the card as plain data, ready for JSON.

    Args:
        statement: the guarantee, including tuning if it was paid for.
        selection: the cost of private selection, from `evaluation.tuning.Tuned.selection`; None if it was not used.
    """
    if selection is not None:
        _refuse_unless_paid(statement, selection)
    return {
        "format": FORMAT,
        "document": "privacy card",
        "software": {"name": "apportion", "version": statement.version},
        "releasable": statement.releasable,
        "guarantee": {
            "epsilon": statement.epsilon,
            "delta": statement.delta,
            "keys_delta": statement.keys_delta,
            "not_protected": list(statement.unprotected),
            "unit": statement.unit,
            "neighbours": {"key": statement.neighbours.key, "relation": statement.neighbours.relation},
            "window": statement.window,
        },
        "spent": {"epsilon": statement.spent_epsilon, "mu": statement.spent_mu},
        "tuning": _tuning(statement, selection),
        "releases": [_release(release) for release in statement.releases],
        "assumptions": {"public": [*statement.public, *statement.rules], "arithmetic": statement.arithmetic},
        "noise": statement.noise,
        "ledger": None if statement.ledger is None else asdict(statement.ledger),
        "statement_sha256": _digest(statement),
    }


def card_json(card: Mapping[str, Any]) -> str:
    """Return the text of the card's file."""
    return json.dumps(card, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def card_page(card: Mapping[str, Any]) -> str:
    """Return the page of a card, as self-contained HTML."""
    guarantee, spent = card["guarantee"], card["spent"]
    neighbours = relation_of(unit=guarantee["unit"], **guarantee["neighbours"])
    return render(
        "card.html",
        card=card,
        guarantee=guarantee,
        tuning=card["tuning"],
        best_guess=_best_guess(guarantee["epsilon"], guarantee["delta"], guarantee["keys_delta"], spent["mu"]),
        one_in="" if guarantee["delta"] == 0 else f"one in {whole(1 / guarantee['delta'])}",
        unit=neighbours.one.capitalize(),
        warning=neighbours.warning,
        not_releasable=SEEDED,
        with_tuning=_with_tuning(card["tuning"]),
        in_full=card_json(card),
    )


def read_card(path: Path) -> dict[str, Any]:
    """Make the card of a model folder, of a statement's file, or of what a command printed with --json.

    The cost of private selection is taken from the card beside the statement, if that card belongs to the statement.
    """
    source = path / STATEMENT_FILE if path.is_dir() else path
    if not source.is_file():
        raise InputError(f"There is no privacy statement at {str(source)!r}.", argument=None)
    try:
        statement = Statement.from_json(_statement_in(source.read_text(encoding="utf-8")))
    except InputError as problem:
        raise InputError(f"The file {str(source)!r} cannot be used: {problem}", argument=None) from None
    except (ValueError, KeyError, TypeError, AttributeError) as damage:
        no_json = isinstance(damage, json.JSONDecodeError | UnicodeDecodeError)
        why = "it is not JSON" if no_json else f"it lacks {damage}" if isinstance(damage, KeyError) else ""
        said = f"The file {str(source)!r} does not hold a privacy statement{why and ': '}{why}."
        raise InputError(said, argument=None) from damage
    return privacy_card(statement, _stored_selection(source.parent / CARD, statement))


def _statement_in(text: str) -> str:
    """Return the statement within what a command printed as JSON; a statement itself is unchanged."""
    held = json.loads(text)
    return json.dumps(held["statement"]) if isinstance(held, dict) and "statement" in held else text


def _stored_selection(path: Path, statement: Statement) -> Mapping[str, Any] | None:
    if not path.is_file():
        return None
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        require_format(f"The privacy card at {str(path)!r}", stored.get("format"), FORMAT)
        same, selection = stored["statement_sha256"] == _digest(statement), stored["tuning"]["selection"]
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as damage:
        raise InputError(
            f"The privacy card at {str(path)!r} is damaged: {type(damage).__name__}.", argument=None
        ) from damage
    if not same:
        raise InputError(
            f"The privacy card at {str(path)!r} does not belong to the statement beside it.", argument=None
        )
    return None if selection is None else dict(selection)


def _tuning(statement: Statement, selection: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return ε without and with the choice of settings. If the choice was not paid for, the latter is unknown."""
    kind = statement.tuning_kind if selection is None else Tuning.SELECTION
    without = statement.epsilon if selection is None else selection["one_try"]["epsilon"]
    return {
        "kind": kind.value,
        "words": statement.tuning,
        "epsilon_without": without,
        "epsilon_with": None if kind is Tuning.DECLARED else statement.epsilon,
        "delta": statement.delta,
        "selection": None if selection is None else dict(selection),
    }


def _refuse_unless_paid(statement: Statement, selection: Mapping[str, Any]) -> None:
    epsilon, delta = selection["epsilon"], selection["delta"]
    if epsilon > statement.epsilon or delta > statement.delta:
        raise InputError(
            f"Expected a statement that covers a selection of epsilon {epsilon:g} at delta {delta:g}, got one of "
            f"{statement.epsilon:g} at {statement.delta:g}.",
            argument=None,
        )


def _release(release: Release) -> dict[str, Any]:
    return {
        "name": release.name,
        "purpose": release.purpose.key,
        "stage": release.stage.as_dict(),
        "mechanism": {"key": release.mechanism, "words": release.mechanism_words},
        "shape": list(release.shape),
        "share": release.share,
        "mu": release.mu,
        "epsilon": release.epsilon,
        "sensitivity": release.sensitivity,
        "because": release.derivation,
        "noise_stddev": release.stddev,
        "keys_delta": release.delta,
        "threshold": release.threshold,
    }


def _digest(statement: Statement) -> str:
    return hashlib.sha256(statement.to_json().encode()).hexdigest()


def _best_guess(epsilon: float, delta: float, keys_delta: float, mu: float | None) -> float:
    """Return how often an attacker can guess a fair coin right: by μ if all releases have one, otherwise by (ε, δ)."""
    if delta > 0 and mu is not None:
        return best_guess_of(Budget(epsilon, delta, keys_delta).mu, keys_delta)
    return best_guess_of_pair(epsilon, delta)


def _with_tuning(tuning: Mapping[str, Any]) -> str:
    """Return what the page says about ε with tuning."""
    if Tuning(tuning["kind"]) is Tuning.DECLARED:
        return "Not known: how settings were chosen is declared, but was not paid for."
    if Tuning(tuning["kind"]) is Tuning.SELECTION:
        return "The cost of the search for settings is included."
    return "The same: settings are the library’s defaults, chosen before these data."
