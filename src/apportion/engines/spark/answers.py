"""What a task of a pass answers: sums over some buckets, and a roll that says which buckets these are.

Answers cross the network as bytes under the channel of their pass. Two answers are added only if no bucket is in both;
of two equal answers one is dropped, and two different ones for a bucket are refused. So no retry, no second copy and no
lost task can change a sum.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from apportion.errors import InputError
from apportion.privacy.contributions import Channel, PartialSums
from apportion.privacy.contributions.partial_sums import Layout

BLOCK = 1 << 20  # whole numbers that one reducer adds up at a time

Roll = dict[int, tuple[int, str]]
"""For each bucket its number of users and a checksum of its rows."""


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """Sums over the buckets of a roll.

    Attributes:
        roll: which buckets.
        layout: the shapes of all sums of the pass, of which this may be one block.
        sums: the sums, or a block of them.
        texts: the keys that were counted, in text order, where each bucket has its own; None where there is a list.
    """

    roll: Roll
    layout: Layout
    sums: PartialSums
    texts: tuple[str, ...] | None = None

    def blocks(self, numbers: int, groups: int) -> dict[int, Answer]:
        """Return the answer in blocks: of so many numbers, or where there is no list in groups of keys by a hash."""
        if self.texts is None:
            parts = self.sums.blocks(numbers)
            return {k: Answer(self.roll, self.layout, part) for k, part in enumerate(parts)}
        group = np.array([_group_of(text, groups) for text in self.texts], np.int64)
        return {k: self._of_keys(group == k) for k in range(groups)}

    def _of_keys(self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Answer:
        assert self.texts is not None
        texts = tuple(text for text, is_chosen in zip(self.texts, chosen, strict=True) if is_chosen)
        return Answer(self.roll, (), self.sums.of_keys(chosen), texts)

    def to_wire(self, channel: Channel) -> bytes:
        """Return bytes that only reducers of this pass accept."""
        head = json.dumps({"roll": list(self.roll.items()), "layout": self.layout, "texts": self.texts}).encode()
        return channel.sealed(len(head).to_bytes(8, "little") + head + self.sums.to_wire(channel))

    @classmethod
    def from_wire(cls, message: bytes, channel: Channel) -> Answer:
        """Read back what a worker of this pass sent."""
        content = channel.opened(message)
        end = 8 + int.from_bytes(content[:8], "little")
        head = json.loads(content[8:end])
        roll = {bucket: (users, digest) for bucket, (users, digest) in head["roll"]}
        layout = tuple(tuple(tuple(shape) for shape in shapes) for shapes in head["layout"])
        texts = None if head["texts"] is None else tuple(head["texts"])
        return cls(roll, layout, PartialSums.from_wire(content[end:], channel), texts)

    def __add__(self, other: Answer) -> Answer:
        if self.layout != other.layout:
            raise InputError(
                "Two tasks of a pass answered sums of different shapes; nothing was released.", argument=None
            )
        sums, texts = self.sums, self.texts
        if texts is None or other.texts is None:
            return Answer({**self.roll, **other.roll}, self.layout, sums + other.sums)
        every = sorted({*texts, *other.texts})
        place = {text: k for k, text in enumerate(every)}
        mine, theirs = (
            each.sums.spread(np.array([place[text] for text in each.texts or ()], np.int64), len(every))
            for each in (self, other)
        )
        return Answer({**self.roll, **other.roll}, self.layout, mine + theirs, tuple(every))

    def same_as(self, other: Answer) -> bool:
        """Whether this is another copy of the same answer."""
        return self.roll == other.roll and self.texts == other.texts and self.sums.same_as(other.sums)

    def __repr__(self) -> str:
        return f"Answer({len(self.roll)} buckets, values hidden)"


def merged(answers: Iterable[Answer]) -> Answer:
    """Add up answers, each bucket once; copies are dropped, and answers that contradict each other are refused."""
    kept: list[Answer] = []
    for answer in answers:
        seen = [each for each in kept if not each.roll.keys().isdisjoint(answer.roll)]
        if not seen:
            kept.append(answer)
        elif not (len(seen) == 1 and seen[0].same_as(answer)):
            both = min(set(seen[0].roll) & set(answer.roll))
            raise InputError(
                f"Two tasks answered for bucket {both} and do not agree; nothing was released. A user's rows may have "
                "been split, or the frame gives other rows each time it is read.",
                argument=None,
            )
    total, *rest = kept
    for answer in rest:
        total = total + answer
    return total


def complete(answers: Sequence[Answer], buckets: int) -> None:
    """Refuse blocks that do not all cover every bucket, with the same users in each."""
    for answer in answers:
        missing = sorted(set(range(buckets)) - set(answer.roll))
        if missing:
            raise InputError(
                f"No task answered for bucket {missing[0]} of {buckets}; nothing was released.", argument=None
            )
        if answer.roll != answers[0].roll or answer.layout != answers[0].layout:
            raise InputError("Blocks of one pass are sums over different users; nothing was released.", argument=None)
    if not answers:
        raise InputError("No task answered; nothing was released.", argument=None)


def _group_of(text: str, groups: int) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "little") % groups
