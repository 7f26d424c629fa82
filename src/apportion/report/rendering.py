"""Templates to pages: every value is escaped, and a page refers to nothing outside itself."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from apportion.report import wording

_FUNCTIONS = (
    wording.begun,
    wording.bound,
    wording.exact,
    wording.number,
    wording.percent,
    wording.percent_bound,
    wording.shape,
    wording.whole,
)


def source(name: str) -> str:
    """Return a style sheet or script from the templates, unchanged."""
    return (files("apportion.report") / "templates" / name).read_text(encoding="utf-8")


def render(template: str, **values: Any) -> str:
    """Fill in a template; a missing name is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("apportion.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for function in _FUNCTIONS:
        environment.globals[function.__name__] = function
    return environment.get_template(template).render(**values)
