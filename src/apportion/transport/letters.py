"""The messages of a pass as plain data: what a server sends in each stage, and what a client answers.

A client that refuses answers with the same few bytes, whatever the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from apportion.federated import RefusedError, Terms
from apportion.federated.masks import KEY_BYTES
from apportion.federated.messages import (
    Advertised,
    Confirmations,
    Confirmed,
    Delivered,
    Directory,
    Masked,
    Message,
    Revealed,
    SealedShares,
    Survivors,
)
from apportion.federated.shares import SHARE_BYTES
from apportion.transport.plain import MOST_HEADER, packed, unpacked
from apportion.transport.schema import Array, ByPosition, Raw, Several, Sizes, Table, Whole

REFUSAL: Final = packed({"stage": "refused"})
RUN_BYTES: Final = 16
_HELLO: Final = b"apportion hello 1|"  # no hash of terms begins so
_MOST_QUESTION: Final = 1 << 26
_RUN: Final = Raw(RUN_BYTES, RUN_BYTES)
_PUBLIC_KEY: Final = Raw(KEY_BYTES, KEY_BYTES)
_SIGNATURE: Final = Raw(64, 64)
_BOX: Final = Raw(2 * SHARE_BYTES + 16, 2 * SHARE_BYTES + 16)
_KEYS: Final = Table({"mask_key": _PUBLIC_KEY, "share_key": _PUBLIC_KEY, "signature": _SIGNATURE})
_POSITION: Final = Whole(0, 1 << 20)

_OF_SERVER: Final[Mapping[str, Table]] = {
    "hello": Table({"nonce": Raw(KEY_BYTES, KEY_BYTES)}),
    "terms": Table(
        {"run": _RUN, "question": Raw(1, _MOST_QUESTION), "until": Whole(0, 1 << 40), "signature": _SIGNATURE}
    ),
    "directory": Table({"run": _RUN, "keys": ByPosition(_KEYS)}),
    "delivered": Table({"run": _RUN, "boxes": ByPosition(_BOX)}),
    "survivors": Table({"run": _RUN, "clients": Several(_POSITION, 1, 1 << 20)}),
    "confirmations": Table({"run": _RUN, "signatures": ByPosition(_SIGNATURE)}),
}
_OF_CLIENT: Final[Mapping[str, Table]] = {
    "here": Table({"sender": _POSITION, "signature": _SIGNATURE}),
    "advertised": Table({"run": _RUN, "sender": _POSITION, **_KEYS.fields}),
    "sealed": Table({"run": _RUN, "sender": _POSITION, "boxes": ByPosition(_BOX)}),
    "masked": Table({"run": _RUN, "sender": _POSITION, "numbers": Array(("length",), kind="<u8")}),
    "confirmed": Table({"run": _RUN, "sender": _POSITION, "signature": _SIGNATURE}),
    "revealed": Table({"run": _RUN, "sender": _POSITION, "shares": ByPosition(Raw(SHARE_BYTES, SHARE_BYTES))}),
}
_MESSAGES: Final[Mapping[str, type[Message]]] = {
    "advertised": Advertised,
    "sealed": SealedShares,
    "masked": Masked,
    "confirmed": Confirmed,
    "revealed": Revealed,
}


def hello(nonce: bytes) -> bytes:
    """Return the letter by which a server finds out who is there."""
    return _written("hello", {"nonce": nonce}, _OF_SERVER, {})


def here(position: int, nonce: bytes, identity: Ed25519PrivateKey) -> bytes:
    """Return a client's answer to it: its place in the roster, signed."""
    return _written("here", {"sender": position, "signature": identity.sign(_HELLO + nonce)}, _OF_CLIENT, {})


