"""A model as a folder for the Hugging Face hub: files that load without apportion, and a model card.

The card's metadata include the privacy card, so that a machine can read the guarantee. Writing the folder needs no
library; nothing is uploaded.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

from apportion.exports import fold_in_alone
from apportion.exports.mlflow_model import ALONE
from apportion.exports.needed import refuse_unless_solvable, statement_of
from apportion.exports.parquet import write_parquet
from apportion.privacy.statement import NOT_FOR_RELEASE, Statement
from apportion.recommend import save
from apportion.recommend.model import ItemModel
from apportion.report.card import card_json, privacy_card
from apportion.report.wording import meaning_of

_TAGS: Final = ("recommender-system", "differential-privacy", "user-level-privacy")
_TEXT: Final = """# A private recommender for {n_items:,} items

{marking}{headline} It was learned from people's {kind} under differential privacy for whole users:
ε = {epsilon:g}, δ = {delta:g}; {unit}. Neighbours: {neighbours}.

These files hold the item side. A user's side is a small regression on that user's own history. It needs no other data
and can be solved where the history is:

```python
from {alone} import Model

model = Model(".")
ids, scores = model.recommend(items=[{first!r}], values=[{value:g}], k=20)
```

`{alone}.py` needs NumPy and safetensors. `items.parquet` has the same vectors with ids as text: an item's score for a
user with coefficients u is bias + vector · u.{by_choice}

## Privacy statement

```text
{statement}
```
"""
_BY_CHOICE: Final = """ The list is ranked by what a user is likely to choose and to value; scores are predicted
ratings. `{alone}.py` says how, and every 20th place explores."""


def write_huggingface(model: ItemModel, folder: Path) -> None:
    """Write the model, its items, a module that recommends from them, and the model card."""
    refuse_unless_solvable(model)
    statement = statement_of(model)
    card = privacy_card(statement)
    save(model, folder)
    (folder / "privacy-card.json").write_text(card_json(card), encoding="utf-8")
    write_parquet(model, folder / "items.parquet")
    shutil.copy(fold_in_alone.__file__, folder / f"{ALONE}.py")
    (folder / "README.md").write_text(_metadata(card) + _text(model, statement), encoding="utf-8")


def _metadata(card: dict[str, Any]) -> str:
    """Return YAML; JSON is YAML too."""
    fields = {"library_name": "apportion", "tags": list(_TAGS), "privacy": card}
    lines = [f"{name}: {json.dumps(value, ensure_ascii=True)}" for name, value in fields.items()]
    return "\n".join(["---", *lines, "---", ""])


def _text(model: ItemModel, statement: Statement) -> str:
    return _TEXT.format(
        n_items=model.n_tasks,
        marking="" if statement.releasable else f"**{NOT_FOR_RELEASE}**\n\n",
        headline=meaning_of(statement).headline,
        kind=model.kind,
        epsilon=statement.epsilon,
        delta=statement.delta,
        unit=statement.unit,
        neighbours=statement.neighbours.relation,
        alone=ALONE,
        by_choice="" if model.choice is None else _BY_CHOICE.format(alone=ALONE),
        first=model.task_ids.id_of(0),
        value=model.value_range[1],
        statement=statement.to_text(),
    )
