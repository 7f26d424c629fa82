"""DP optimizers for PyTorch that know the noise in their gradients, and training for users or examples under a budget.

Needs the extra `torch`; `apportion.optim.for_opacus` needs the extra `opacus`.
"""

from apportion.optim.adaptive import DPAdam, DPAdamBC
from apportion.optim.clipping import FixedClip, QuantileClip, SecondMomentScales
from apportion.optim.descent import DPSGD
from apportion.optim.known_noise import AddedNoise, KnownNoiseOptimizer
from apportion.optim.private_gradients import PlainGradients, PrivateGradients
from apportion.optim.trainer import PrivateTrainer
from apportion.optim.units import ExampleRows, ExampleSession, UserRows
from apportion.optim.watching import Seen, Watch

__all__ = [
    "DPSGD",
    "AddedNoise",
    "DPAdam",
    "DPAdamBC",
    "ExampleRows",
    "ExampleSession",
    "FixedClip",
    "KnownNoiseOptimizer",
    "PlainGradients",
    "PrivateGradients",
    "PrivateTrainer",
    "QuantileClip",
    "SecondMomentScales",
    "Seen",
    "UserRows",
    "Watch",
]
