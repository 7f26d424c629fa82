"""A check on made-up rows that a module and a loss treat every row by itself, before raw rows are used.

It looks only at shapes, dtypes and the module, all public, so a refusal reveals nothing about anybody. Parameters are
perturbed at random for the check, because at a start of zeros no row would depend on anything. The other rows come in
several sizes, and so do gradients, because a module may mix rows only if they are large. The check covers what made-up
rows can show; a module that behaves differently on other rows is beyond it. A unit that is alone in a pass
(rows_at_once=1) needs no such check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from apportion.errors import InputError
from apportion.training.dropout import uses_dropout
from apportion.training.layers import LayerFactors, supported
from apportion.training.module_state import unchanged
from apportion.training.structured import Unpacking

_Loss = Callable[[Any, Any], Tensor]
_CLOSE = 1e-3  # relative to the largest number compared; mixed rows differ by about all of it
_SIZES = (1e-4, 1e4)  # sizes of the other rows, relative to the first
_MANTISSAS = (
    1.0,
    0.83,
    0.71,
    0.57,
    0.37,
)  # factors of equal rows: different last bits, and never larger than accepted numbers
_FACTORS = (1.0, 2.0**-20, 2.0**20)  # factors of the loss; gradients must grow with them


@dataclass(frozen=True)
class _Rows:
    """Made-up rows, the losses of a pass over them, and the tensors these may depend on; one row is in all passes."""

    common: int
    inputs: Tensor
    targets: Tensor
    losses: Tensor
    watched: list[Tensor]


def factors_suffice(module: nn.Module, loss: _Loss, inputs: Tensor, targets: Tensor) -> bool:
    """Whether one pass over many rows gives each row's own gradient from layer factors. Refuse rows that mix.

    Args:
        module: the module as it will be trained, with its modes and trained parameters.
        loss: returns one number for each row.
        inputs: rows, of which only the shape, dtype and device are used.
        targets: targets, likewise.
    """
    _refuse_layers(module)
    devices = [d.index for d in {p.device for p in module.parameters()} if d.type == "cuda"]
    with torch.random.fork_rng(devices), unchanged(module, trained=True), _moved(module):
        before = _generators(devices)
        rows = _made_up(module, loss, inputs, targets)
        passes = [rows, *_others(module, loss, rows)]
        if any(not torch.equal(a, b) for a, b in zip(before, _generators(devices), strict=True)):
            raise InputError(
                "Expected a module that draws no random numbers in a pass, got one that does; only dropout "
                "of torch can have masks of its own for each unit, and not inside nn.MultiheadAttention or nn.LSTM: "
                "set their dropout to 0.",
                argument="module",
            )
        apart = _refuse_mixing(passes)
        return apart and supported(module) and _same_gradients(module, loss, rows)


def drops_out(module: nn.Module, loss: _Loss, inputs: Tensor, targets: Tensor) -> bool:
    """Whether a pass over made-up rows uses dropout, which can be keyed by unit."""
    devices = [d.index for d in {p.device for p in module.parameters()} if d.type == "cuda"]
    with torch.random.fork_rng(devices), unchanged(module, trained=True):
        return uses_dropout(lambda: _made_up(module, loss, inputs, targets))


def accepted_rows(module: nn.Module, loss: _Loss, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return made-up rows and targets that a module and a loss accept."""
    rows = _made_up(module, loss, inputs, targets)
    return rows.inputs.detach(), rows.targets


@contextmanager
def equal_rows(
    module: nn.Module, loss: _Loss, inputs: Tensor, targets: Tensor, count: int
) -> Iterator[list[tuple[Tensor, Tensor, list[Tensor]]]]:
    """Yield batches of copies of one made-up row and its target, with the outputs of all parts and the loss.

    Last bits may agree by chance, so there are several batches. Parameters are perturbed inside.
    """
    devices = [d.index for d in {p.device for p in module.parameters()} if d.type == "cuda"]
    with torch.random.fork_rng(devices), unchanged(module, trained=True), _moved(module):
        rows = _made_up(module, loss, inputs, targets)
        result = []
        for factor in _MANTISSAS if rows.inputs.is_floating_point() else (1,):
            for row in range(len(rows.inputs)):
                x, t = (h.detach()[row].expand(count, *h.shape[1:]).clone() for h in (rows.inputs, rows.targets))
                x *= factor
                seen = _pass(module, loss, x.clone(), t, 0)
                result.append((x, t, [*seen.watched, seen.losses]))
        yield result


