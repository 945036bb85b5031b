"""A cache of encoded topics for Metadata: encoding a topic of 1,000 partitions takes 1 ms.

The codec encodes a response without topics, and the encoded topics are inserted:

    ... brokers, cluster, controller | count | topic | topic | ... | fields behind the topics
                                                                    |<------- tail ------->|

Where they go and how the count is encoded is found once per version, by comparing the responses
without a topic and with one. An encoded topic is the same for every client as long as the topic
exists, unless authorized operations are requested; topics with these, and errors, are not cached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from struct import Struct

from trilogue.broker.topics.topic import Topic
from trilogue.gateway.kafka import response_frames
from trilogue.wire.kafka.codec.compile import encoder
from trilogue.wire.kafka.codec.runtime import uvarint
from trilogue.wire.kafka.codec.schema import table
from trilogue.wire.kafka.metadata.metadata import MetadataResponse, MetadataResponseTopic

KEPT_BYTES_MAX = 32 << 20
FLEXIBLE = table(MetadataResponse).flexible

_COUNT = Struct(">i")
_SIZE = Struct(">i")


class EncodedTopics:
    """The encoded topics of a gateway."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str], tuple[Topic, bytes]] = {}
        self._generation = 0  # of the owners of partitions
        self._size = 0

    @property
    def size(self) -> int:
        """Cached bytes."""
        return self._size

    def encode(
        self,
        version: int,
        spelled: str,
        topic: Topic,
        make: Callable[[], MetadataResponseTopic],
        generation: int = 0,
    ) -> bytes:
        """Return the encoded topic under the name that the client uses.

        `generation` is that of the owners of partitions: with another one nothing kept is valid.
        """
        if generation != self._generation:
            self._generation = generation
            self._kept.clear()
            self._size = 0
        known = self._kept.get((version, spelled))
        if known is not None and known[0] is topic:
            return known[1]
        if known is not None:  # a deleted topic had this name
            self._size -= len(known[1])
        row = encode_topic(version, make())
        if self._size + len(row) > KEPT_BYTES_MAX:
            self._kept.clear()
            self._size = 0
        self._kept[version, spelled] = (topic, row)
        self._size += len(row)
        return row


def encode_topic(version: int, topic: MetadataResponseTopic) -> bytes:
    """Return one topic as it is encoded inside a response."""
    alone = bytearray()
    encoder(MetadataResponse, version)(MetadataResponse(topics=[topic]), alone)
    end = len(alone) - _tail_size(version)
    return bytes(alone[_empty_size(version) - _tail_size(version) : end])


def assemble(
    version: int, correlation_id: int, response: MetadataResponse, rows: Sequence[bytes]
) -> bytearray:
    """Return a whole response frame: a response without topics, and the encoded topics."""
    assert not response.topics
    flexible = version >= FLEXIBLE
    out = bytearray()
    response_frames.begin_frame(out, correlation_id, flexible=flexible)
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
    """Return how many bytes follow the count of topics if there are none."""
    empty, one = bytearray(), bytearray()
    encode = encoder(MetadataResponse, version)
    encode(MetadataResponse(), empty)
    encode(MetadataResponse(topics=[MetadataResponseTopic(name="")]), one)
    count_ends = next(at for at, byte in enumerate(empty) if byte != one[at]) + 1
    return len(empty) - count_ends
