"""The OpenAPI document of a service: the fields of a request, with the limits and categories of its model."""

from __future__ import annotations

from typing import Any

from apportion import __version__
from apportion.recommend.model import ItemModel
from apportion.serving.limits import Limits
from apportion.serving.requests import DEFAULT_K

_WORDS_LISTED = 200  # limit of listed words of a category; longer categories are described as text


def document(model: ItemModel, limits: Limits, *, needs_values: bool) -> dict[str, Any]:
    """Return the document, ready for JSON."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "apportion serve",
            "version": __version__,
            "description": "Recommendations from a history. Histories are neither stored nor logged.",
        },
        "paths": {
            "/recommend": {"post": _recommend()},
            "/health": {"get": _get("What is served, and whether it runs.", "application/json")},
            "/metrics": {"get": _get("Counts and times for Prometheus.", "text/plain")},
            "/openapi.json": {"get": _get("This document.", "application/json")},
        },
        "components": {"schemas": _schemas(model, limits, needs_values)},
    }


def _recommend() -> dict[str, Any]:
    wrong = {
        "400": "The body is not JSON.",
        "408": "The body arrived too slowly.",
        "413": "The body is too large.",
        "415": "The Content-Type is not JSON.",
        "422": "A field is missing, unknown or of the wrong type.",
        "429": "Too many requests from this address; see Retry-After.",
        "503": "Too many requests are waiting; see Retry-After.",
    }
    return {
        "summary": "The best items for a history; items of the history are left out.",
        "requestBody": {"required": True, "content": _json_of("Request")},
        "responses": {
            "200": {"description": "The items, best first.", "content": _json_of("Answer")},
            **{status: {"description": words, "content": _json_of("Error")} for status, words in wrong.items()},
        },
    }


def _get(words: str, content: str) -> dict[str, Any]:
    return {"summary": words, "responses": {"200": {"description": words, "content": {content: {}}}}}


def _json_of(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _schemas(model: ItemModel, limits: Limits, needs_values: bool) -> dict[str, Any]:
    item = {"type": "string" if model.task_ids.holds_text else "integer"}
    low, high = model.value_range
    value = {
        "type": "number",
        "description": f"On the scale from {low:g} to {high:g}; values outside are clipped.",
    }
    entry = {
        "type": "object",
        "required": ["item", "value"] if needs_values else ["item"],
        "properties": {"item": item, "value": value if needs_values else {"type": "number"}},
        "additionalProperties": False,
    }
    return {
        "Request": {
            "type": "object",
            "required": ["history"],
            "additionalProperties": False,
            "properties": {
                "history": {
                    "type": "array",
                    "minItems": 1,
                    "items": entry if needs_values else {"anyOf": [item, entry]},
                },
                "k": {"type": "integer", "minimum": 1, "maximum": limits.most_items, "default": DEFAULT_K},
                "allow": {"type": "array", "items": item, "description": "Recommend only these items."},
                "deny": {"type": "array", "items": item, "description": "Recommend none of these items."},
                **_of_categories(model),
            },
        },
        "Answer": {
            "type": "object",
            "required": ["items", "known", "unknown"],
            "properties": {
                "items": {"type": "array", "items": _recommended(item)},
                "known": {"type": "integer", "description": "Items of the history that the model knows."},
                "unknown": {"type": "integer", "description": "Entries of the history that it does not know."},
            },
        },
        "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}},
    }


def _recommended(item: dict[str, str]) -> dict[str, Any]:
    fields = {"item": item, "title": {"type": "string"}, "score": {"type": "number"}}
    return {"type": "object", "required": ["item", "score"], "properties": fields}


def _of_categories(model: ItemModel) -> dict[str, Any]:
    if model.categories is None:
        return {}
    words = {
        name: {
            "type": "array",
            "minItems": 1,
            "items": {"type": "string", **({"enum": list(known)} if len(known) <= _WORDS_LISTED else {})},
        }
        for name, known in model.categories.groups.items()
    }
    caps = {name: {"type": "integer", "minimum": 1} for name in words}
    return {
        "categories": {
            "type": "object",
            "properties": words,
            "additionalProperties": False,
            "description": "Recommend only items that have one of the words of every named category.",
        },
        "caps": {
            "type": "object",
            "properties": caps,
            "additionalProperties": False,
            "description": "How many items of the answer may share a word of a category.",
        },
    }
