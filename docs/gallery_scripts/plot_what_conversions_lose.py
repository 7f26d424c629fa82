"""What loose conversions throw away.

Papers often turn ε and δ into noise by ε² / (8 log(1/δ)). The exact profile allows up to four times as much μ², and
so up to half the noise, for the same guarantee.
"""

import math

from apportion import Budget
from papers.public_features.drawing import Line, Panel, figure

epsilons = [0.25, 0.5, 1, 2, 4, 8, 16]
lines = {}
for delta in (1e-5, 1e-6, 1e-8):
    loose = [epsilon**2 / (8 * math.log(1 / delta)) for epsilon in epsilons]  # zCDP's rho; mu squared is twice that
    ratio = [Budget(epsilon, delta).mu ** 2 / (2 * rho) for epsilon, rho in zip(epsilons, loose, strict=True)]
    lines[f"δ = {delta:g}"] = Line(epsilons, ratio)

picture = figure("Exact μ² over that of the usual bound", [Panel("times", lines, "ε", log_x=True)], width=440)
