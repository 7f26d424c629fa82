"""Why Adam needs to know its noise.

Adam divides by the root of a second moment. Under privacy most of that moment is the noise's own variance, so small
and large gradients look alike. DP-AdamBC subtracts it.
"""

import numpy as np

from papers.public_features.drawing import Line, Panel, figure

rng = np.random.default_rng(0)
sizes = np.logspace(-4, 0, 13)
noise, beta, floor = 0.05, 0.999, 0.01
noisy = sizes + noise * rng.standard_normal((3000, len(sizes)))
moment = np.zeros(len(sizes))
for step in noisy:
    moment = beta * moment + (1 - beta) * step**2
moment /= 1 - beta ** len(noisy)
lines = {
    "without noise": Line(sizes, sizes),
    "DP-Adam": Line(sizes, np.sqrt(moment)),
    "DP-AdamBC": Line(sizes, np.sqrt(np.maximum(moment - noise**2, floor * noise**2))),
}
panel = Panel("root of the second moment", lines, "size of the gradient", log_x=True, log_y=True)
picture = figure("What Adam divides by", [panel], width=440)
