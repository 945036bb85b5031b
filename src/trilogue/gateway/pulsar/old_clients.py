"""Batches for clients that know none: protocol versions below 4.

Each message becomes one of its own, whose entry id is its offset, uncompressed. Such a client acks
the ids that it was given, so its acks are of messages (acks.py). Nobody has built such a client for
years; what this costs on the loop (a batch is decompressed there) was not worth a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trilogue.entry.entry import EntryError
from trilogue.entry.pulsar_batch import build_entry, build_single, read_metadata, walk_messages
from trilogue.wire.pulsar.pulsar_pb2 import MessageMetadata

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.consumer import Consumer
    from trilogue.gateway.pulsar.reading import Row

BATCHES_SINCE: Final = 4


def send_singles(
    consumer: Consumer,
    row: Row,
    redeliveries: int,
    missing: list[tuple[int, int]],
) -> int:
    """Send the messages of a batch that are not acked; returns the bytes of their sections."""
    try:
        found = _singles(row)
    except EntryError as problem:  # encrypted, for one: it could not be read by this client
        consumer.connection.stream.abort("consumer.knows_no_batches", problem=str(problem))
        return 0
    size = 0
    for start, end in missing:
        for offset in range(start, end):
            section = found.get(offset)
            if section is not None:
                size += consumer.send_section(section, offset, redeliveries)
    return size


def _singles(row: Row) -> dict[int, bytes]:
    assert row.section is not None, "nothing to be seen"
    entry, header, _ = build_entry(row.section, broker_ms=0)
    whole = read_metadata(entry)
    found = {}
    for message in walk_messages(entry, header):
        metadata = MessageMetadata(
            producer_name=whole.producer_name,
            sequence_id=(whole.sequence_id + message.batch_index) % (1 << 64),
            publish_time=whole.publish_time,
        )
        found[row.base + message.batch_index] = build_single(message, metadata)
    return found
