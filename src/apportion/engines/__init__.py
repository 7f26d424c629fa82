"""Where sums over users are formed: on this machine's processors, or on its GPU."""

from apportion.engines.local import LocalEngine
from apportion.engines.on_torch import TorchEngine
from apportion.engines.protocol import Engine

__all__ = ["Engine", "LocalEngine", "TorchEngine"]
