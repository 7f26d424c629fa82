"""A privacy card as a record of the OpenDP deployment registry, at the registry's highest tier.

A record is made from the card and from what only the deployer knows (`Deployment`). It states μ first, then ε and δ
with the trade-off curve, and all releases as one event of dp_accounting. It is written as YAML, as the registry
requires.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any, Final

from apportion.errors import InputError
from apportion.privacy.statement import SEEDED, Tuning
from apportion.report.registry_fields import HIGHEST_TIER, problems_of
from apportion.report.registry_loss import dp_event, loss_in_words

_STATISTICS: Final = ("mean", "quantiles")
_MODELS: Final = {
    "central": ("Central", "The curator holds the raw rows and adds noise to sums over them before anything leaves."),
    "federated": (
        "Federated",
        "Raw rows stay where they are; sums over them are added up under a mask, and noise is added to the sums.",
    ),
}
_SOURCES: Final = {
    "static": ("Static", "The rows were fixed when the data product was made."),
    "dynamic": ("Dynamic", "Rows keep arriving; this record covers those of the time window."),
}
_TUNED: Final = {
    Tuning.DEFAULTS: "They cost nothing: they were fixed before these data were seen.",
    Tuning.DECLARED: "Settings were given by hand. What was learned from data to choose them is not covered by ε.",
    Tuning.SELECTION: "Settings were chosen by private selection, and ε includes what that cost.",
}


@dataclass(frozen=True)
class Deployment:
    """What only the deployer knows. A record of the highest tier needs all of it.

    Attributes:
        name: the name of the data product.
        curators: organisations that publish it.
        description: what the product is.
        intended_use: what it is for.
        region: the region that the data describe, or whose law applies.
        sector: one of the registry's sectors.
        published: date of publication, YYYY-MM-DD.
        data: what the rows are, and whose.
        releases: "one" or "many" publications.
        later: what else will be published from these data, or how the budget is renewed.
        refreshed: "static" or "dynamic" data.
        exploration: what was looked at in the raw data beforehand.
        security: how raw data and machine are protected.
        reason: why these ε, δ and settings were chosen.
        contact: whom to ask.
        sources: papers, pages, or the place of the product.
        authors: the authors of the record.
        trust: "central" or "federated".
    """

    name: str = ""
    curators: tuple[str, ...] = ()
    description: str = ""
    intended_use: str = ""
    region: str = ""
    sector: str = ""
    published: str = ""
    data: str = ""
    releases: str = ""
    later: str = ""
    refreshed: str = ""
    exploration: str = ""
    security: str = ""
    reason: str = ""
    contact: str = ""
    sources: tuple[str, ...] = ()
    authors: tuple[str, ...] = ()
    trust: str = "central"

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the fields that were not given."""
        return tuple(each.name for each in fields(self) if not getattr(self, each.name))


def registry_record(card: Mapping[str, Any], deployment: Deployment) -> dict[str, Any]:
    """Return the record as plain data. Refuse a card that promises nothing, and a deployment with gaps.

    Args:
        card: as `privacy_card` returns it.
        deployment: what only the deployer knows.
    """
    if not card["releasable"]:
        raise InputError(f"There is nothing to register: this is NOT FOR RELEASE. {SEEDED}", argument=None)
    if deployment.missing:
        raise InputError(
            f"A registry record needs facts that no statement holds; missing: {', '.join(deployment.missing)}.",
            argument=None,
        )
    record = {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", deployment.name.lower()).strip("-") or "record",
        "status": "Draft",
        "tier": HIGHEST_TIER,
        "deployment": {
            "basic": _basic(card, deployment),
            "dp_variant": _variant(card, deployment),
            "privacy_loss": _loss(card),
            "deployment_model": _model(card, deployment),
            "accounting": _accounting(card),
            "implementation": _implementation(card, deployment),
            "administrative": _administrative(card, deployment),
        },
    }
    if problems := problems_of(record):
        raise InputError(f"The record does not fit the registry: {problems[0]}", argument=None)
    return record


