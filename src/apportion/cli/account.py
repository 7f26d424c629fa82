"""`apportion account`: the cost of a plan, or the noise that a budget requires."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from apportion.cli.option_types import Delta, PositiveNumber
from apportion.cli.options import json_option
from apportion.cli.outputs import print_json, table

if TYPE_CHECKING:
    from apportion.privacy.accounting import Part


class Parts(click.ParamType[tuple[Any, ...]]):
    """Numbers joined by colons, such as `4.2:10`. The last one, a count, may be omitted."""

    name = "parts"

    def __init__(self, *names: str) -> None:
        self._names = names

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        """Split the text and check every number."""
        if isinstance(value, tuple):
            return value
        cells = str(value).split(":")
        if len(cells) == len(self._names) - 1:
            cells.append("1")
        if len(cells) != len(self._names):
            self.fail(f"expected {':'.join(self._names)}, got {value!r}", param, ctx)
        try:
            return (*(float(cell) for cell in cells[:-1]), int(cells[-1]))
        except ValueError:
            self.fail(f"expected {':'.join(self._names)} as numbers, got {value!r}", param, ctx)


@click.command(short_help="Show what a plan costs, or how much noise a budget requires.")
@click.option(
    "--gaussian",
    type=Parts("Z", "COUNT"),
    multiple=True,
    metavar="Z[:COUNT]",
    help="Gaussian noise of Z times the sensitivity.",
)
@click.option(
    "--laplace",
    type=Parts("Z", "COUNT"),
    multiple=True,
    metavar="Z[:COUNT]",
    help="Laplace noise of scale Z times the sensitivity, on one number.",
)
@click.option(
    "--pure",
    type=Parts("EPS", "COUNT"),
    multiple=True,
    metavar="EPS[:COUNT]",
    help="A release known only to be EPS-DP.",
)
@click.option(
    "--sampled-gaussian",
    type=Parts("Z", "Q", "COUNT"),
    multiple=True,
    metavar="Z:Q:COUNT",
    help="Gaussian noise on a Poisson sample of the users, each included with probability Q.",
)
@click.option(
    "--delta",
    type=Delta(),
    default=1e-6,
    show_default=True,
    help="Slack of the guarantee; choose it well below 1 / number of users.",
)
@click.option("--epsilon", type=PositiveNumber(), help="Show the noise that this budget requires, instead of a cost.")
@click.option("--rounds", type=click.IntRange(min=1), help="With --epsilon: the number of Gaussian releases.")
@click.option(
    "--sampling-probability",
    type=PositiveNumber(),
    metavar="Q",
    help="With --epsilon: each release uses a Poisson sample of the users.",
)
@json_option
def account(
    gaussian: Sequence[tuple[float, int]],
    laplace: Sequence[tuple[float, int]],
    pure: Sequence[tuple[float, int]],
    sampled_gaussian: Sequence[tuple[float, float, int]],
    delta: float,
    epsilon: float | None,
    rounds: int | None,
    sampling_probability: float | None,
    as_json: bool,
) -> None:
    """Show what a plan costs, or how much noise a budget requires. No data is read.

    \b
    apportion account --gaussian 10:3 --laplace 20 --delta 1e-6
    apportion account --epsilon 1 --delta 1e-6 --rounds 3

    Neighbouring data sets differ in one user, added or removed. Each release is made COUNT times (default: once).
    """  # noqa: D301
    plan = (*gaussian, *laplace, *pure, *sampled_gaussian)
    if epsilon is None:
        if not plan:
            raise click.UsageError("Name at least one release, such as --gaussian 10:3, or a budget with --epsilon.")
        if rounds is not None or sampling_probability is not None:
            raise click.UsageError("--rounds and --sampling-probability need --epsilon.")
        _print_cost(_mechanisms(gaussian, laplace, pure, sampled_gaussian), delta, as_json)
    else:
        if plan:
            raise click.UsageError("Give either releases or --epsilon, not both.")
        _print_noise(epsilon, delta, rounds or 1, sampling_probability, as_json)


def _mechanisms(
    gaussian: Sequence[tuple[float, int]],
    laplace: Sequence[tuple[float, int]],
    pure: Sequence[tuple[float, int]],
    sampled: Sequence[tuple[float, float, int]],
) -> list[Part]:
    from apportion.privacy import accounting

    return [
        *(accounting.Gaussian(*parts) for parts in gaussian),
        *(accounting.Laplace(*parts) for parts in laplace),
        *(accounting.Pure(*parts) for parts in pure),
        *(accounting.SampledGaussian(*parts) for parts in sampled),
    ]


def _print_cost(parts: list[Part], delta: float, as_json: bool) -> None:
    from apportion.privacy.accounting import epsilon_of

    alone = [epsilon_of([part], delta) for part in parts]
    total = epsilon_of(parts, delta)
    if as_json:
        listed = [{"release": _in_words(part), "epsilon": e} for part, e in zip(parts, alone, strict=True)]
        print_json({"epsilon": total, "delta": delta, "neighbours": _NEIGHBOURS, "releases": listed})
        return
    rows = [[_in_words(part), _up(e)] for part, e in zip(parts, alone, strict=True)]
    click.echo(table(["release", "epsilon alone"], rows))
    if math.isinf(total):
        click.echo("\nTogether: no privacy at all; a release without noise costs infinity.")
    else:
        click.echo(f"\nTogether: ({_up(total)}, {delta:g})-differential privacy; {_NEIGHBOURS}.")


def _print_noise(epsilon: float, delta: float, rounds: int, probability: float | None, as_json: bool) -> None:
    from apportion.privacy import accounting
    from apportion.privacy.budget import Budget

    budget = Budget(epsilon, delta)

    def releases(noise_multiplier: float) -> list[Part]:
        if probability is None:
            return [accounting.Gaussian(noise_multiplier, rounds)]
        return [accounting.SampledGaussian(noise_multiplier, probability, rounds)]

    noise = math.ceil(1e4 * accounting.calibrate(releases, budget)) / 1e4
    if as_json:
        print_json(
            {
                "noise_multiplier": noise,
                "epsilon": epsilon,
                "delta": delta,
                "rounds": rounds,
                "sampling_probability": probability,
                "mu": budget.mu if probability is None else None,
            }
        )
        return
    sampled = "" if probability is None else f", each on a Poisson sample of the users at {probability:g}"
    click.echo(
        f"({epsilon:g}, {delta:g})-differential privacy requires noise of {noise:g} times the "
        f"sensitivity for {rounds} Gaussian release{'s' * (rounds > 1)}{sampled}; {_NEIGHBOURS}."
    )


_NEIGHBOURS = "add or remove one user"


def _in_words(part: Part) -> str:
    return part.words + (f", {part.count} times" if part.count > 1 else "")


def _up(epsilon: float) -> str:
    """Return four digits, rounded up, so that the printed number is still a bound."""
    if epsilon == 0 or math.isinf(epsilon):
        return f"{epsilon:g}"
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - 3)
    return f"{math.ceil(epsilon / unit * (1 - 1e-12)) * unit:.4g}"
