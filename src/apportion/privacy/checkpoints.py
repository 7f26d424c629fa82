"""Checkpoints store each release of a session before anything else sees it, so that a stopped fit can be resumed.

A resumed fit starts from its beginning. Each release that is stored is answered from the checkpoint: nothing is charged
and nothing is drawn for it. The first release that is not stored is charged, even if it was charged before, and then
drawn. So one charge never pays for two draws (docs/proofs/checkpoints.md).

A checkpoint holds released values and the receipts of their charges. It holds no noise, no key of noise and no secret
of a sample. It identifies the data only by a code under a key that is stored elsewhere.
"""

from __future__ import annotations

import io
import json
import os
import threading
import weakref
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np

from apportion.errors import BudgetError, InputError, require_format
from apportion.privacy.keys import Listed
from apportion.privacy.ledger.events import Event, Receipt, to_json
from apportion.privacy.ledger.kept_files import replace_file
from apportion.privacy.ledger.keys import LedgerKey
from apportion.privacy.ledger.reservations import Made
from apportion.privacy.statement import Release

FORMAT: Final = 2
VARIABLE: Final = "APPORTION_CHECKPOINT_KEY"
_CONTEXT: Final = "checkpoint.json"
_PLAN: Final = "plan.json"
_RESERVATIONS: Final = "reservations.json"
_LOCK: Final = "lock"
_LABEL: Final = "checkpoint"


@dataclass(frozen=True, eq=False)
class Kept:
    """A release that was stored.

    Attributes:
        value: the released value.
        receipt: the receipt of its charge, if a ledger was charged.
    """

    value: Any
    receipt: Receipt | None


