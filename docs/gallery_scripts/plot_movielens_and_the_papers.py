"""MovieLens 1M: six published methods and ours.

Each published method is repaired where its guarantee was false, and tuned at each ε. From the stored result of the
claim `skew-ml1m`.
"""

import json

from benchmarks.claim import RESULTS
from papers.public_features.drawing import Line, Panel, figure

stored = json.loads((RESULTS / "skew-ml1m.json").read_text(encoding="utf-8"))["value"]
at = [1.0, 5.0, 20.0]
panels = []
for part, title in (("ratings", "ratings: test RMSE"), ("clicks", "clicks: Recall@20")):
    lines = {
        name: Line(at, [found[f"{epsilon:g}"] for epsilon in at], dashed=name == "without privacy")
        for name, found in stored[part].items()
    }
    panels.append(Panel(title, lines, "ε (δ = 1e-5)", log_x=True, ticks={1.0: "1", 5.0: "5", 20.0: "20"}))

picture = figure("MovieLens 1M", panels, width=360, order=["ours"])
