"""The ε that is printed, and the ε that the noise supports.

A published recipe for private recommenders scales some of its noise to bounds that its data exceed. Its printed ε is
not what its noise supports; repaired, it is. From the stored result of the claim `audit-published`.
"""

import json

from benchmarks.claim import RESULTS
from papers.public_features.drawing import Line, Panel, figure

stored = json.loads((RESULTS / "audit-published.json").read_text(encoding="utf-8"))["value"]
printed = [1.0, 5.0, 20.0]
found = [stored[f"{epsilon:g}"] for epsilon in printed]
lines = {
    "as published: supported": Line(printed, [each["worst_case"] for each in found]),
    "repaired: supported": Line(printed, [each["twin_supported"] for each in found]),
    "what is printed": Line(printed, printed, dashed=True, plain=True),
}
panel = Panel("ε that the noise supports", lines, "ε that is printed", log_x=True, log_y=True)
picture = figure("A published recipe", [panel], width=440)
