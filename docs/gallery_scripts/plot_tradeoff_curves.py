"""What an attacker can detect.

The attacker wants to know whether one person is in the data, and accepts some false alarms. The curve bounds how
often a person who is there can be detected. A coin is the diagonal.
"""

from statistics import NormalDist

from apportion import Budget
from papers.public_features.drawing import Line, Panel, figure

normal = NormalDist()
alarms = [k / 100 for k in range(1, 100)]
lines = {"a coin": Line([0, 1], [0, 1], dashed=True, plain=True)}
for epsilon in (0.5, 1, 3, 8):
    mu = Budget(epsilon, 1e-6).mu
    lines[f"ε = {epsilon}"] = Line(alarms, [normal.cdf(normal.inv_cdf(at) + mu) for at in alarms], plain=True)
    print(f"epsilon {epsilon}: the best guess is right in {normal.cdf(mu / 2):.1%} of cases")

picture = figure("Trade-off curves, δ = 1e-6", [Panel("detections, at most", lines, "false alarms")], width=440)
