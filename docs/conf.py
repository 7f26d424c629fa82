"""Sphinx configuration."""

import logging

project = "apportion"
author = "The apportion developers"
copyright = "2026, the apportion developers"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "gallery_scripts"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = "apportion"
autodoc_typehints = "description"
autodoc_member_order = "bysource"
suppress_warnings = ["myst.header"]


def setup(app):
    """Bars in docstrings are absolute values, not substitutions; a pattern in a list of pages may match none yet."""
    app.connect("autodoc-process-docstring", escape_bars, priority=100)
    logging.getLogger("sphinx.sphinx.directives.other").addFilter(is_no_empty_pattern)


def escape_bars(app, what, name, obj, options, lines):
    lines[:] = [line.replace("|", "\\|") for line in lines]


def is_no_empty_pattern(record):
    return getattr(record, "subtype", "") != "empty_glob"
