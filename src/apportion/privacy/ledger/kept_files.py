"""Small JSON files beside a ledger: replaced as a whole, durably, by one process at a time."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apportion.privacy.ledger.chain import FORMAT, LedgerError, require_ledger_format

Records = dict[str, Any]


def read_records(path: Path, what: str) -> Records | None:
    """Return the records in a file; None if there is no file. `what` names it in messages."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise LedgerError(f"The {what} {str(path)!r} cannot be read: {_reason(error)}.") from error
    return parsed_records(text, f"{what} {str(path)!r}")


def parsed_records(text: str, what: str) -> Records:
    """Return the records in a document of this format."""
    try:
        fields = json.loads(text)
        version, records = fields["format"], fields["accounts"]
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerError(f"The {what} cannot be read: it is not a ledger document.") from error
    require_ledger_format(f"The {what}", version)
    if not isinstance(records, dict):
        raise LedgerError(f"The {what} cannot be read: it is not a ledger document.")
    return records


def document(records: Records) -> str:
    """Return the text of records in this format."""
    return json.dumps({"format": FORMAT, "accounts": records}, indent=2, sort_keys=True) + "\n"


def change_records(path: Path, what: str, change: Callable[[Records], Records]) -> None:
    """Read, change and replace a file while no other process does. Return once it is on disk."""
    import fcntl

    try:
        with open(path.with_name(path.name + ".lock"), "a", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # lock another file, because the file itself is replaced
            replace_file(path, document(change(read_records(path, what) or {})))
    except OSError as error:
        raise LedgerError(f"The {what} {str(path)!r} cannot be written: {_reason(error)}.") from error


def replace_file(path: Path, content: str | bytes) -> None:
    """Replace a file as a whole. Return once it is on disk."""
    handle, staged = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content.encode("utf-8") if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        if path.exists():
            os.chmod(staged, path.stat().st_mode & 0o777)  # keep the owner's choice of mode
        os.replace(staged, path)
    except BaseException:
        Path(staged).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Put the names of a folder's files on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
