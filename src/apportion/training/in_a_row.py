"""Modules that are known layers of PyTorch one behind another, as they come and without hooks.

Nothing in such a module writes into its inputs, and each layer's output is the next one's input. So no hooks are needed
to see what goes into a layer.
"""

from __future__ import annotations

from torch import nn
from torch.nn.modules import module as of_modules

_LAYERS = frozenset({
    nn.Linear, nn.Embedding, nn.Conv2d, nn.LayerNorm, nn.Flatten, nn.Unflatten, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU,
    nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.MaxPool2d, nn.AvgPool2d,
})  # fmt: skip


def layers_in_a_row(module: nn.Module) -> list[nn.Module] | None:
    """Return the layers of a module in the order in which they are called, each once; None for any other module."""
    layers = None if _hooks_everywhere() else _inside(module)
    return None if layers is None or len({*layers}) < len(layers) else layers


def _inside(module: nn.Module) -> list[nn.Module] | None:
    if type(module) is not nn.Sequential:
        return [module] if _as_it_comes(module, _LAYERS) else None
    result: list[nn.Module] = []
    for part in module._modules.values():
        found = None if part is None else _inside(part)
        if found is None:
            return None
        result += found
    return result if _as_it_comes(module, (nn.Sequential,)) else None


def _as_it_comes(module: nn.Module, kinds: frozenset[type[nn.Module]] | tuple[type[nn.Module], ...]) -> bool:
    """Whether a module is of one of these kinds and does what its class does, without writing into its input."""
    held = vars(module)
    if type(module) not in kinds or held.get("inplace") or held.get("max_norm") is not None:
        return False
    if held["_forward_hooks"] or held["_forward_pre_hooks"] or held["_backward_hooks"] or held["_backward_pre_hooks"]:
        return False
    if "forward" in held or "__call__" in held or "_call_impl" in held:  # in place of what the class does
        return False
    return held.get("_compiled_call_impl") is None


def _hooks_everywhere() -> bool:
    """Whether hooks are set for all modules; if torch no longer tells, yes."""
    told = getattr(of_modules, "_has_any_global_hook", None)
    return told is None or bool(told())
