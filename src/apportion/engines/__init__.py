"""Engines form sums over users: on this machine's processors, on its GPU, or on a cluster."""

from apportion.engines.local import LocalEngine
from apportion.engines.on_torch import TorchEngine
from apportion.engines.processors import Processors
from apportion.engines.protocol import Engine, add_up_one
from apportion.engines.spark import SparkEngine

__all__ = ["Engine", "LocalEngine", "Processors", "SparkEngine", "TorchEngine", "add_up_one"]
