"""One μ, many pairs of ε and δ.

A Gaussian release has one parameter, μ. Each μ gives a whole curve of pairs (ε, δ): all of them hold at once.
"""

from apportion import Budget
from apportion.privacy import gaussian
from papers.public_features.drawing import Line, Panel, figure

lines = {}
for epsilon in (0.5, 1, 2, 4):
    mu = Budget(epsilon, 1e-6).mu
    at = [0.1 * k for k in range(1, 61)]
    kept = [(each, gaussian.delta_of(each, mu)) for each in at if gaussian.delta_of(each, mu) > 1e-12]
    lines[f"μ = {mu:.3f}"] = Line([each for each, _ in kept], [delta for _, delta in kept], plain=True)

picture = figure("δ against ε for four values of μ", [Panel("δ", lines, "ε", log_y=True)], width=440)
