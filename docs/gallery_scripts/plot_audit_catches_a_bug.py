"""An audit that catches a bug.

A mechanism claims ε = 1 and forgets part of its noise. The tester runs it on two neighbours and bounds ε from below,
with a confidence of 99.9 %. Where the bound exceeds 1 the mechanism is caught; the honest one never is.
"""

import numpy as np

from apportion.auditing import audit_outputs
from papers.public_features.drawing import Line, Panel, figure

rng = np.random.default_rng(0)
scales, shown = [1.0, 0.8, 0.6, 0.4, 0.3], []
for scale in scales:
    here, there = rng.laplace(0.0, scale, 8_000), rng.laplace(1.0, scale, 8_000)
    found = audit_outputs(here[:, None], there[:, None], 1.0, statistic=lambda out: float(out[0]))
    shown.append(found.lower_bound)
    print(f"noise {scale}: epsilon is at least {found.lower_bound:.2f}; caught: {found.violated}")

lines = {
    "shown by the audit": Line(scales, shown),
    "true": Line(scales, [1 / scale for scale in scales]),
    "claimed": Line(scales, [1.0] * len(scales), dashed=True, plain=True),
}
picture = figure("Laplace noise, claimed ε = 1", [Panel("ε", lines, "scale of the noise")], width=440)
