"""Claim: on the paper's synthetic tasks, weights that adapt to task sizes beat equal ones at every ε up to 5.

For Algorithm 1 (with the paper's solve and with the library's) and Algorithm 2, both skews: the best exponent in
(0, 1/2], chosen on a draw of the data that is used for nothing else, against exponent 0 on the same data and noise
seeds, with settings tuned alike. See papers/skew/synthetic.py.
"""

from __future__ import annotations

from benchmarks.claim import Outcome, print_table
from papers.skew import synthetic

LEAST_T = 2.0  # every comparison must reach it, so that their number does not weaken it

QUICK = synthetic.Study(
    n_users=2500,
    n_tasks=50,
    tasks_per_user=10.0,
    skews=(1.0,),
    epsilons=(1.0,),
    exponents=(0.0, 0.25, 0.5),
    seeds=6,
    grids={
        synthetic.PAPER: ({"ridge": 0.01},),
        synthetic.SHRUNK: ({"ridge": 1e-3},),
        synthetic.DESCENT: ({"gradient_bound": 0.3, "step_size": 1.0, "steps": 10},),
    },
)


def measure(quick: bool) -> Outcome:
    """Run the study and compare the best exponent with 0 for every method, skew and ε."""
    study = QUICK if quick else synthetic.Study()
    found = []
    for curve in synthetic.curves(study):
        found.append(curve)
        print(f"{curve.method}, a = {curve.skew:g}, epsilon = {curve.epsilon:g}: {curve.factor:.3f}", flush=True)
    print()
    print_table(synthetic.header(study), synthetic.table(study, found))
    if not quick:
        synthetic.write(study, found)
    least = {method: min(c.factor for c in found if c.method == method) for method in study.grids}
    most = {method: max(c.factor for c in found if c.method == method) for method in study.grids}
    weakest = min(c.t_statistic for c in found)
    gains = "; ".join(f"{method} {least[method]:.2f} to {most[method]:.2f}" for method in study.grids)
    return Outcome(
        value={"least_factor": least, "largest_factor": most, "least_t": weakest},
        target={"least_factor": dict.fromkeys(study.grids, 1.0), "least_t": LEAST_T},
        holds=min(least.values()) > 1 and weakest >= LEAST_T,
        headline=f"synthetic tasks, ε = 0.5 to 5, both skews: RMSE with equal weights over RMSE with the best exponent "
        f"in (0, 1/2]: {gains}; every gain at least {weakest:.1f} standard errors",
        settings={
            "epsilons": study.epsilons,
            "skews": study.skews,
            "exponents": study.exponents,
            "seeds": study.seeds,
            "delta": synthetic.DELTA,
            "grids": {method: list(grid) for method, grid in study.grids.items()},
            "chosen": {
                f"{c.method}, a={c.skew:g}, epsilon={c.epsilon:g}": {
                    "exponent": study.exponents[c.best],
                    "factor": c.factor,
                    "standard_error": c.factor_error,
                    "settings": c.settings[c.best],
                    "settings_at_0": c.settings[0],
                }
                for c in found
            },
        },
    )
