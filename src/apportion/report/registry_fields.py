"""The fields that the OpenDP deployment registry asks for, each with its tier. Records are checked against them.

This is a snapshot of field names, tiers and allowed values, in a form of our own. Its source is
schemas/deployments-schema.yaml of github.com/opendp/deployments-registry-data at commit
3e9c812a924cf01d228f26f6c462c59c391c3f2a (15 July 2026).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

SOURCE: Final = "github.com/opendp/deployments-registry-data"
COMMIT: Final = "3e9c812a924cf01d228f26f6c462c59c391c3f2a"
HIGHEST_TIER: Final = 3
SECTORS: Final = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")
PRODUCTS: Final = (
    "Summary statistics",
    "Machine learning model",
    "Dataset",
    "Synthetic data",
    "Interactive API",
    "SQL queries",
)
VARIANTS: Final = ("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom")
STATUSES: Final = (
    "Converted",
    "Draft",
    "Pending",
    "Changes Required",
    "Approved",
    "Approved (Update Requested)",
    "Approved (Pending)",
)


@dataclass(frozen=True)
class Field:
    """One field of a record.

    Attributes:
        tier: the lowest tier that asks for it.
        holds: what it holds: "text", "texts", "date" or "number".
        choices: the values that are allowed; any if empty.
        may_be_absent: whether a record of the highest tier may leave it out, because it does not apply to every record.
    """

    tier: int
    holds: str = "text"
    choices: tuple[Any, ...] = ()
    may_be_absent: bool = False


_TOP: Final = {
    "url_slug": Field(1),
    "status": Field(1, choices=STATUSES),
    "tier": Field(1, "number", (1, 2, 3)),
}
_BASIC: Final = {
    "name": Field(1),
    "data_curators": Field(1, "texts"),
    "intended_use": Field(1),
    "data_product_type": Field(1, choices=PRODUCTS),
    "data_product_region": Field(1),
    "description": Field(1),
    "publication_date": Field(1, "date"),
    "data_product_sector": Field(1, choices=SECTORS),
}
_PARAMETERS: Final = {
    "epsilon": Field(2, "number"),
    "delta": Field(2, "number", may_be_absent=True),
    "rho": Field(2, "number", may_be_absent=True),
}
_MODEL: Final = {
    "model_name": Field(2, choices=("Local", "Central", "Shuffle", "Federated", "Varies")),
    "model_name_details": Field(3),
    "actors": Field(3),
    "release_type": Field(2, choices=("One release", "Many releases")),
    "release_type_details": Field(3),
    "data_source_type": Field(2, choices=("Static", "Dynamic")),
    "data_source_type_details": Field(3),
    "access_type": Field(2, choices=("Interactive", "Non-interactive")),
    "access_type_details": Field(3),
}


def _under(place: str, fields: Mapping[str, Field]) -> dict[str, Field]:
    return {f"{place}.{name}": field for name, field in fields.items()}


FIELDS: Final[dict[str, Field]] = {
    **_TOP,
    **_under("deployment.basic", _BASIC),
    "deployment.dp_variant.variant_name": Field(2, choices=VARIANTS),
    "deployment.dp_variant.data_domain": Field(3),
    "deployment.dp_variant.unprotected_quantities": Field(3),
    "deployment.privacy_loss.privacy_unit": Field(2),
    "deployment.privacy_loss.privacy_unit_details": Field(3),
    **_under("deployment.privacy_loss.privacy_parameters", _PARAMETERS),
    "deployment.privacy_loss.privacy_parameters_details": Field(3),
    **_under("deployment.deployment_model", _MODEL),
    "deployment.accounting.post_processing": Field(3),
    "deployment.accounting.composition": Field(3),
    "deployment.implementation.preprocessing_and_hyperparameter_tuning": Field(3),
    "deployment.implementation.mechanisms": Field(3),
    "deployment.implementation.justification": Field(3),
    "deployment.administrative.sources": Field(1),
    "deployment.administrative.notes": Field(1),
    "deployment.administrative.registry_authors": Field(1, "texts"),
}
"""Every field by its path. A field for details that has no tier in the source counts as one of the highest tier."""


def problems_of(record: Mapping[str, Any]) -> list[str]:
    """Return what keeps a record from its tier, one sentence each; nothing for a complete and correct record.

    >>> problems_of({"url_slug": "a", "status": "Draft", "tier": 4})[0]
    'tier: 4 is not one of 1, 2, 3.'
    """
    held = dict(_leaves(record))
    tier: Any = record.get("tier")
    wanted: int = tier if tier in FIELDS["tier"].choices else HIGHEST_TIER
    found = [f"{path}: there is no such field." for path in held if path not in FIELDS]
    for path, field in FIELDS.items():
        if path in held:
            found += [f"{path}: {problem}" for problem in _wrong(held[path], field)]
        elif field.tier <= wanted and not field.may_be_absent:
            found.append(f"{path}: tier {wanted} asks for this field.")
    return found


def _leaves(record: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{place}{name}.")
        else:
            yield f"{place}{name}", value


def _wrong(value: Any, field: Field) -> Iterator[str]:
    if field.holds == "number":
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            yield f"{value!r} is not a number."
    elif field.holds == "texts":
        if not isinstance(value, list) or not value or not all(map(_is_text, value)):
            yield "it is not a list of texts."
    elif not _is_text(value):
        yield "it is empty, or not a text."
    elif field.holds == "date" and not _is_date(value):
        yield f"{value!r} is not a date in the form YYYY-MM-DD."
    if field.choices and value not in field.choices:
        yield f"{value!r} is not one of {', '.join(map(str, field.choices))}."


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_date(value: str) -> bool:
    try:
        return bool(re.fullmatch(r"\d{4}-\d{2}-\d{2}", value)) and bool(date.fromisoformat(value))
    except ValueError:
        return False
