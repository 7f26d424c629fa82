"""Fits over clients that keep their rows: secure aggregation of whole numbers, and the engine that uses it."""

from apportion.federated.client import MaskingClient
from apportion.federated.elsewhere import DataElsewhere, UsersElsewhere
from apportion.federated.engine import (
    Clients,
    FederatedEngine,
    NoisyClientsEngine,
    Question,
    SimulatedClients,
    Trust,
)
from apportion.federated.graph import Degree, Graph, everybody, planned
from apportion.federated.messages import RefusedError, Stage, Terms, Total
from apportion.federated.passes import aggregated
from apportion.federated.server import MaskingServer
from apportion.federated.silos import PlainSilos, SilosEngine

__all__ = [
    "Clients",
    "DataElsewhere",
    "Degree",
    "FederatedEngine",
    "Graph",
    "MaskingClient",
    "MaskingServer",
    "NoisyClientsEngine",
    "PlainSilos",
    "Question",
    "RefusedError",
    "SilosEngine",
    "SimulatedClients",
    "Stage",
    "Terms",
    "Total",
    "Trust",
    "UsersElsewhere",
    "aggregated",
    "everybody",
    "planned",
]