def record_yaml(record: Mapping[str, Any]) -> str:
    """Return a record as a YAML document.

    >>> print(record_yaml({"name": "a: b", "delta": 1e-06, "authors": ["c"]}), end="")
    name: "a: b"
    delta: 1.0e-06
    authors:
      - "c"
    """
    return "\n".join(_lines(record, "")) + "\n"


def _basic(card: Mapping[str, Any], given: Deployment) -> dict[str, Any]:
    purposes = {release["purpose"] for release in card["releases"]}
    return {
        "name": given.name,
        "data_curators": list(given.curators),
        "intended_use": given.intended_use,
        "data_product_type": "Summary statistics" if purposes & set(_STATISTICS) else "Machine learning model",
        "data_product_region": given.region,
        "description": given.description,
        "publication_date": given.published,
        "data_product_sector": given.sector,
    }


def _variant(card: Mapping[str, Any], given: Deployment) -> dict[str, str]:
    guarantee, public = card["guarantee"], card["assumptions"]["public"]
    unprotected = [f"- not protected: {each}" for each in guarantee["not_protected"]]
    unprotected += [f"- taken to be public: {each}" for each in public]
    return {
        "variant_name": "Approximate DP" if guarantee["delta"] > 0 else "Pure DP",
        "data_domain": f"{_sentence(given.data)} Time window: {guarantee['window']}. "
        "The guarantee holds for all data sets of this form that agree on what is taken to be public.",
        "unprotected_quantities": "\n".join(unprotected) or "None: nothing was taken to be public.",
    }


def _loss(card: Mapping[str, Any]) -> dict[str, Any]:
    guarantee = card["guarantee"]
    parameters = {"epsilon": guarantee["epsilon"]} | ({"delta": guarantee["delta"]} if guarantee["delta"] else {})
    return {
        "privacy_unit": guarantee["unit"],
        "privacy_unit_details": f"Adjacent data sets differ in this way: {guarantee['neighbours']['relation']}. "
        "A unit is whatever has one id in the data: a person with two ids is two units. What one unit adds to each "
        "release is bounded before noise is added; the bounds are listed under mechanisms.",
        "privacy_parameters": parameters,
        "privacy_parameters_details": "\n\n".join(
            (loss_in_words(card), f"The releases as one event of dp_accounting: `{json.dumps(dp_event(card))}`")
        ),
    }


def _model(card: Mapping[str, Any], given: Deployment) -> dict[str, str]:
    (name, name_details), (source, source_details) = _MODELS[given.trust], _SOURCES[given.refreshed]
    return {
        "model_name": name,
        "model_name_details": name_details,
        "actors": _actors(card, given),
        "release_type": {"one": "One release", "many": "Many releases"}[given.releases],
        "release_type_details": f"{_sentence(given.later)} {_charged(card)}",
        "data_source_type": source,
        "data_source_type_details": f"{source_details} Time window: {card['guarantee']['window']}.",
        "access_type": "Non-interactive",
        "access_type_details": "Readers get the data product as it is. It answers no query on the raw data.",
    }


def _actors(card: Mapping[str, Any], given: Deployment) -> str:
    who = ", ".join(given.curators)
    lines = [f"- Curator ({who}): trusted with the raw rows, the machine and its random numbers."]
    if "task" in card["guarantee"]["neighbours"]["key"]:
        lines.append(
            "- Parties: each is trusted with its own rows and gets its own model. All other parties together are not "
            "trusted: they see only what is shared."
        )
    lines.append(
        "- Readers of the data product: not trusted. They may know everything except the rows of one unit, and all "
        "settings, and may compute with the product what they like."
    )
    return "\n".join(lines)


