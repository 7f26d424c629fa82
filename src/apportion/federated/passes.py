"""One pass of secure aggregation among clients in this process: for simulations and tests.

Every message goes through the same state machines as between machines; only the way of the messages is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from apportion.federated.client import MaskingClient
from apportion.federated.masks import Numbers
from apportion.federated.messages import Confirmations, Masked, Stage, Terms, Total
from apportion.federated.server import MaskingServer

Part = Callable[[Numbers], Numbers]
"""Adds a mask to a client's numbers."""


def aggregated(
    terms: Terms,
    parts: Mapping[int, Part],
    leaving: Mapping[int, Stage] | None = None,
    identities: Mapping[int, bytes] | None = None,
) -> Total:
    """Run one pass and return its total.

    Args:
        terms: of the pass.
        parts: what adds a mask to the numbers of each client who takes part.
        leaving: clients who drop out, and the first stage in which they send nothing.
        identities: secret keys of clients, where the terms name identities.
    """
    server, secret = MaskingServer(terms), identities or {}
    clients = {each: MaskingClient(terms, each, secret.get(each)) for each in sorted(parts)}

    def staying(stage: Stage, asked: Mapping[int, object]) -> Iterator[int]:
        gone = leaving or {}
        return (each for each in asked if each in clients and gone.get(each, Stage.DONE) > stage)

    for each in staying(Stage.ADVERTISE, clients):
        server.take(clients[each].advertise())
    directories = server.directories()
    for each in staying(Stage.SHARE, directories):
        server.take(clients[each].share(directories[each]))
    deliveries = server.deliveries()
    for each in staying(Stage.MASK, deliveries):
        server.take(Masked(terms.run, each, parts[each](clients[each].mask(deliveries[each]))))
    survivors = server.survivors()
    asked = dict.fromkeys(survivors.clients)
    confirmed = {each: clients[each].confirm(survivors) for each in staying(Stage.CONFIRM, asked)}
    confirmations = Confirmations(terms.run, {})
    if terms.active:
        for message in confirmed.values():
            server.take(message)
        confirmations = server.confirmations()
    for each in staying(Stage.REVEAL, confirmed):
        server.take(clients[each].reveal(confirmations))
    return server.total()
