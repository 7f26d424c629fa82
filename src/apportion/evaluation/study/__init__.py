"""A study: methods x budgets x noise seeds from one TOML file, each fitted and measured once, resumable.

A *unit* is one fit and its measurement: settings of a method, ε, a noise seed, and the part of the data (validation or
test) it is measured on. A finished unit is one small file, named by a hash of everything that its figures depend on. So
an interrupted study continues where it stopped, and after a change only the changed method is fitted again.

The modules, each of which imports only from those above it::

    table_reading   checks a table key by key
    methods         `[[methods]]` of a study: settings, and the combinations of their grids
    description     the contents of a study file
    parts           how the data are divided and identified
    item_features   which rows have public features of the items
    units           what a unit depends on, and its hash
    bench           fitting, measuring and storing a unit
    processes       running units here or in several processes
    study_results   results over seeds
    running         which units are needed, which are missing, and what tuning chooses

Figures are computed from raw data and noise is seeded: everything here is internal and not for release.
"""

from __future__ import annotations

from apportion.evaluation.study.description import Budgets, Inspection, Measures, SplitPlan, Study, Tuning, read_study
from apportion.evaluation.study.methods import Method
from apportion.evaluation.study.running import run_study
from apportion.evaluation.study.study_results import StudyResults

__all__ = [
    "Budgets",
    "Inspection",
    "Measures",
    "Method",
    "SplitPlan",
    "Study",
    "StudyResults",
    "Tuning",
    "read_study",
    "run_study",
]
