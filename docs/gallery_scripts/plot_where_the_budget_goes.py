"""Where the budget goes.

Every release of a fit has a share of the budget's μ². Here they are shown round by round, from the statement of a
model: later rounds know better what to ask, and get more.
"""

import numpy as np

from apportion import PrivateRatingRecommender
from apportion.data.synthetic import long_tailed_ratings
from papers.public_features.drawing import Line, Panel, figure

data, _ = long_tailed_ratings(2000, 200, 50_000, rank=3, rng=np.random.default_rng(0))
statement = PrivateRatingRecommender(2.0, items=list(range(200))).fit(data).model_.statement
places = {}
for release in statement.releases:
    found = places.setdefault(release.purpose.label, {})
    at = release.stage.round or 0
    found[at] = found.get(at, 0.0) + 100 * release.share

lines = {name: Line(list(found), list(found.values())) for name, found in places.items()}
for name, found in places.items():
    print(f"{name}: {sum(found.values()):.1f} % of the budget")
picture = figure("A fit's releases", [Panel("% of the budget", lines, "round; 0 is before the rounds")], width=440)
