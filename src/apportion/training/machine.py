"""What the rounding of a pass depends on beside its numbers: the machine, and switches of PyTorch.

A step that is repeated from a checkpoint has the same noise as the first time. So it must be the same sum to the last
bit, or the difference of two releases would be bare.
"""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

import numpy as np
import torch
from torch import nn

from apportion import __version__
from apportion.errors import InputError
from apportion.linalg import active_backend
from apportion.linalg.device_copies import asynchronous

_SWITCHES = (
    "fp32_precision", "mkldnn.enabled", "mkldnn.deterministic", "mkldnn.matmul.fp32_precision",
    "mkldnn.conv.fp32_precision", "mkldnn.rnn.fp32_precision", "cudnn.enabled", "cudnn.allow_tf32", "cudnn.benchmark",
    "cudnn.deterministic", "cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision", "cuda.matmul.fp32_precision",
    "cuda.matmul.allow_tf32", "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction", "cuda.flash_sdp_enabled", "cuda.mem_efficient_sdp_enabled",
    "cuda.math_sdp_enabled", "cuda.cudnn_sdp_enabled", "cuda.preferred_blas_library", "opt_einsum.enabled",
    "opt_einsum.strategy",
)  # fmt: skip
_LIBRARIES = ("MKL_", "ONEDNN_", "DNNL_", "OPENBLAS_", "KMP_", "CUBLAS_", "CUDNN_", "NVIDIA_TF32_")  # of variables


def machine_of(module: nn.Module) -> list[str]:
    """Return what a checkpoint is bound to, in words that can be compared."""
    devices = {p.device for p in module.parameters()}
    names = {torch.cuda.get_device_name(each) if each.type == "cuda" else each.type for each in devices}
    switches = {name: _switch(name) for name in _SWITCHES}
    switches |= {"deterministic": str(torch.are_deterministic_algorithms_enabled()), "kernel": active_backend()}
    numbers = [torch.get_num_threads(), torch.backends.cpu.get_cpu_capability(), _denormals_are_kept()]
    told = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith(_LIBRARIES))
    kinds = [_processor(), str(torch.get_default_dtype())]  # numbers in a loss may be of the default
    versions = [torch.__version__, np.__version__, __version__]
    return [*sorted(names), *versions, *map(str, numbers), *kinds, repr(switches), *told]


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
        held = attrgetter(name)(torch.backends)
        return str(held() if callable(held) else held)
    except (AttributeError, RuntimeError):  # a version without it, or one that refuses to say where switches differ
        return "not told"


def _processor() -> str:
    """Return the name of the processor, by which libraries choose kernels of the same instruction set."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(("model name", "CPU part")):
                return line.partition(":")[2].strip()
    return platform.processor()


def _denormals_are_kept() -> bool:
    return bool(torch.tensor(1e-310, dtype=torch.float64) * torch.tensor(0.5, dtype=torch.float64) > 0)
