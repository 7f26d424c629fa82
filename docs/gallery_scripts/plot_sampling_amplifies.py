"""Poisson samples of users.

If each user takes part in a step with probability q, a step costs less. It must be a fresh random sample of users:
batches in order do not count.
"""

from apportion.privacy.accounting import Gaussian, SampledGaussian, epsilon_of
from papers.public_features.drawing import Line, Panel, figure

steps = [10, 50, 200]
lines = {"all users": Line(steps, [epsilon_of([Gaussian(8.0, k)], 1e-6) for k in steps])}
for probability in (0.3, 0.1):
    costs = [epsilon_of([SampledGaussian(8.0, probability, k)], 1e-6, 1e-3) for k in steps]
    lines[f"q = {probability}"] = Line(steps, costs)

panel = Panel("ε at δ = 1e-6", lines, "steps", log_x=True, log_y=True, ticks={k: str(k) for k in steps})
picture = figure("Noise of 8 times the sensitivity", [panel], width=440)