def _refuse_layers(module: nn.Module) -> None:
    """Refuse layers, by their types, that mix the rows of a batch or write into trained parameters."""
    for name, part in module.named_modules():
        kind = type(part).__name__
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and (part.training or part.running_mean is None):
            raise InputError(
                f"Expected no layer that mixes rows, got {kind} {name!r}; use GroupNorm.", argument="module"
            )
        if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.max_norm is not None:
            raise InputError(
                f"Expected no {kind} with max_norm, which rescales the rows it looks up, got {name!r}.",
                argument="module",
            )


@contextmanager
def _moved(module: nn.Module) -> Iterator[None]:
    """Perturb all parameters by about the size of a usual start. Refuse a pass that changes them again."""
    generator = torch.Generator().manual_seed(0)
    trained = [p for p in module.parameters() if p.requires_grad]
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point():
                width = max(1, parameter[0].numel()) if parameter.dim() > 1 else 4
                step = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / (2 * width**0.5)
                parameter.add_(step.to(parameter.device, parameter.dtype))
    copies = [p.detach().clone() for p in trained]
    yield
    if any(not torch.equal(p, copy) for p, copy in zip(trained, copies, strict=True)):
        raise InputError(
            "Expected a module whose pass does not change its trained parameters, got one that does.", argument="module"
        )


def _generators(devices: list[int]) -> list[Tensor]:
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(d) for d in devices)]


def _made_up(module: nn.Module, loss: _Loss, inputs: Tensor, targets: Tensor) -> _Rows:
    """Return four rows of numbers that the module and the loss accept."""
    problem = "losses that are not finite"
    for of_inputs, of_targets in (
        (_normal, _positive),
        (_positive, _positive),
        (_near_one, _near_one),
        (_zeros, _zeros),
    ):
        generator = torch.Generator().manual_seed(1)
        x, t = _acceptable(module, of_inputs(inputs, generator)), of_targets(targets, generator)
        try:
            rows = _pass(module, loss, x, t, 0)
        except InputError:
            raise
        except Exception as error:  # whatever a module raises for numbers that it does not accept
            problem = f"{type(error).__name__}: {error}"
            continue
        if bool(rows.losses.isfinite().all()):
            return rows
    raise InputError(
        f"Expected a module and a loss that accept made-up rows of the data's shape (inputs of {inputs.dtype} and "
        f"{tuple(inputs.shape[1:])}, targets of {targets.dtype} and {tuple(targets.shape[1:])}), got {problem}.",
        argument="targets" if _accepts(module, inputs) else "inputs",
    )


def _accepts(module: nn.Module, inputs: Tensor) -> bool:
    """Whether the module takes made-up rows, so that the loss or the targets are the problem."""
    try:
        with torch.no_grad(), unchanged(module):
            module(_near_one(inputs, torch.Generator().manual_seed(1)))
    except Exception:  # whatever a module raises for numbers that it does not accept
        return False
    return True


def _acceptable(module: nn.Module, rows: Tensor) -> Tensor:
    """Return made-up rows with whole numbers beside real ones that a module accepts as ids."""
    for part in module.modules():
        if isinstance(part, Unpacking):
            rows = part.acceptable(rows)
    return rows


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    if not like.is_floating_point():
        return _positive(like, generator)
    return torch.randn((4, *like.shape[1:]), generator=generator, dtype=torch.float64).to(like.device, like.dtype)


def _positive(like: Tensor, generator: torch.Generator) -> Tensor:
    """Return numbers between 0 and 1; ids 0 and 1."""
    result = torch.rand((4, *like.shape[1:]), generator=generator, dtype=torch.float64)
    return (result if like.is_floating_point() else result.round()).to(like.device, like.dtype)


def _near_one(like: Tensor, generator: torch.Generator) -> Tensor:
    """Return numbers between 1/2 and 1; ids of which nearly all are 1, so that no mask leaves nothing over."""
    result = torch.rand((4, *like.shape[1:]), generator=generator, dtype=torch.float64)
    held = 0.5 + result / 2 if like.is_floating_point() else (result < 0.9).double()
    return held.to(like.device, like.dtype)


def _zeros(like: Tensor, generator: torch.Generator) -> Tensor:
    return like.new_zeros((4, *like.shape[1:]))


def _others(module: nn.Module, loss: _Loss, rows: _Rows) -> list[_Rows]:
    """Return the first row after two others, alone, and before others that are far smaller and far larger."""
    order = torch.tensor([3, 2, 0])
    inputs, targets = rows.inputs.detach()[order.to(rows.inputs.device)], rows.targets[order.to(rows.targets.device)]
    if inputs.is_floating_point():
        inputs[:2] *= 2
    inputs = _acceptable(module, inputs)
    alone = inputs[2:].clone(), targets[2:]
    result = [_pass(module, loss, inputs, targets, 2), _pass(module, loss, *alone, 0)]
    for size in _SIZES if inputs.is_floating_point() else ():
        resized = rows.inputs.detach().clone()
        resized[1:] *= size
        try:
            result.append(_pass(module, loss, _acceptable(module, resized), rows.targets, 0))
        except InputError:
            raise
        except Exception:  # the module does not accept numbers of this size
            continue
    return result


