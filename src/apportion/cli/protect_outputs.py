"""What `protect` writes: a folder to share, and a private folder for each party.

    shared/report.html             the page that may be shared
    shared/released.json           what was released, in numbers; matrices are in released.safetensors
    shared/released.safetensors
    shared/statement.json
    shared/privacy-card.json
    parties/TASK/model.json        one party's model, for that party only
    parties/TASK/gain.json         its gain over learning alone, likewise
    parties/TASK/gain.html

Everything in shared/ is made from a `SharedResult` alone. The whole folder appears at once or not at all.
"""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from apportion.cli.outputs import REPORT, _plain, _swap
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.report.parties import PartyResult, SharedResult

SHARED: Final = "shared"
PARTIES: Final = "parties"
_RELEASED: Final = "released.json"
_DOCUMENT: Final = "shared result of protected multi-task learning"
_FORMAT: Final = 1
_AT_A_TIME: Final = 200  # parties


def refuse_unless_new(target: Path) -> None:
    """Refuse, before any work is done, a target that exists or cannot be written. Results of a fit are paid for."""
    if target.exists():
        raise InputError(f"Refusing to replace {str(target)!r}: it already exists.", argument="out")
    nearest = next(folder for folder in target.absolute().parents if folder.exists())
    if not nearest.is_dir():
        raise InputError(f"Cannot make the folder {str(target)!r}: {str(nearest)!r} is a file.", argument=None)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=nearest):
        pass  # a folder can be made there


def write_results(shared: SharedResult, parties: Iterable[PartyResult], target: Path) -> None:
    """Put all folders in place together."""
    from apportion.report.parties import party_pages

    refuse_unless_new(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        (staging / "new").mkdir(mode=0o755)
        write_shared(shared, staging / "new" / SHARED)
        (staging / "new" / PARTIES).mkdir(mode=0o700)
        for some in _batches(parties):
            for party, page in zip(some, party_pages(some, shared.statement), strict=True):
                _write_party(party, page, staging / "new" / PARTIES / party.task)
        _swap(staging, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write_shared(shared: SharedResult, folder: Path) -> None:
    """Write what may be shared."""
    from safetensors.numpy import save_file

    from apportion.recommend.storage import CARD
    from apportion.report.card import STATEMENT_FILE, card_json, privacy_card
    from apportion.report.parties import shared_page

    folder.mkdir(mode=0o755)
    save_file(_tensors(shared), str(folder / "released.safetensors"))
    (folder / _RELEASED).write_text(_as_text(as_document(shared)), encoding="utf-8")
    (folder / STATEMENT_FILE).write_text(shared.statement.to_json(), encoding="utf-8")
    (folder / CARD).write_text(card_json(privacy_card(shared.statement)), encoding="utf-8")
    (folder / REPORT).write_text(shared_page(shared), encoding="utf-8")
    for file in folder.iterdir():
        file.chmod(0o644)


def as_document(shared: SharedResult) -> dict[str, Any]:
    """Return what may be shared, without the matrices and the statement, in JSON form."""
    return {
        "format": _FORMAT,
        "document": _DOCUMENT,
        "releasable": shared.statement.releasable,
        "structure": shared.structure,
        "loss": shared.loss,
        "label": shared.label,
        "features": list(shared.features),
        "tasks": None if shared.tasks is None else list(shared.tasks),
        "rounds": [
            {"noise_stddev": one.stddev, "values": one.values.tolist(), "standing_out": one.kept}
            for one in shared.rounds
        ],
        "instance_protection": None if shared.instance is None else asdict(shared.instance),
    }


def _tensors(shared: SharedResult) -> dict[str, Any]:
    import numpy as np

    return {
        f"round_{k}.{name}": np.ascontiguousarray(matrix, np.float64)
        for k, one in enumerate(shared.rounds, 1)
        for name, matrix in (("matrix", one.matrix), ("shared", one.shared))
    }


def _batches(parties: Iterable[PartyResult]) -> Iterator[list[PartyResult]]:
    """Split into batches whose pages fit in memory."""
    left = iter(parties)
    while some := list(itertools.islice(left, _AT_A_TIME)):
        yield some


def _write_party(party: PartyResult, page: str, folder: Path) -> None:
    """Write one party's files, readable only by their owner."""
    from apportion.report.parties import FOR_THIS_PARTY

    marked = {"for": FOR_THIS_PARTY, "releasable": False, "task": party.task}
    compared = asdict(party.gain) | {"gain": party.gain.gain, "loss": party.loss, "own_weight": party.own_weight}
    folder.mkdir(mode=0o700)
    (folder / "model.json").write_text(_as_text(marked | dict(party.model)), encoding="utf-8")
    (folder / "gain.json").write_text(
        _as_text(marked | compared | {"rows_without_label": party.unlabelled}), encoding="utf-8"
    )
    (folder / "gain.html").write_text(page, encoding="utf-8")
    for file in folder.iterdir():
        file.chmod(0o600)


def _as_text(content: Mapping[str, Any]) -> str:
    return json.dumps(_plain(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
