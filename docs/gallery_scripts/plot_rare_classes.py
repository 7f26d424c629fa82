"""Rare classes on Barcode MNIST.

Training accuracy by class size at ε = 10, each optimizer tuned by the same search. Plain gradient descent is best on
the rarest classes, the reverse of what was published. From the stored result of the claim `heavytail-mnist`.
"""

import json

from benchmarks.claim import RESULTS
from papers.public_features.drawing import Line, Panel, figure

stored = json.loads((RESULTS / "heavytail-mnist.json").read_text(encoding="utf-8"))["value"]
groups = {1: "1,177 images", 2: "250", 3: "50", 4: "10"}
lines = {
    name: Line(
        list(groups),
        [100 * each for each in stored[f"{name}, by loss"]["accuracy by group"]],
        [100 * each for each in stored[f"{name}, by loss"]["its deviation over seeds"]],
    )
    for name in ("DP-GD", "DP-GDM", "DP-Adam", "DP-AdamBC")
}
picture = figure("Head to tail", [Panel("training accuracy, %", lines, "images of a class", ticks=groups)], width=440)