def who_is_there(content: bytes, nonce: bytes, roster: Sequence[bytes]) -> int:
    """Return the position of the client that answered; refuse one that has not the key of that position."""
    stage, held = _read(content, _OF_CLIENT, {"clients": len(roster), "length": 0})
    if stage != "here" or held["sender"] >= len(roster):
        raise RefusedError("Expected a client to say who it is, got another answer.")
    try:
        Ed25519PublicKey.from_public_bytes(roster[held["sender"]]).verify(held["signature"], _HELLO + nonce)
    except InvalidSignature:
        raise RefusedError(f"Expected the signature of client {held['sender']}, got another's.") from None
    position: int = held["sender"]
    return position


def first_letter(run: bytes, question: bytes, until: int, signature: bytes) -> bytes:
    """Return the letter that opens a pass: its name, the question, and the second until which it may be begun.

    The server's signature is of all three.
    """
    held = {"run": run, "question": question, "until": until, "signature": signature}
    return _written("terms", held, _OF_SERVER, {})


def letter(content: Directory | Delivered | Survivors | Confirmations, sizes: Sizes) -> bytes:
    """Return what a server sends in a later stage."""
    if isinstance(content, Directory):
        keys = {
            each: {name: getattr(held, name) for name in _KEYS.fields} for each, held in content.keys.items()
        }  # fmt: skip
        return _written("directory", {"run": content.run, "keys": keys}, _OF_SERVER, sizes)
    if isinstance(content, Delivered):
        return _written("delivered", {"run": content.run, "boxes": content.boxes}, _OF_SERVER, sizes)
    if isinstance(content, Survivors):
        return _written("survivors", {"run": content.run, "clients": content.clients}, _OF_SERVER, sizes)
    return _written("confirmations", {"run": content.run, "signatures": content.signatures}, _OF_SERVER, sizes)


def opened(message: bytes, n_clients: int) -> tuple[str, dict[str, Any]]:
    """Read a server's letter: its stage, and what it says."""
    return _read(message, _OF_SERVER, {"clients": n_clients})


def directory(held: Mapping[str, Any]) -> Directory:
    """Return the directory that a letter holds."""
    run = held["run"]
    return Directory(run, {each: Advertised(run, each, **keys) for each, keys in held["keys"].items()})


def answer(message: Message, sizes: Sizes) -> bytes:
    """Return a client's message."""
    stage = next(name for name, kind in _MESSAGES.items() if type(message) is kind)
    table = {name: getattr(message, name) for name in _OF_CLIENT[stage].fields}
    return _written(stage, table, _OF_CLIENT, sizes)


def most_answer(terms: Terms) -> int:
    """Return how many bytes a client's answer has at most, in any stage of a pass."""
    raw = max(8 * terms.length, 4 * SHARE_BYTES * terms.n_clients)
    return MOST_HEADER + raw + 1024


def message_of(content: bytes, position: int, terms: Terms) -> Message:
    """Read what came from a client; refuse what is no message, or names another sender."""
    if content == REFUSAL:
        raise RefusedError(f"Client {position} refused.")
    stage, held = _read(content, _OF_CLIENT, {"clients": terms.n_clients, "length": terms.length})
    if stage not in _MESSAGES or held["sender"] != position:
        raise RefusedError(f"Client {position} sent a message in another's name.")
    return _MESSAGES[stage](**held)


def _written(stage: str, table: Mapping[str, Any], kinds: Mapping[str, Table], sizes: Sizes) -> bytes:
    return packed({"stage": stage, "held": kinds[stage].written(table, sizes)})


def _read(message: bytes, kinds: Mapping[str, Table], sizes: Sizes) -> tuple[str, dict[str, Any]]:
    plain = unpacked(message)
    if type(plain) is not dict or set(plain) != {"stage", "held"} or type(plain["stage"]) is not str:
        raise RefusedError("Expected a letter, got something else.")
    if plain["stage"] not in kinds:
        raise RefusedError("Expected a letter of a known stage, got another.")
    return plain["stage"], kinds[plain["stage"]].read(plain["held"], sizes)
