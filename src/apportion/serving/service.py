"""The service as an ASGI application: routes, limits, errors as one sentence of JSON.

It is plain ASGI without a framework, because there are only five routes, and this module decides about every byte that
is kept, logged or sent back. Internal errors are logged only by type and place, because a message may quote a request.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping
from typing import Any, Final

from apportion.recommend.model import ItemModel
from apportion.serving import figures, openapi
from apportion.serving.answers import Answers
from apportion.serving.batches import Batches
from apportion.serving.bodies import JSON, GoneError, Receive, Response, Scope, Send, body_of, sent
from apportion.serving.limits import Limits, Rate
from apportion.serving.logs import place_of
from apportion.serving.refusals import RefusedError
from apportion.serving.requests import Reader

_PROBLEM: Final = "Something went wrong in the service; the request was not answered."
_UNKNOWN_ROUTE: Final = "other"
_log = logging.getLogger(__name__)


class Service:
    """An ASGI application that recommends items with a model; any ASGI server runs it.

    Args:
        model: the model.
        titles: titles of items by their ids; answers include them.
        limits: the limits on requests; None for the defaults.
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
            "/health": Response(_as_json(_health(model))),
            "/openapi.json": Response(_as_json(listed)),
            "/": Response(_as_json({"routes": list(listed["paths"])}))
            if page is None
            else Response(page.encode("utf-8"), content_type="text/html; charset=utf-8"),
        }
        self._n_items = model.n_tasks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or the lifespan of the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Confirm that the server starts and stops. Nothing has to be done then."""
        for step in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{step}.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        route = scope["path"] if scope["path"] in (*self._pages, "/recommend", "/metrics") else _UNKNOWN_ROUTE
        try:
            response = await self._response(route, scope, receive)
        except RefusedError as refused:
            response = Response(_error(refused.sentence), refused.status, headers=refused.headers)
        except GoneError:
            return
        except Exception as error:  # a bug; a log must never show anybody's history
            _log.error("%s %s failed: %s", scope["method"], route, place_of(error))
            response = Response(_error(_PROBLEM), 500)
        self._metrics.observe(route, response.status, time.perf_counter() - began)
        await sent(response, send)

    async def _response(self, route: str, scope: Scope, receive: Receive) -> Response:
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
            return Response(await self._batches.answer(asked))
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
        if kind != JSON.encode():
            raise RefusedError(415, f"Expected a body of the type {JSON}; state it in the header Content-Type.")
        return await body_of(receive, headers, self._limits.body_bytes, self._limits.seconds)

    def _figures(self) -> Response:
        now = {"apportion_waiting_requests": self._batches.n_waiting, "apportion_model_items": self._n_items}
        return Response(self._metrics.text(now).encode(), content_type=figures.CONTENT_TYPE)


def _health(model: ItemModel) -> dict[str, Any]:
    """Return what is served: the kind and size of the model, and its guarantee."""
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