def _pass(module: nn.Module, loss: _Loss, inputs: Tensor, targets: Tensor, common: int) -> _Rows:
    """Return losses of some rows, and the output of every leaf part."""
    watched: list[Tensor] = []

    def keep(part: nn.Module, given: Any, output: Any) -> Any:
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return None
        watched.append(output if output.requires_grad else output.requires_grad_())
        return output.clone()  # an in-place operation must not change what was kept

    if inputs.is_floating_point():
        watched.append(inputs.requires_grad_())
    leaves = [part for part in module.modules() if next(part.children(), None) is None]
    hooks = [part.register_forward_hook(keep) for part in leaves]
    try:
        with torch.enable_grad(), unchanged(module):
            losses = loss(module(inputs.clone()), targets)
    finally:
        for hook in hooks:
            hook.remove()
    if losses.dim() == 0 or len(losses) != len(inputs):
        raise InputError(
            f"Expected a loss for each of {len(inputs)} rows, got losses of shape {tuple(losses.shape)}; losses of "
            'torch return them with reduction="none".',
            argument="loss",
        )
    return _Rows(common, inputs, targets, losses, watched)


def _refuse_mixing(passes: list[_Rows]) -> bool:
    """Refuse if a row's loss depends on other rows; otherwise return whether every part outputs one row for each.

    A table that is not looked up by row may have as many rows as one of the passes, but not as all of them.
    """
    same_parts = len({len(result.watched) for result in passes}) == 1
    counts = [[len(v) if v.dim() else 0 for v in result.watched] for result in passes]
    rows = [len(result.inputs) for result in passes]
    by_row = [list(result) == rows for result in zip(*counts, strict=False)]
    first, size = passes[0].losses[0].detach().double(), passes[0].losses.detach().double().abs().max()
    for result in passes:
        again = result.losses[result.common].detach().double()
        if _leaks(result, by_row) or not bool(((again - first).abs() <= _CLOSE * size).all()):
            raise InputError(
                "Expected a module and a loss that treat each row by itself, but the loss of a made-up "
                "row depends on others; each unit must be clipped by itself.",
                argument="module",
            )
    return same_parts and all(by_row)


def _leaks(result: _Rows, by_row: list[bool]) -> bool:
    """Whether the loss of any row has a derivative in another row."""
    for row, loss in enumerate(result.losses):
        for slope, good in zip(_slopes(loss, result.watched), by_row, strict=False):
            if good and bool((torch.cat([slope[:row], slope[row + 1 :]]).nan_to_num() != 0).any()):
                return True
    return False


def _slopes(loss: Tensor, values: list[Tensor]) -> list[Tensor]:
    """Return derivatives of a row's loss; zeros for what it does not depend on."""
    if not values or not loss.requires_grad:
        return [torch.zeros_like(value) for value in values]
    try:
        result = torch.autograd.grad(loss.sum(), values, allow_unused=True, retain_graph=True)
    except RuntimeError as error:  # such as activation checkpoints of the old kind
        raise InputError(
            f"Expected a module with gradients that torch.autograd.grad can take, got {error}", argument="module"
        ) from error
    return [torch.zeros_like(v) if slope is None else slope for v, slope in zip(values, result, strict=True)]


def _same_gradients(module: nn.Module, loss: _Loss, rows: _Rows) -> bool:
    """Whether layer factors give the same as autograd, row by row; a weight used elsewhere shows here."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    plain = [torch.cat([s.flatten().cpu() for s in _slopes(one, parameters)]) for one in rows.losses]
    expected = torch.stack(plain).double()
    if any(part._backward_hooks or part._backward_pre_hooks for part in module.modules()):
        return False  # four rows cannot show what they do to the gradients of a whole batch
    try:
        result = [_by_factors(module, loss, rows, size) for size in _FACTORS]
    except (InputError, RuntimeError):
        return False  # a layer used twice, or in a way for which factors are not known
    return all(bool(((each - expected).abs() <= _CLOSE * expected.abs().max()).all()) for each in result)


def _by_factors(module: nn.Module, loss: _Loss, rows: _Rows, size: float) -> Tensor:
    """Return gradients of every row from layer factors, computed with a scaled loss and scaled back."""

    def sized(outputs: Any, targets: Any) -> Tensor:
        return size * loss(outputs, targets)

    with unchanged(module):
        blocks = LayerFactors(module, sized).blocks(rows.inputs.detach(), rows.targets, torch.arange(5))
    return torch.cat([block.each().flatten(1).cpu() for block in blocks], dim=1).double() / size