def _charged(card: Mapping[str, Any]) -> str:
    if card["ledger"] is None:
        return "No ledger was charged, so no program counts further releases from these data."
    kept = card["ledger"]
    return f"Charged to account {kept['account']!r} of a ledger, run {kept['run']}; it refuses more than its budget."


def _accounting(card: Mapping[str, Any]) -> dict[str, str]:
    many = len(card["releases"])
    return {
        "post_processing": "All of the data product is computed from the releases and from public values, and nothing "
        "else. Estimates, shrinkage, solved equations and pages are post-processing.",
        "composition": f"{many} release{'s' * (many != 1)}, composed: {_composed(card)}",
    }


def _composed(card: Mapping[str, Any]) -> str:
    if card["tuning"]["selection"] is not None:
        return "one try by adding up its squared Gaussian-DP μ, the selection among tries by Rényi DP."
    if card["guarantee"]["delta"] == card["guarantee"]["keys_delta"]:
        return "the ε of pure releases add up."
    if card["spent"]["mu"] is None:
        return "numerically, by privacy loss distributions; every parameter was fixed beforehand."
    return "squares of Gaussian-DP μ add up, and ε and δ follow from the exact profile."


def _implementation(card: Mapping[str, Any], given: Deployment) -> dict[str, str]:
    tuning = card["tuning"]
    return {
        "preprocessing_and_hyperparameter_tuning": f"Before the releases: {_sentence(given.exploration)} Settings: "
        f"{_sentence(tuning['words'])} {_TUNED[Tuning(tuning['kind'])]}",
        "mechanisms": "\n".join(
            (
                *_mechanisms(card["releases"]),
                f"- Implementation: apportion {card['software']['version']}.",
                f"- Random numbers: {card['noise']}.",
                f"- Arithmetic: {card['assumptions']['arithmetic']}",
                "- Time and memory of the run are not protected; readers do not see them.",
                f"- Security of the raw data: {_sentence(given.security)}",
            )
        ),
        "justification": f"{_sentence(given.reason)} Sensitivities are derived from the clipping that was done, and "
        "every release was charged before its noise was drawn.",
    }


def _mechanisms(releases: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield one line for each run of releases that are alike."""
    for words, alike in groupby(releases, _in_words):
        many = len(list(alike))
        yield f"- {many} of: {words}" if many > 1 else f"- {words}"


def _in_words(release: Mapping[str, Any]) -> str:
    size = " x ".join(map(str, release["shape"])) or "one number"
    return (
        f"{release['purpose']} ({size}): {release['mechanism']['words']}, sensitivity {release['sensitivity']:.6g} "
        f"({release['because']}), noise {release['noise_stddev']:.6g}."
    )


def _administrative(card: Mapping[str, Any], given: Deployment) -> dict[str, Any]:
    return {
        "sources": "\n".join(f"- {each}" for each in given.sources),
        "notes": f"Contact: {given.contact}. Made from the privacy statement with SHA-256 {card['statement_sha256']}.",
        "registry_authors": list(given.authors),
    }


def _sentence(words: str) -> str:
    """Return the words with a full stop at the end, unless they already end like a sentence."""
    return words if words.endswith((".", "!", "?")) else f"{words}."


def _lines(part: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, value in part.items():
        if isinstance(value, Mapping):
            yield f"{indent}{name}:"
            yield from _lines(value, indent + "  ")
        elif isinstance(value, list):
            yield f"{indent}{name}:"
            yield from (f"{indent}  - {_scalar(each)}" for each in value)
        elif isinstance(value, str) and "\n" in value:
            yield f"{indent}{name}: |-"
            yield from (f"{indent}  {line}" if line else "" for line in value.split("\n"))
        else:
            yield f"{indent}{name}: {_scalar(value)}"


def _scalar(value: Any) -> str:
    """Return one value as YAML 1.1, in which a number with an exponent must have a decimal point."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return re.sub(r"^(-?\d+)e", r"\1.0e", text) if isinstance(value, float) else text