class Checkpoint:
    """A folder with the releases of one fit.

    Args:
        folder: the folder of the checkpoint. It is created if it does not exist. It is as confidential as the model
            until the model is published.
        key: file of the key for the fingerprint of the data. Default: $APPORTION_CHECKPOINT_KEY, or a file in the
            user's own folder, which is created once. It must be in another folder than the checkpoint.

    Example:
        >>> import tempfile
        >>> place = tempfile.mkdtemp()
        >>> key = LedgerKey.create(tempfile.mkdtemp() + "/key").place
        >>> Checkpoint(place + "/fit", key=key).n_stored
        0
    """

    def __init__(self, folder: str | os.PathLike[str], *, key: str | os.PathLike[str] | None = None) -> None:
        self.folder = Path(folder)
        self._key = _found_key(key)
        if self.folder.resolve() == self._key.folder:
            raise InputError(
                f"Expected the checkpoint in another folder than its key, got {str(self.folder)!r}: whoever has both "
                "can test guesses about the data.",
                argument="folder",
            )
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.lock = threading.RLock()  # allows one release at a time, and no `bind` during it
        self._held: weakref.finalize[..., Checkpoint] | None = None
        self._bound: str | None = None
        self._turn = 0
        self._claimed = False
        self._process = os.getpid()

    @property
    def n_stored(self) -> int:
        """The number of releases that are stored."""
        number = 0
        while self._file(number).exists():
            number += 1
        return number

    def bind(self, data: str, settings: str) -> None:
        """Bind the checkpoint to a fit. Refuse to resume a fit with other data or settings.

        Args:
            data: a digest of the data; private. Only a code of it under the key is stored.
            settings: everything else that the releases depend on, in words.
        """
        told = {"data": self._key.code(_LABEL, f"data {data}"), "settings": self._key.code(_LABEL, settings)}
        with self.lock:
            self._hold()
            try:
                self._compare(told)
            except BaseException:
                self.close()
                raise
            self._bound = f"{told['data']} {told['settings']}"
            self._turn, self._claimed, self._process = self._turn + 1, False, os.getpid()

    def claim(self) -> int:
        """Return the turn that the last `bind` began. Only one session gets it; the next one must bind again."""
        with self.lock:
            self._require(None)
            if self._claimed:
                raise _taken_over(self.folder)
            self._claimed = True
            return self._turn

    def _compare(self, told: dict[str, str]) -> None:
        path = self.folder / _CONTEXT
        if path.exists():
            known = self._read_json(path)
            require_format(f"The checkpoint {str(self.folder)!r}", known.get("format"), FORMAT)
            for name in (name for name in told if known.get(name) != told[name]):
                raise InputError(
                    f"The checkpoint {str(self.folder)!r} is of a fit with other {name}, or made with another key; "
                    "name another folder to start anew.",
                    argument="checkpoint",
                )
        else:
            replace_file(path, json.dumps({"format": FORMAT, **told}) + "\n")

    def find(self, number: int, record: Release, *, planned: bool, turn: int | None = None) -> Kept | None:
        """Return a stored release; None if it has yet to be made. Refuse if another release is stored in its place.

        Args:
            number: the number of the release.
            record: the release that is asked for.
            planned: whether it was charged together with all other releases of its session, before the first.
            turn: the turn of the session, from `claim`. Only the last turn is accepted.
        """
        self._require(turn)
        if self._file(number).exists():
            return self._opened(number, record)
        if planned and self._begun(number).exists():
            raise BudgetError(
                f"Release {record.name!r} was begun before the program stopped, and its plan was charged only once; "
                "start a new fit, in another checkpoint."
            )
        return None

    def begin(self, number: int, turn: int | None = None) -> None:
        """Record durably that a release is about to be drawn."""
        self._require(turn)
        replace_file(self._begun(number), "")

    def store(self, number: int, record: Release, value: Any, receipt: Receipt | None, turn: int | None = None) -> None:
        """Store a release. It is on disk when this returns."""
        self._require(turn)
        arrays, told = _packed(value)
        head = {"record": _record(record), "receipt": None if receipt is None else asdict(receipt), **told}
        body = io.BytesIO()
        np.savez(body, head=np.frombuffer(json.dumps(head).encode(), np.uint8), **arrays)
        content = body.getvalue()
        replace_file(self._file(number), self._code(number, content).encode("ascii") + content)

    def plan_charged(self, plan: str, event: Event, account: str | None, turn: int | None = None) -> Receipt | None:
        """Return the receipt of a plan's charge if it is stored. Refuse a receipt of another plan or account."""
        self._require(turn)
        path = self.folder / _PLAN
        if not path.exists():
            return None
        known = self._read_json(path)
        if known.pop("code", None) != self._plan_code(known):
            raise InputError(
                f"The plan of the checkpoint {str(self.folder)!r} is not what was stored.", argument="checkpoint"
            )
        if (known["plan"], known["event"]) != (plan, _digest_of(event)):
            raise BudgetError(f"The checkpoint {str(self.folder)!r} is of a fit with another plan; start a new fit.")
        receipt = Receipt(**known["receipt"])
        if account is not None and receipt.account != account:
            raise BudgetError(
                f"The plan of the checkpoint {str(self.folder)!r} was charged to account {receipt.account!r}, not to "
                f"{account!r}; start a new fit."
            )
        return receipt

    def store_plan(self, plan: str, event: Event, receipt: Receipt, turn: int | None = None) -> None:
        """Store the receipt of a plan's charge."""
        self._require(turn)
        told = {"plan": plan, "event": _digest_of(event), "receipt": asdict(receipt)}
        replace_file(self.folder / _PLAN, json.dumps({**told, "code": self._plan_code(told)}))

    def reservations(self, account: str) -> Made:
        """Return what earlier processes of this fit set aside on an account."""
        try:
            held = json.loads((self.folder / _RESERVATIONS).read_text(encoding="utf-8"))
            if held["account"] == account:
                return Made(tuple(int(number) for number in held["numbers"]), bool(held["finished"]))
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return Made()

    def keep_reservations(self, account: str, kept: Made) -> None:
        """Store them. They decide who else may charge an account, and nothing about noise."""
        told = {"account": account, "numbers": kept.numbers, "finished": kept.finished}
        replace_file(self.folder / _RESERVATIONS, json.dumps(told) + "\n")

    def close(self) -> None:
        """Release the checkpoint, so that another process can use it."""
        if self._held is not None:
            self._held()
        self._held = self._bound = None

    def _hold(self) -> None:
        """Lock out other processes.

        Two processes that resume one fit would each draw the releases that are not yet stored.
        """
        import fcntl

        self.close()
        handle = os.open(self.folder / _LOCK, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise InputError(
                f"Another process is at work on the checkpoint {str(self.folder)!r}.", argument="checkpoint"
            ) from None
        self._held = weakref.finalize(self, os.close, handle)

    def _require(self, turn: int | None) -> None:
        """Refuse a checkpoint that nobody bound, a session that another one has replaced, and a child process."""
        if self._held is None or self._bound is None:
            raise InputError(
                "This estimator cannot be resumed: its session has a checkpoint that nobody bound to "
                "the data. Leave the checkpoint out.",
                argument="checkpoint",
            )
        if turn not in (None, self._turn) or os.getpid() != self._process:
            raise _taken_over(self.folder)

    def _opened(self, number: int, record: Release) -> Kept:
        message = self._file(number).read_bytes()
        code, content = message[:64], message[64:]
        if code.decode("ascii", "replace") != self._code(number, content):
            raise InputError(
                f"Release {number} of the checkpoint {str(self.folder)!r} is not what was stored.",
                argument="checkpoint",
            )
        with np.load(io.BytesIO(content), allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files if name != "head"}
            head = json.loads(held["head"].tobytes())
        if head["record"] != _record(record):
            raise InputError(
                f"Release {record.name!r} is not the one that the checkpoint {str(self.folder)!r} holds in its place; "
                "the settings or the data differ.",
                argument="checkpoint",
            )
        return Kept(_unpacked(arrays, head), None if head["receipt"] is None else Receipt(**head["receipt"]))

    def _code(self, number: int, content: bytes) -> str:
        """Return the code of a release: of its number, of the fit it belongs to, and of the stored content."""
        return self._key.code(_LABEL, f"release {number} of {self._bound}: {sha256(content).hexdigest()}")

    def _plan_code(self, told: dict[str, Any]) -> str:
        return self._key.code(_LABEL, f"plan of {self._bound}: {json.dumps(told, sort_keys=True)}")

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:06d}.release"

    def _begun(self, number: int) -> Path:
        return self.folder / f"{number:06d}.begun"

    def _read_json(self, path: Path) -> dict[str, Any]:
        try:
            held: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise InputError(f"The checkpoint {str(self.folder)!r} cannot be read.", argument="checkpoint") from None
        return held


