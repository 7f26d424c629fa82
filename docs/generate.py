"""Writes what is generated in the documentation: the API reference, the command line's own help, the claims."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from pathlib import Path

import click

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))


def write_api(folder: Path) -> None:
    """One page per package, with every public module of it."""
    import apportion

    packages: dict[str, list[pkgutil.ModuleInfo]] = {}
    for module in pkgutil.walk_packages(apportion.__path__, "apportion."):
        parts = module.name.split(".")
        if parts[1] != "cli" and not any(part.startswith("_") for part in parts):
            packages.setdefault(parts[1], []).append(module)
    for package, modules in packages.items():
        lines = [f"# {package}", ""]
        for module in modules:
            lines += [f"## {module.name}", "", "```{eval-rst}", f".. automodule:: {module.name}", "   :members:"]
            lines += [
                "   :no-index:" if module.ispkg else "   :show-inheritance:",
                "```",
                "",
            ]
        (folder / f"{package}.md").write_text("\n".join(lines), encoding="utf-8")
    listed = "\n".join(["command-line", *packages])
    text = f"# Reference\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"
    (folder / "index.md").write_text(text, encoding="utf-8")


def write_command_line(folder: Path) -> None:
    """The help texts of the program itself."""
    group = importlib.import_module("apportion.cli.main").program
    context = click.Context(group, info_name="apportion")
    lines = ["# Command line", "", "```text", group.get_help(context), "```", ""]
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = click.Context(command, info_name=name, parent=context)
        lines += [f"## apportion {name}", "", "```text", command.get_help(inner), "```", ""]
    (folder / "command-line.md").write_text("\n".join(lines), encoding="utf-8")


def write_claims(path: Path) -> None:
    """Every stored figure with its settings."""
    from benchmarks.claim import RESULTS
    from benchmarks.table import is_older

    lines = ["# Claims", "", "Every figure we state, as stored by `make claim NAME=...`.", ""]
    for result in sorted(RESULTS.glob("*.json")):
        stored = json.loads(result.read_text(encoding="utf-8"))
        lines += [f"## {stored['claim']}", "", stored["headline"], ""]
        lines += ["Measured on an earlier source.", ""] if is_older(stored) else []
        lines += ["```json"]
        lines += [json.dumps(stored, indent=2, ensure_ascii=False), "```", ""]
    path.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    reference = DOCS / "reference"
    reference.mkdir(exist_ok=True)
    write_api(reference)
    write_command_line(reference)
    write_claims(DOCS / "reference" / "claims.md")
