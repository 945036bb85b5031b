"""Assembles messages that came in chunks (PIP-37).

The chunks of a message come in order, but those of different messages may come mixed. How many
messages are kept half received, and how large one may become, is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from trilogue.client.pulsar.section import Section

MAX_CHUNKS: Final = 100_000


class BegunMessage(NamedTuple):
    """A message of which a reader has its first chunk, and the application has nothing yet.

    `first` and `last`: ledger id and entry id of its first chunk, and of the newest one received.
    """

    producer_name: str
    first: tuple[int, int]
    last: tuple[int, int]


@dataclass(slots=True)
class _PartialMessage:
    """A message of which chunks are still to come."""

    producer_name: str
    count: int
    total: int
    parts: list[bytes] = field(default_factory=list)
    ids: list[tuple[int, int]] = field(default_factory=list)
    size: int = 0


class ChunkAssembler:
    """Joins chunks into payloads."""

    def __init__(self, most_halves: int, size_limit: int) -> None:
        """`most_halves`: 0 is any number, as in Pulsar's own clients."""
        self._most_halves = most_halves
        self._size_limit = size_limit
        self._halves: dict[str, _PartialMessage] = {}

    def __len__(self) -> int:
        return len(self._halves)

    @property
    def size_bytes(self) -> int:
        """How many bytes of chunks wait for others."""
        return sum(half.size for half in self._halves.values())

    def clear(self) -> None:
        """Forget what is half received: it will be sent again from its beginning."""
        self._halves.clear()

    def begun(self) -> list[BegunMessage]:
        """Return the messages of which chunks are still to come, in the order of their first."""
        return [
            BegunMessage(half.producer_name, half.ids[0], half.ids[-1])
            for half in self._halves.values()
        ]

    def add(
        self, place: tuple[int, int], opened: Section
    ) -> tuple[bytes, tuple[tuple[int, int], ...]] | None:
        """Take a chunk; the whole payload and the places of all its chunks with the last one.

        A chunk that a producer has sent twice is passed over: its place goes with the message. One
        that does not follow the one before is not taken, and its message forgotten: the broker
        redelivers it from the first chunk, because it is not acknowledged.
        """
        metadata, payload = opened.metadata, opened.payload
        uuid = metadata.uuid or ""
        half = self._halves.get(uuid)
        if metadata.chunk_id == 0:
            half = self._begin(opened)
        if half is None:
            return None
        is_repeated = metadata.chunk_id < len(half.parts) and metadata.num_chunks == half.count
        if is_repeated and len(half.ids) < MAX_CHUNKS:
            half.ids.append(place)
            return None
        fits = (
            metadata.chunk_id == len(half.parts)
            and metadata.num_chunks == half.count
            and half.size + len(payload) <= half.total
        )
        if not fits:
            del self._halves[uuid]
            return None
        half.parts.append(bytes(payload))
        half.ids.append(place)
        half.size += len(payload)
        if len(half.parts) < half.count:
            return None
        del self._halves[uuid]
        return (b"".join(half.parts), tuple(half.ids)) if half.size == half.total else None

    def _begin(self, opened: Section) -> _PartialMessage | None:
        metadata = opened.metadata
        uuid = metadata.uuid or ""
        count, total = metadata.num_chunks, metadata.total_chunk_size
        self._halves.pop(uuid, None)
        if not (uuid and 1 < count <= MAX_CHUNKS and 0 <= total <= self._size_limit):
            return None
        if 0 < self._most_halves <= len(self._halves):  # the one that waited longest goes
            self._halves.pop(next(iter(self._halves)))
        half = self._halves[uuid] = _PartialMessage(metadata.producer_name, count, total)
        return half
