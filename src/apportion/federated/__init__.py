"""Fits over clients that keep their rows: secure aggregation of whole numbers, and the engine that uses it."""

from apportion.federated.client import MaskingClient
from apportion.federated.graph import Degree, Graph, everybody, planned
from apportion.federated.messages import RefusedError, Stage, Terms, Total
from apportion.federated.passes import aggregated
from apportion.federated.server import MaskingServer

__all__ = [
    "Degree",
    "Graph",
    "MaskingClient",
    "MaskingServer",
    "RefusedError",
    "Stage",
    "Terms",
    "Total",
    "aggregated",
    "everybody",
    "planned",
]
