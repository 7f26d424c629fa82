"""Units keep their names from one version of the code to the next, so that finished studies are found again."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from apportion.evaluation import study as package
from apportion.evaluation.study import units
from small_studies import OURS, study


def test_a_name_is_a_hash_of_what_the_figures_depend_on_and_stays_what_it_was(monkeypatch):
    """Stored studies are named so. Changing `FORMAT` on purpose changes the name; anything else should not."""
    monkeypatch.setattr(units, "__version__", "0.1.0")
    asked = study(methods=[{**OURS, "grid": {"settings.clip": [0.5]}}])
    (combination,) = asked.methods[0].combinations()
    unit = units.unit_of(asked, "f00d", combination, 8.0, 1, "test")
    assert unit.words == "ours: clip 0.5, epsilon = 8, seed 1, on test"
    assert unit.content == {
        "format": 1,
        "version": "0.1.0",
        "data": "f00d",
        "kind": "ratings",
        "value_range": [1.0, 5.0],
        "split": {"seed": 0, "validation": 0.1, "test": 0.1, "history": 0.8},
        "measures": {"slices": 5, "recall_at": [], "ndcg_at": [], "recall_at_by_slice": []},
        "spec": {"method": "ours", "dimension": 2, "rounds": 2, "settings": {"clip": 0.5}},
        "epsilon": 8.0,
        "delta": 1e-6,
        "seed": 1,
        "part": "test",
    }
    assert unit.key == "05009c4de578551775e4ef16410f5aca"


def test_modules_import_only_from_those_that_the_package_lists_above_them():
    names = re.findall(r"^    (\w+) {2,}", package.__doc__, re.MULTILINE)
    folder = Path(package.__file__).parent
    assert sorted(names) == sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    for number, name in enumerate(names):
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module.startswith(package.__name__):
                assert node.module.rpartition(".")[2] in names[:number], f"{name} imports {node.module}"
