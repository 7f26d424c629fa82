"""How many users an item needs to be listed.

A list of items that comes from the data is itself private. Items are listed if their noisy count passes a threshold.
The more keys a user may hold, and the smaller δ, the higher it is.
"""

from apportion import Budget
from apportion.privacy.keys import threshold_for
from papers.public_features.drawing import Line, Panel, figure

epsilons = [0.25, 0.5, 1, 2, 4, 8]
lines = {}
for delta in (1e-5, 1e-7, 1e-9):
    scales = [1 / Budget(epsilon, 1e-6).mu for epsilon in epsilons]
    lines[f"δ of the list = {delta:g}"] = Line(
        epsilons, [threshold_for(delta, scale, 1000, "gaussian") for scale in scales]
    )

panel = Panel("threshold, in users of one item each", lines, "ε of the counts", log_x=True, log_y=True)
picture = figure("Private lists", [panel], width=440)
