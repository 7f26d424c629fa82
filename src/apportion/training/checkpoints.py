"""Stopping and going on: a checkpoint holds all that a training needs to take its next steps as if it had not stopped.

Noise comes from a ratchet: every draw takes a key from a chain of hashes, and the checkpoint holds the key of the next
one. So a step that is taken twice, because a run was killed after it, has the same sample and the same noise both
times: it is one release. Keys of earlier draws cannot be computed from later ones. Whoever has a checkpoint and sees
later gradients can take their noise off, so a checkpoint must be kept as secret as the rows. It is refused for other
rows or settings than its own: two sums with the same noise would tell their difference (docs/proofs/optimizers.md).
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.privacy import NoiseSource
from apportion.privacy.ledger import Receipt
from apportion.privacy.noise import KeyedNoise
from apportion.privacy.statement import Statement

FORMAT = 3  # those before did not say where the noise came from, nor what the trained parameters had cost before


@dataclass(frozen=True)
class TrainingCheckpoint:
    """Where a training writes its checkpoint, and how often.

    Attributes:
        path: the file, written whole or not at all, readable only by its owner. Keep it as secret as the rows.
        every: number of steps between two writes.
    """

    path: str | os.PathLike[str]
    every: int = 100

    def __post_init__(self) -> None:
        if self.every < 1:
            raise InputError(f"Expected every of at least 1, got {self.every}.", argument="every")


class RatchetNoise(KeyedNoise):
    """Noise from a chain of keys that starts at a key of another source.

    Args:
        source: the first key, and whether results may be published.
        state: the key to go on from; None to start.
    """

    exact = False

    def __init__(self, source: NoiseSource, state: bytes | None = None) -> None:
        self.releasable = source.releasable
        self.description = f"{source.description}; keys of a chain, so that a run can be stopped and go on"
        self._state = source.key() if state is None else state

    @property
    def state(self) -> bytes:
        """The key of the next draw; as secret as the noise."""
        return self._state

    def key(self) -> bytes:
        """Return the next key."""
        result = hashlib.blake2b(self._state, digest_size=32, person=b"draw").digest()
        self._state = hashlib.blake2b(self._state, digest_size=32, person=b"next").digest()
        return result

    def uniform(self, size: int) -> NDArray[np.float64]:
        """Return draws from (0, 1) with 52 random bits, never 0 or 1."""
        bits = np.frombuffer(hashlib.shake_256(self.key()).digest(8 * size), dtype=np.uint64) >> np.uint64(12)
        return (bits.astype(np.float64) + 0.5) * 2.0**-52


@dataclass(frozen=True, eq=False)
class Stored:
    """What a checkpoint holds.

    Attributes:
        made: number of steps taken.
        noise: the key of the next draw.
        training: states of module, optimizer and scheduler.
        gradients: state of the private gradients.
        statement: of everything released so far.
        receipts: of the charges to a ledger so far.
    """

    made: int
    noise: bytes
    training: dict[str, Any]
    gradients: dict[str, Any]
    statement: Statement
    receipts: tuple[Receipt, ...] = ()


def write(checkpoint: TrainingCheckpoint, stored: Stored, identity: str) -> None:
    """Write a checkpoint, whole or not at all."""
    path = Path(checkpoint.path)
    held = {
        "format": FORMAT,
        "identity": identity,
        "made": stored.made,
        "noise": stored.noise.hex(),
        "training": stored.training,
        "gradients": stored.gradients,
        "statement": stored.statement.to_json(),
        "receipts": [asdict(receipt) for receipt in stored.receipts],
    }
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # readable only by its owner
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save(held, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read(checkpoint: TrainingCheckpoint, identity: str) -> Stored | None:
    """Return what a checkpoint holds; None if there is none. Refuse one of another training."""
    path = Path(checkpoint.path)
    if not path.exists():
        return None
    try:
        held = torch.load(path, weights_only=True)
        known = isinstance(held, dict) and held.get("format") == FORMAT
    except Exception as error:  # whatever torch raises for a file of another kind
        raise InputError(f"Cannot read the checkpoint {str(path)!r}: {error}", argument="checkpoint") from error
    if not known:
        raise InputError(f"Expected a checkpoint of this version in {str(path)!r}, got none.", argument="checkpoint")
    if held["identity"] != identity:
        raise InputError(
            f"Expected a checkpoint of the same rows and settings in {str(path)!r}, got that of another training; "
            "name another file.",
            argument="checkpoint",
        )
    statement, receipts = Statement.from_json(held["statement"]), tuple(Receipt(**each) for each in held["receipts"])
    return Stored(held["made"], bytes.fromhex(held["noise"]), held["training"], held["gradients"], statement, receipts)


def identity_of(settings: dict[str, Any], tensors: list[torch.Tensor], arrays: list[NDArray[Any]]) -> str:
    """Return a hash of the settings and of all rows."""
    total = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=32)
    for tensor in tensors:
        held = tensor.detach().cpu().contiguous()
        total.update(f"{held.dtype}{tuple(held.shape)}".encode())
        total.update(held.view(torch.uint8).numpy().tobytes() if held.numel() else b"")
    for array in arrays:
        total.update(f"{array.dtype}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()
