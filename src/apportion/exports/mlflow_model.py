"""A model as an MLflow pyfunc that needs NumPy, pandas and safetensors, but not apportion."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Final

from apportion.exports import fold_in_alone
from apportion.exports.needed import library, refuse_unless_solvable, statement_of
from apportion.privacy.statement import Statement
from apportion.recommend import save
from apportion.recommend.model import ItemModel
from apportion.report.card import privacy_card

ALONE: Final = "apportion_fold_in"


def write_mlflow(model: ItemModel, folder: Path) -> None:
    """Write an MLflow model; its metadata include the privacy card.

    `mlflow.pyfunc.load_model(folder).predict(frame, params={"k": 20})` takes rows with user, item and value.
    """
    refuse_unless_solvable(model)
    statement = statement_of(model)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow warns about its own type hints when it is imported
        _save(model, statement, folder)


def _save(model: ItemModel, statement: Statement, folder: Path) -> None:
    pyfunc = library("mlflow.pyfunc", "mlflow")
    models, schema = library("mlflow.models", "mlflow"), library("mlflow.types.schema", "mlflow")
    params = schema.ParamSchema([schema.ParamSpec("k", "long", 20)])
    with tempfile.TemporaryDirectory() as staging:
        save(model, Path(staging) / "model")
        code = Path(staging) / f"{ALONE}.py"
        shutil.copy(fold_in_alone.__file__, code)
        pyfunc.save_model(
            str(folder),
            loader_module=ALONE,
            data_path=str(Path(staging) / "model"),
            code_paths=[str(code)],
            pip_requirements=["numpy", "pandas", "safetensors"],
            signature=models.ModelSignature(params=params),
            metadata={"privacy_card": privacy_card(statement)},
        )
