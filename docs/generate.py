"""Writes what is generated in the documentation: drawings, the gallery, the API reference, the command line's help."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import shutil
import sys
from pathlib import Path
from types import ModuleType

import click

from apportion.estimators import Estimator
from apportion.privacy import Session

DOCS = Path(__file__).parent

INTERNAL = ("cli", "estimators", "linalg", "postprocessing")
"""Packages whose names are for the library itself."""


def public_modules() -> dict[str, ModuleType]:
    """The modules whose names are public, by name: those that list them in `__all__`."""
    import apportion

    found = {}
    for each in pkgutil.walk_packages(apportion.__path__, "apportion."):
        parts = each.name.split(".")
        if parts[1] not in INTERNAL and not any(part.startswith("_") for part in parts):
            module = importlib.import_module(each.name)
            if hasattr(module, "__all__"):
                found[each.name] = module
    return found


def write_api(folder: Path) -> None:
    """Write the top level first, then one page per package with its public names; a name is documented once."""
    import apportion

    documented: dict[int, str] = {}
    lines = ["# apportion", "", apportion.__doc__ or "", "", *_entries("apportion", apportion, documented)]
    (folder / "apportion.md").write_text("\n".join(lines), encoding="utf-8")
    pages: dict[str, list[str]] = {}
    for name, module in public_modules().items():
        page = pages.setdefault(name.split(".")[1], [f"# {name.split('.')[1]}", ""])
        page += [f"## {name}", "", module.__doc__ or "", "", *_entries(name, module, documented)]
    for package, page in pages.items():
        (folder / f"{package}.md").write_text("\n".join(page), encoding="utf-8")
    listed = "\n".join(["apportion", *pages, "command-line"])
    text = f"# Reference\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"
    (folder / "index.md").write_text(text, encoding="utf-8")


def _entries(name: str, module: ModuleType, documented: dict[int, str]) -> list[str]:
    """List a module's public names, or where they are already documented."""
    lines = []
    for public in module.__all__:
        thing = getattr(module, public)
        where = documented.setdefault(id(thing), f"{name}.{public}")
        if where == f"{name}.{public}":
            lines += ["```{eval-rst}", *_directive(where, thing), "```", ""]
        else:
            lines += [f"`{public}`: see `{where}`.", ""]
    return lines


def _directive(name: str, thing: object) -> list[str]:
    if inspect.isclass(thing):
        inherited = ["   :inherited-members:"] if issubclass(thing, Estimator | Session) else []
        return [f".. autoclass:: {name}", "   :members:", *inherited, "   :show-inheritance:"]
    if inspect.isroutine(thing):
        return [f".. autofunction:: {name}"]
    return [f".. py:data:: {name}", f"   :type: {type(thing).__name__}"]


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


if __name__ == "__main__":
    reference = DOCS / "reference"
    shutil.rmtree(reference, ignore_errors=True)
    reference.mkdir()
    write_api(reference)
    write_command_line(reference)
    sys.path.insert(0, str(DOCS.parent))  # drawings use those of the papers, the gallery uses stored results too
    importlib.import_module("gallery").write_gallery(DOCS / "gallery")
    importlib.import_module("drawings").write_drawings(DOCS / "pictures" / "drawn")
