"""Metadata answers from rows that are encoded once: a topic with 1,000 partitions costs 1 ms else.

A response is written by the codec without topics, and the encoded topics are put where they belong:

    ... brokers, cluster, controller | count | topic | topic | ... | what comes behind the topics
                                                                    |<------- tail ------->|

Where that is and how the count is written is found once for each version, by comparing what the
codec writes for no topic and for one. A topic's row says the same to every client as long as the
topic is there, unless authorized operations were asked for; such rows, and errors, are not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from struct import Struct

from trilogue.broker.topic import Topic
from trilogue.gateway.kafka import replies
from trilogue.wire.kafka.compile import encoder
from trilogue.wire.kafka.metadata import MetadataResponse, MetadataResponseTopic
from trilogue.wire.kafka.runtime import uvarint
from trilogue.wire.kafka.schema import table

KEPT_BYTES_MAX = 32 << 20
FLEXIBLE = table(MetadataResponse).flexible

_COUNT = Struct(">i")
_SIZE = Struct(">i")


class Rows:
    """Encoded topics of a door."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str], tuple[Topic, bytes]] = {}
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes kept."""
        return self._size

    def row(
        self, version: int, spelled: str, topic: Topic, make: Callable[[], MetadataResponseTopic]
    ) -> bytes:
        """The encoded topic, as a client that spells it so is told of it."""
        known = self._kept.get((version, spelled))
        if known is not None and known[0] is topic:
            return known[1]
        if known is not None:  # of another topic that had this name
            self._size -= len(known[1])
        row = encode_topic(version, make())
        if self._size + len(row) > KEPT_BYTES_MAX:
            self._kept.clear()
            self._size = 0
        self._kept[version, spelled] = (topic, row)
        self._size += len(row)
        return row


def encode_topic(version: int, topic: MetadataResponseTopic) -> bytes:
    """One topic as it stands inside a response."""
    alone = bytearray()
    encoder(MetadataResponse, version)(MetadataResponse(topics=[topic]), alone)
    end = len(alone) - _tail_size(version)
    return bytes(alone[_empty_size(version) - _tail_size(version) : end])


def assemble(
    version: int, correlation_id: int, response: MetadataResponse, rows: Sequence[bytes]
) -> bytearray:
    """A whole reply frame of a response without topics, and the topics."""
    assert not response.topics
    flexible = version >= FLEXIBLE
    out = bytearray()
    replies.begin(out, correlation_id, flexible=flexible)
    encoder(MetadataResponse, version)(response, out)
    count_at = len(out) - _tail_size(version) - (1 if flexible else _COUNT.size)
    tail = out[len(out) - _tail_size(version) :]
    del out[count_at:]
    out += uvarint(len(rows) + 1) if flexible else _COUNT.pack(len(rows))
    out += b"".join(rows)
    out += tail
    _SIZE.pack_into(out, 0, len(out) - _SIZE.size)
    return out


@cache
def _empty_size(version: int) -> int:
    empty = bytearray()
    encoder(MetadataResponse, version)(MetadataResponse(), empty)
    return len(empty)


@cache
def _tail_size(version: int) -> int:
    """How many bytes stand behind the topics: what follows the count when there are none."""
    empty, one = bytearray(), bytearray()
    encode = encoder(MetadataResponse, version)
    encode(MetadataResponse(), empty)
    encode(MetadataResponse(topics=[MetadataResponseTopic(name="")]), one)
    count_ends = next(at for at, byte in enumerate(empty) if byte != one[at]) + 1
    return len(empty) - count_ends
