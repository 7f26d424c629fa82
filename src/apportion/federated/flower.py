"""Flower carries the letters: a post over its grid, and the two apps (extra `federated`).

Flower is imported when an app is made, with its telemetry off. It sees letters as bytes. Masks, noise and accounting
are this library's own.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from apportion.errors import ApportionError, InputError
from apportion.federated.desk import Desk

_LOG = logging.getLogger(__name__)
_RECORD: Final = "letter"
_FIELD: Final = "bytes"
_WAIT: Final = 0.5  # seconds between looks at who has connected

ServerMain = Callable[[Any, Mapping[str, Any]], None]
"""Runs a fit over a grid, with the run's configuration."""

OpenDesk = Callable[[Mapping[str, Any]], AbstractContextManager[Desk]]
"""Opens the desk of a node from its configuration, for one letter, and keeps its state afterwards."""


class FlowerPost:
    """Brings letters to the nodes of a Flower grid.

    Args:
        grid: of the run.
        nodes: ids of the nodes, by position.
        timeout: seconds to wait for answers.
    """

    def __init__(self, grid: Any, nodes: Sequence[int], timeout: float) -> None:
        self._grid = grid
        self._nodes = list(nodes)
        self._timeout = timeout

    def exchanged(self, letters: Mapping[int, bytes]) -> dict[int, bytes]:
        """Deliver letters, and return the answers that came in time; errors of nodes count as silence."""
        flwr = required()
        messages = [
            flwr.Message(
                content=flwr.RecordDict({_RECORD: flwr.ConfigRecord({_FIELD: letter})}),
                message_type="query",
                dst_node_id=self._nodes[position],
            )
            for position, letter in letters.items()
        ]
        answers = {}
        for reply in self._grid.send_and_receive(messages, timeout=self._timeout):
            position = self._nodes.index(reply.metadata.src_node_id)
            if reply.has_error():
                _LOG.warning("Client %d refused: %s", position, reply.error.reason)
            else:
                answers[position] = bytes(reply.content[_RECORD][_FIELD])
        return answers


def connected(grid: Any, n_clients: int, timeout: float) -> list[int]:
    """Wait until so many nodes are connected; return their ids in order. More than that is refused."""
    until = time.monotonic() + timeout
    while True:
        nodes = sorted(grid.get_node_ids())
        if len(nodes) >= n_clients or time.monotonic() > until:
            break
        time.sleep(_WAIT)
    if len(nodes) != n_clients:
        raise InputError(f"Expected {n_clients} clients to be connected, got {len(nodes)}.", argument="n_clients")
    return nodes


def server_app(main: ServerMain) -> Any:
    """Return a Flower ServerApp that runs a fit."""
    required()
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator, unused-ignore]
    def run(grid: Any, context: Any) -> None:
        main(grid, dict(context.run_config))

    return app


def client_app(open_desk: OpenDesk) -> Any:
    """Return a Flower ClientApp that answers letters.

    Args:
        open_desk: opens the desk of a node. Its state is kept before an answer leaves, so that nothing leaves that is
            not written down.
    """
    flwr = required()
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.query()  # type: ignore[untyped-decorator, unused-ignore]
    def answer(message: Any, context: Any) -> Any:
        try:
            with open_desk(dict(context.node_config)) as desk:
                reply = desk.answered(bytes(message.content[_RECORD][_FIELD]))
        except ApportionError as problem:
            _LOG.warning("Refused: %s", problem)
            error = flwr.Error(code=0, reason=type(problem).__name__)  # the sentence may quote private values
            return flwr.Message(error, reply_to=message)
        return flwr.Message(flwr.RecordDict({_RECORD: flwr.ConfigRecord({_FIELD: reply})}), reply_to=message)

    return app


def required() -> Any:
    """Return Flower's app package, without telemetry; refuse in one sentence where it is missing."""
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
    try:
        import flwr.app
    except ImportError:
        raise InputError("A federation needs Flower: pip install 'apportion[federated]'.", argument=None) from None
    return flwr.app
