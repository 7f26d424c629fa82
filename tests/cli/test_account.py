"""`account` says what a plan costs and what a budget allows, and never less than the truth."""

from __future__ import annotations

import pytest

from apportion.privacy.accounting import Gaussian, Laplace, Pure, SampledGaussian, epsilon_of


@pytest.mark.parametrize(
    ("options", "mechanisms"),
    [
        (("--gaussian", "4.22"), [Gaussian(4.22)]),
        (("--gaussian", "10:3", "--gaussian", "5"), [Gaussian(10, 3), Gaussian(5)]),
        (("--laplace", "20:2", "--pure", "0.1:3"), [Laplace(20, 2), Pure(0.1, 3)]),
        (("--sampled-gaussian", "1.5:0.1:20"), [SampledGaussian(1.5, 0.1, 20)]),
    ],
)
def test_a_plan_costs_what_the_accountant_says(run, options, mechanisms):
    answer = run("account", *options, "--delta", "1e-5", "--json").json
    assert answer["epsilon"] == pytest.approx(epsilon_of(mechanisms, 1e-5), rel=1e-9)
    assert len(answer["releases"]) == len(mechanisms)
    assert answer["neighbours"] == "add or remove one user"


def test_what_is_printed_is_rounded_up(run):
    printed = run("account", "--gaussian", "4.22", "--delta", "1e-6").stdout
    shown = float(printed.split("Together: (")[1].split(",")[0])
    assert epsilon_of([Gaussian(4.22)], 1e-6) <= shown <= epsilon_of([Gaussian(4.22)], 1e-6) * 1.001


@pytest.mark.parametrize("options", [("--rounds", "3"), ("--rounds", "50", "--sampling-probability", "0.02"), ()])
def test_the_noise_that_a_budget_allows_keeps_within_it_and_no_less_would(run, options):
    answer = run("account", "--epsilon", 1, "--delta", "1e-6", *options, "--json").json
    noise, rounds, probability = (answer[name] for name in ("noise_multiplier", "rounds", "sampling_probability"))

    def cost(z):
        return epsilon_of([SampledGaussian(z, probability, rounds) if probability else Gaussian(z, rounds)], 1e-6)

    assert cost(noise) <= 1 < cost(noise * 0.995)


def test_a_release_without_noise_costs_everything(run):
    assert "no privacy at all" in run("account", "--gaussian", "0").stdout
    assert run("account", "--gaussian", "0", "--json").json["epsilon"] is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "Name at least one release"),
        (("--gaussian", "a"), "'a'"),
        (("--gaussian", "1:2:3"), "expected Z:COUNT"),
        (("--gaussian", "1:0"), "count of at least 1"),
        (("--gaussian", "-3"), "-3"),
        (("--sampled-gaussian", "1:2:3"), "sampling probability"),
        (("--gaussian", "1", "--epsilon", "1"), "not both"),
        (("--gaussian", "1", "--rounds", "1"), "need --epsilon"),
        (("--gaussian", "1", "--delta", "2"), "got 2"),
        (("--epsilon", "1", "--sampling-probability", "3"), "got 3"),
    ],
)
def test_plans_that_make_no_sense_are_refused(run, options, words):
    result = run("account", *options, code=2)
    assert words in result.stderr
    assert result.stdout == ""
