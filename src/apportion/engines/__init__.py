"""Engines form sums over users: on this machine's processors, or on its GPU; of users in memory, or on disk."""

from apportion.engines.deferred import DeferredEngine
from apportion.engines.local import LocalEngine
from apportion.engines.on_disk import DiskEngine
from apportion.engines.on_torch import TorchEngine
from apportion.engines.processors import Processors
from apportion.engines.protocol import Engine, add_up_one

__all__ = ["DeferredEngine", "DiskEngine", "Engine", "LocalEngine", "Processors", "TorchEngine", "add_up_one"]