def _found_key(given: str | os.PathLike[str] | None) -> LedgerKey:
    """Return the given key, else the one that the environment names, else the user's own, which is created once."""
    named = given or os.environ.get(VARIABLE)
    if named:
        return LedgerKey.read(named)
    own = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "apportion" / "checkpoint.key"
    if not own.exists():
        own.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return LedgerKey.create(own)
    return LedgerKey.read(own)


def _taken_over(folder: Path) -> InputError:
    return InputError(
        f"Another session or process is at work on the checkpoint {str(folder)!r}; this one can no longer use it.",
        argument="checkpoint",
    )


def _digest_of(event: Event) -> str:
    return sha256(json.dumps(to_json(event), sort_keys=True).encode()).hexdigest()


def _record(record: Release) -> Any:
    """Return the record of a release as JSON would read it back."""
    return json.loads(json.dumps(asdict(record), default=str))


def _packed(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a released value as arrays and words."""
    if isinstance(value, Listed):
        told = {"kind": "listed", "texts": value.texts, "threshold": value.threshold, "scale": value.scale}
        return {"counts": value.counts, "known": value.known}, told
    if isinstance(value, np.ndarray):
        return {"value": value}, {"kind": "array"}
    if isinstance(value, int | np.integer):
        return {"value": np.asarray(value)}, {"kind": "number"}
    if isinstance(value, list) and all(isinstance(each, float) for each in value):
        return {"value": np.asarray(value, np.float64)}, {"kind": "points"}
    raise InputError(
        f"A release of type {type(value).__name__} cannot be stored in a checkpoint.", argument="checkpoint"
    )


def _unpacked(arrays: dict[str, Any], told: dict[str, Any]) -> Any:
    if told["kind"] == "listed":
        texts = tuple(told["texts"])
        return Listed(texts, arrays["counts"], arrays["known"], told["threshold"], told["scale"])
    value = arrays["value"]
    return {"array": lambda: value, "number": lambda: int(value), "points": value.tolist}[told["kind"]]()
