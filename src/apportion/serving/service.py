"""The service as an ASGI application: routes, limits, errors as one sentence of JSON.

It is plain ASGI, without a framework: there are five routes, and every byte that is kept, logged or sent back is
decided here. Internal errors are logged only by type and place, because a message may quote a request.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from apportion.recommend.model import ItemModel
from apportion.serving import figures, openapi
from apportion.serving.answers import Answers
from apportion.serving.batches import Batches
from apportion.serving.limits import Limits, Rate
from apportion.serving.logs import place_of
from apportion.serving.refusals import RefusedError
from apportion.serving.requests import Reader

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_JSON: Final = "application/json"
_PROBLEM: Final = "Something went wrong in the service; the request was not answered."
_PART_BYTES: Final = 1 << 16
_UNKNOWN_ROUTE: Final = "other"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Response:
    """What is sent back."""

    body: bytes
    status: int = 200
    content_type: str = _JSON
    headers: Mapping[str, str] = field(default_factory=dict)


class _GoneError(Exception):
    """The client disconnected before its request arrived."""


class Service:
    """An ASGI application that recommends items with a model; any ASGI server runs it.

    Args:
        model: the model.
        titles: titles of items by their ids, which answers then carry.
        limits: on requests; None for the defaults.
        page: an HTML page to serve at /, such as the explorer; None for a list of routes.

    Example:
        >>> from apportion.recommend import load
        >>> app = Service(load("model"))  # doctest: +SKIP
        >>> uvicorn.run(app)  # doctest: +SKIP
    """

    def __init__(
        self,
        model: ItemModel,
        *,
        titles: Mapping[int | str, str] | None = None,
        limits: Limits | None = None,
        page: str | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._reader = Reader(model, self._limits)
        self._batches = Batches(Answers(model, titles).solve, self._limits.waiting)
        self._rate = Rate(self._limits.rate)
        self._metrics = figures.Metrics()
        listed = openapi.document(model, self._limits, needs_values=self._reader.needs_values)
        self._pages = {
            "/health": _Response(_as_json(_health(model))),
            "/openapi.json": _Response(_as_json(listed)),
            "/": _Response(_as_json({"routes": list(listed["paths"])}))
            if page is None
            else _Response(page.encode("utf-8"), content_type="text/html; charset=utf-8"),
        }
        self._n_items = model.n_tasks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or the life of the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Nothing is to be done when the server starts or stops."""
        for step in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{step}.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        route = scope["path"] if scope["path"] in (*self._pages, "/recommend", "/metrics") else _UNKNOWN_ROUTE
        try:
            response = await self._response(route, scope, receive)
        except RefusedError as refused:
            response = _Response(_error(refused.sentence), refused.status, headers=refused.headers)
        except _GoneError:
            return
        except Exception as error:  # a bug, which must not show anybody's history in a log
            _log.error("%s %s failed: %s", scope["method"], route, place_of(error))
            response = _Response(_error(_PROBLEM), 500)
        self._metrics.observe(route, response.status, time.perf_counter() - began)
        await _send(response, send)

    async def _response(self, route: str, scope: Scope, receive: Receive) -> _Response:
        if route != "/health":
            self._refuse_too_often(scope)
        if route == _UNKNOWN_ROUTE:
            raise RefusedError(404, f"There is nothing here; the routes are {', '.join(self._routes)}.")
        wanted = ("POST",) if route == "/recommend" else ("GET", "HEAD")
        if scope["method"] not in wanted:
            allowed = ", ".join(wanted)
            raise RefusedError(405, f"{route} accepts {allowed}, got {scope['method'][:20]}.", {"allow": allowed})
        if route == "/recommend":
            asked = self._reader.read(await self._body(scope, receive))
            return _Response(await self._batches.answer(asked))
        return self._figures() if route == "/metrics" else self._pages[route]

    @property
    def _routes(self) -> list[str]:
        return ["/recommend", "/metrics", *self._pages]

    def _refuse_too_often(self, scope: Scope) -> None:
        seconds = self._rate.seconds_to_wait(scope["client"][0] if scope.get("client") else "")
        if seconds:
            sentence = f"More than {self._limits.rate:g} requests per second came from this address."
            raise RefusedError(429, sentence, {"retry-after": str(math.ceil(seconds))})

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """Return the body of a request, unless it is too large, too slow or of another type."""
        headers = {name: value for name, value in scope["headers"] if name in (b"content-type", b"content-length")}
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if kind != _JSON.encode():
            raise RefusedError(415, f"Expected a body of the type {_JSON}; state it in the header Content-Type.")
        if int(headers.get(b"content-length", b"0")) > self._limits.body_bytes:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._limits.seconds):
                return await self._read(receive)
        except TimeoutError:
            sentence = f"The body did not arrive within {self._limits.seconds:g} seconds."
            raise RefusedError(408, sentence, {"connection": "close"}) from None

    async def _read(self, receive: Receive) -> bytes:
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _GoneError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._limits.body_bytes:
                raise self._too_large()
            more = message.get("more_body", False)
        return b"".join(parts)

    def _too_large(self) -> RefusedError:
        sentence = f"Expected a body of at most {self._limits.body_bytes} bytes."
        return RefusedError(413, sentence, {"connection": "close"})

    def _figures(self) -> _Response:
        now = {"apportion_waiting_requests": self._batches.n_waiting, "apportion_model_items": self._n_items}
        return _Response(self._metrics.text(now).encode(), content_type=figures.CONTENT_TYPE)


def _health(model: ItemModel) -> dict[str, Any]:
    """Return what is served: its kind and size, and its guarantee."""
    about: dict[str, Any] = {"status": "ok", "kind": model.kind, "items": model.n_tasks}
    if model.statement is not None:
        statement = model.statement
        about |= {"epsilon": statement.epsilon, "delta": statement.delta, "releasable": statement.releasable}
    if model.categories is not None:
        about["categories"] = list(model.categories.groups)
    return about


def _error(sentence: str) -> bytes:
    return _as_json({"error": sentence})


def _as_json(content: Any) -> bytes:
    return json.dumps(content).encode("ascii")


async def _send(response: _Response, send: Send) -> None:
    headers = {
        "content-type": response.content_type,
        "content-length": str(len(response.body)),
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        **response.headers,
    }
    encoded = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": response.status, "headers": encoded})
    for place in range(0, len(response.body) or 1, _PART_BYTES):  # so that a slow reader holds little memory
        part, more = response.body[place : place + _PART_BYTES], place + _PART_BYTES < len(response.body)
        await send({"type": "http.response.body", "body": part, "more_body": more})
