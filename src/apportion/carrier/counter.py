"""The counter of a server where clients ask for letters and hand in answers: an ASGI application with two routes.

POST /letter waits a while for the letter of the client whose ticket it is, and returns it; POST /answer takes the
answer to one open letter, once. Whoever has no good ticket is refused before any body is read. Letters and answers are
bytes here.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from apportion.carrier.limits import CarrierLimits, network_of
from apportion.carrier.tickets import Ticket, TicketOffice, digest_of
from apportion.serving.bodies import GoneError, Receive, Response, Scope, Send, body_of, sent
from apportion.serving.limits import Rate
from apportion.serving.logs import place_of
from apportion.serving.refusals import RefusedError
from apportion.transport.conditions import Conditions

LETTER, ANSWER = "/letter", "/answer"
NUMBER, SESSION, COUNT = "apportion-letter", "apportion-session", "apportion-count"
KNOWN: Final = "known"  # in the state of a connection: what is told whose good ticket came on it
_BYTES: Final = "application/octet-stream"
_CLOSE: Final = {"connection": "close"}
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Letter:
    """A letter that its client has not answered yet."""

    number: int
    content: bytes
    most: int
    answer: asyncio.Future[bytes]
    reading: asyncio.Future[bytes] | None = None


@dataclass(eq=False)
class _Place:
    """What is kept for one client: its open letter, and the request that waits for one."""

    seen: bool = False
    letter: _Letter | None = None
    waiting: asyncio.Event = field(default_factory=asyncio.Event)

    def woken(self) -> asyncio.Event:
        """End the wait of an older request; return what a new one waits for."""
        self.waiting.set()
        self.waiting = asyncio.Event()
        return self.waiting

    def take(self, letter: _Letter | None) -> None:
        """Open a letter, or close the one that is open."""
        self.letter = letter
        self.waiting.set()


class Counter:
    """An ASGI application that hands out letters and takes answers.

    Args:
        conditions: with the keys of all clients and of the server.
        limits: on requests.
    """

    def __init__(self, conditions: Conditions, limits: CarrierLimits) -> None:
        self._office = TicketOffice(conditions)
        self._places = [_Place() for _ in conditions.roster]
        self._limits = limits
        self._addresses, self._clients = Rate(limits.rate), Rate(limits.client_rate)
        self._numbers = itertools.count(1)
        self._last_words: Mapping[str, str] = {}

    @property
    def present(self) -> int:
        """How many clients have asked for letters."""
        return sum(place.seen for place in self._places)

    async def exchanged(self, by_position: Mapping[int, bytes], most: int, seconds: float) -> dict[int, bytes]:
        """Open letters for clients who have been here, and return the answers that come in time.

        Args:
            by_position: letters.
            most: bytes of an answer.
            seconds: to wait for answers.
        """
        there = {each: letter for each, letter in by_position.items() if self._places[each].seen}
        loop = asyncio.get_running_loop()
        opened = {
            each: _Letter(next(self._numbers), content, most, loop.create_future()) for each, content in there.items()
        }
        for each, letter in opened.items():
            self._places[each].take(letter)
        if opened:
            await asyncio.wait([letter.answer for letter in opened.values()], timeout=seconds)
        for each in opened:
            self._places[each].take(None)
        answers = {each: letter.answer for each, letter in opened.items()}
        return {each: came.result() for each, came in answers.items() if came.done() and not came.cancelled()}

    def close(self) -> None:
        """End all waits, of clients for letters and of a pass for answers, and the connections of the former."""
        self._last_words = _CLOSE
        for place in self._places:
            if place.letter is not None:
                place.letter.answer.cancel()
            place.take(None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            return
        try:
            response = await self._response(scope, receive)
        except RefusedError as refused:
            response = Response(b"", refused.status, _BYTES, {**_CLOSE, **refused.headers})
        except GoneError:
            return
        except Exception as error:  # a bug; its message may hold what a client sent
            _log.error("A request failed: %s", place_of(error))
            response = Response(b"", 500, _BYTES, _CLOSE)
        await sent(response, send)

    async def _response(self, scope: Scope, receive: Receive) -> Response:
        """Answer a request. Requests without a good ticket count for their address, others for their client."""
        try:
            ticket, headers = self._admitted(scope)
        except RefusedError:
            _refuse_too_often(self._addresses, network_of(scope["client"][0] if scope.get("client") else ""))
            raise
        scope["state"][KNOWN](ticket.position)
        _refuse_too_often(self._clients, str(ticket.position))
        if scope["path"] == LETTER:
            return await self._handed_out(ticket)
        await self._handed_in(ticket, receive, headers)
        return Response(b"", 204, _BYTES)

    def _admitted(self, scope: Scope) -> tuple[Ticket, dict[bytes, bytes]]:
        """Return the ticket of a request and its headers, or refuse it."""
        route = scope["path"]
        if route not in (LETTER, ANSWER) or scope["raw_path"] != route.encode() or scope["query_string"]:
            raise RefusedError(404, "unknown route")
        if scope["method"] != "POST":
            raise RefusedError(405, "not a POST", {"allow": "POST"})
        headers = _headers(scope)
        session = {SESSION: self._office.session.hex()}
        ticket = self._office.read(route, headers.get(b"authorization", b""))
        if ticket is None:
            raise RefusedError(401, "no good ticket", session)
        if not self._office.admits(ticket):
            raise RefusedError(401, "a count that was used", {**session, COUNT: str(self._office.last(ticket))})
        return ticket, headers

    async def _handed_out(self, ticket: Ticket) -> Response:
        """Return the client's open letter; wait a while if there is none."""
        place = self._places[ticket.position]
        place.seen = True
        waiting = place.woken()
        if place.letter is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(waiting.wait(), self._limits.wait)
        if place.letter is None:
            return Response(b"", 204, _BYTES, self._last_words)
        return Response(place.letter.content, 200, _BYTES, {NUMBER: str(place.letter.number)})

    async def _handed_in(self, ticket: Ticket, receive: Receive, headers: Mapping[bytes, bytes]) -> None:
        """Take the answer to the letter that is open for the client, and to no other. A newer try ends an older one."""
        place = self._places[ticket.position]
        letter = place.letter
        if letter is None or letter.number != ticket.letter:
            raise RefusedError(409, "no such letter is open")
        if letter.reading is not None:
            letter.reading.cancel()
        letter.reading = reading = asyncio.ensure_future(body_of(receive, headers, letter.most, self._limits.body))
        try:
            body = await reading
        except asyncio.CancelledError:
            raise RefusedError(409, "a newer answer came") from None
        if digest_of(body) != ticket.digest:
            raise RefusedError(400, "another body than the ticket's")
        if place.letter is not letter:
            raise RefusedError(409, "the letter was closed meanwhile")
        place.take(None)
        letter.answer.set_result(body)


def _headers(scope: Scope) -> dict[bytes, bytes]:
    """Return the two headers that count; refuse one that comes twice."""
    wanted = [each for each in scope["headers"] if each[0] in (b"authorization", b"content-length")]
    if len({name for name, _ in wanted}) != len(wanted):
        raise RefusedError(400, "a header that comes twice")
    return dict(wanted)


def _refuse_too_often(rate: Rate, who: str) -> None:
    seconds = rate.seconds_to_wait(who)
    if seconds:
        raise RefusedError(429, "too many requests", {"retry-after": str(math.ceil(seconds))})
