"""`apportion export`: write a saved model in a format for production."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from apportion.cli.options import json_option
from apportion.cli.outputs import print_json
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.recommend.model import ItemModel

_FORMS: Final = {
    "parquet": "-items.parquet",
    "onnx": ".onnx",
    "faiss": "-faiss",
    "huggingface": "-huggingface",
    "mlflow": "-mlflow",
}


@click.command(short_help="Write a model in a format for production.")
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--to", "form", type=click.Choice(list(_FORMS)), required=True, help="The format.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="File or folder to write; default: MODEL's name with the format's ending.",
)
@json_option
def export(model: Path, form: str, out: Path | None, as_json: bool) -> None:
    """Write a saved MODEL for other libraries, which can load it without apportion.

    parquet: item vectors (id, vector, bias). onnx: the whole fold-in, from a history to the best items. faiss: an
    inner-product index and the items. huggingface: a folder with a model card whose metadata include the privacy card.
    mlflow: a pyfunc. Like the model, each holds only released values and the statement.
    """
    from apportion.recommend import load

    target = out or Path(f"{model.resolve().name}{_FORMS[form]}")
    if target.exists():
        raise InputError(f"Refusing to replace {str(target)!r}: it already exists.", argument="out")
    fitted = load(model)
    _write_whole(fitted, form, target)
    assert fitted.statement is not None
    if as_json:
        print_json({"format": form, "written": target, "releasable": fitted.statement.releasable})
        return
    if not fitted.statement.releasable:
        click.echo("NOT FOR RELEASE: the model's noise came from a seed.", err=True)
    click.echo(f"Written: {target}")


def _write_whole(model: ItemModel, form: str, target: Path) -> None:
    """Write to a temporary place, then move it, so that nothing half-written is left."""
    from apportion import exports

    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as staging:
        staged = Path(staging) / "new"
        getattr(exports, f"write_{form}")(model, staged)
        if staged.is_dir():
            shutil.move(staged, target)
        else:
            os.replace(staged, target)
