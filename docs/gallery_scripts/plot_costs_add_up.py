"""What many releases cost together.

Adding up ε is right but wasteful. Squares of μ add up exactly, so k equal Gaussian releases cost √k times the μ of
one.
"""

import math

from apportion import Budget
from apportion.privacy import gaussian
from papers.public_features.drawing import Line, Panel, figure

one, delta = 0.1, 1e-6
mu = Budget(one, delta).mu
counts = [1, 2, 4, 8, 16, 32, 64, 128, 256]
exact = [gaussian.epsilon_of(mu * math.sqrt(k), delta) for k in counts]
lines = {
    "ε added up": Line(counts, [one * k for k in counts]),
    "squares of μ added up": Line(counts, exact),
}
print(f"256 releases at epsilon 0.1 cost {exact[-1]:.2f} together, not 25.6")
picture = figure("ε of many releases", [Panel("ε at δ = 1e-6", lines, "releases", log_x=True, log_y=True)], width=440)
