"""DP optimizers for PyTorch that know the noise in their gradients, and training for users or examples under a budget.

Needs the extra `torch`; `apportion.training.for_opacus` needs the extra `opacus`.
"""

from apportion.training.adaptive import DPAdam, DPAdamBC
from apportion.training.checkpoints import TrainingCheckpoint
from apportion.training.clipping import FixedClip, QuantileClip, ReleasedLoss, SecondMomentScales
from apportion.training.descent import DPSGD
from apportion.training.known_noise import AddedNoise, KnownNoiseOptimizer
from apportion.training.plain_gradients import PlainGradients
from apportion.training.private_gradients import PrivateGradients
from apportion.training.processes import TorchProcesses
from apportion.training.runs import ProgressBar, StepDone
from apportion.training.table_rows import FrequentRows, TouchedRows
from apportion.training.trainer import PrivateTrainer
from apportion.training.units import ExampleRows, ExampleSession, UserRows
from apportion.training.watching import Seen, Watch

__all__ = [
    "DPSGD",
    "AddedNoise",
    "DPAdam",
    "DPAdamBC",
    "ExampleRows",
    "ExampleSession",
    "FixedClip",
    "FrequentRows",
    "KnownNoiseOptimizer",
    "PlainGradients",
    "PrivateGradients",
    "PrivateTrainer",
    "ProgressBar",
    "QuantileClip",
    "ReleasedLoss",
    "SecondMomentScales",
    "Seen",
    "StepDone",
    "TorchProcesses",
    "TouchedRows",
    "TrainingCheckpoint",
    "UserRows",
    "Watch",
]
