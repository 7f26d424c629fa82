"""The architecture, held by tests: layers import downwards, and what carries the guarantee stays sealed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "apportion"
CONTRACTS = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
LAYERS = {
    package.strip().removeprefix("apportion."): height
    for height, line in enumerate(reversed(CONTRACTS["contracts"][0]["layers"]))
    for package in line.split("|")
}
FILES = sorted(SOURCE.rglob("*.py"))


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def package_of(path):
    return path.relative_to(SOURCE).with_suffix("").parts[0]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_every_module_imports_only_its_own_and_lower_layers(path):
    mine = package_of(path)
    if mine == "__init__":
        return
    for name in imported_modules(path):
        parts = name.split(".")
        if parts[0] != "apportion" or parts[1] in ("__version__", mine):
            continue
        assert LAYERS[parts[1]] < LAYERS[mine], f"{mine} imports {name}"


def test_only_the_auditor_opens_hidden_values_and_only_engines_and_sums_touch_hidden_values():
    for path in FILES:
        text, mine = path.read_text(encoding="utf-8"), package_of(path)
        if mine not in ("privacy", "auditing"):
            assert re.search(r"\b_KEY\b", text) is None, path
            assert "_reveal" not in text, path
            assert "auditing" not in text or path.parts[-2:] in (("cli", "audit.py"), ("cli", "main.py")), path
        if mine not in ("privacy", "engines"):
            assert "._values" not in text, path


def test_no_function_takes_a_sensitivity():
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and "sensitivity" in {a.arg for a in node.args.args}:
                assert node.name == "_charge", f"{path}: {node.name} takes a sensitivity"


def test_a_fit_needs_numpy_alone():
    blocked = [
        "pyarrow",
        "scipy",
        "sklearn",
        "dp_accounting",
        "click",
        "jinja2",
        "safetensors",
        "torch",
        "rich",
    ]
    code = (
        f"import sys\nfor name in {blocked!r}: sys.modules[name] = None\n"
        "import numpy as np\n"
        "from apportion.data.synthetic import long_tailed_ratings\n"
        "from apportion.recommend import PrivateRatingRecommender\n"
        "data, _ = long_tailed_ratings(200, 50, 3000, rank=3, rng=np.random.default_rng(0))\n"
        "print(PrivateRatingRecommender(epsilon=1.0).fit(data).statement_.epsilon)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "1.0", done.stderr
