"""Engines form sums over users: on processors, on a GPU or on a cluster, for users in memory or on disk."""

from apportion.engines.deferred import DeferredEngine
from apportion.engines.local import LocalEngine
from apportion.engines.on_disk import DiskEngine
from apportion.engines.on_torch import TorchEngine
from apportion.engines.processors import Processors
from apportion.engines.protocol import Engine, add_up_one
from apportion.engines.spark import SparkEngine

__all__ = [
    "DeferredEngine",
    "DiskEngine",
    "Engine",
    "LocalEngine",
    "Processors",
    "SparkEngine",
    "TorchEngine",
    "add_up_one",
]
