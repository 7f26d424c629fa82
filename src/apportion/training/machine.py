"""What the rounding of a pass depends on beside its numbers: the machine, and switches of PyTorch.

A step that is repeated from a checkpoint has the same noise as the first time. So it must be the same sum to the last
bit, or the difference of two releases would be bare.
"""

from __future__ import annotations

from operator import attrgetter

import torch
from torch import nn

from apportion.errors import InputError
from apportion.linalg import active_backend
from apportion.linalg.device_copies import asynchronous

_SWITCHES = (
    "fp32_precision", "mkldnn.enabled", "mkldnn.deterministic", "mkldnn.matmul.fp32_precision",
    "mkldnn.conv.fp32_precision", "mkldnn.rnn.fp32_precision", "cudnn.enabled", "cudnn.allow_tf32", "cudnn.benchmark",
    "cudnn.deterministic", "cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision", "cuda.matmul.fp32_precision",
    "cuda.matmul.allow_tf32", "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
)  # fmt: skip


def machine_of(module: nn.Module) -> list[str]:
    """Return what a checkpoint is bound to, in words that can be compared."""
    devices = {p.device for p in module.parameters()}
    names = {torch.cuda.get_device_name(each) if each.type == "cuda" else each.type for each in devices}
    switches = {name: _switch(name) for name in _SWITCHES}
    switches |= {"deterministic": str(torch.are_deterministic_algorithms_enabled()), "kernel": active_backend()}
    numbers = [torch.get_num_threads(), torch.backends.cpu.get_cpu_capability(), _denormals_are_kept()]
    return [*sorted(names), torch.__version__, *map(str, numbers), repr(switches)]


def require_repeatable(module: nn.Module) -> None:
    """Refuse a checkpoint on a GPU whose sums are in no fixed order, so that a repeated step would round otherwise."""
    if _on_gpu(module) and not torch.are_deterministic_algorithms_enabled():
        raise InputError(
            "Expected deterministic algorithms for a checkpoint on a GPU: a repeated step has the same noise, so it "
            "must be the same sum. Call torch.use_deterministic_algorithms(True) first.",
            argument="checkpoint",
        )


def coarse_products(module: nn.Module, device: torch.device) -> bool:
    """Whether a GPU may round what goes into products to about three digits, as it does by default in convolutions."""
    if not asynchronous(device):
        return False
    convolves = any(isinstance(part, nn.modules.conv._ConvNd) for part in module.modules())
    return _switch("cuda.matmul.allow_tf32") != "False" or (convolves and _switch("cudnn.allow_tf32") != "False")


def _on_gpu(module: nn.Module) -> bool:
    return any(p.device.type == "cuda" for p in module.parameters())


def _switch(name: str) -> str:
    try:
        return str(attrgetter(name)(torch.backends))
    except (AttributeError, RuntimeError):  # a version without it, or one that refuses to say where switches differ
        return "not told"


def _denormals_are_kept() -> bool:
    return bool(torch.tensor(1e-310, dtype=torch.float64) * torch.tensor(0.5, dtype=torch.float64) > 0)
