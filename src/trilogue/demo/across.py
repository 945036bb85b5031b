"""Compares what Pulsar and TubeMQ clients wrote with what a Kafka client reads.

Each event is kept with the position in its writer's receipt. The Kafka client must find it there,
with the same key, value and event time; any difference fails the demo.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from trilogue.demo.check import SHOWN, Message
from trilogue.demo.data import Event


class Position(NamedTuple):
    """Partition and offset of a message."""

    partition: int
    offset: int


class Receipt(NamedTuple):
    """An event, and the message id that its writer received."""

    event: Event
    message_id: str


class TopicReceipts(NamedTuple):
    """The receipts of the Pulsar or TubeMQ client for one topic."""

    topic: str
    writer: str  # the protocol
    receipts: dict[Position, Receipt]


class Sample(NamedTuple):
    """One message for the report: its id at the writer, its position at the reader."""

    message_id: str
    position: Position
    key: str
    time_ms: int
    value: str


class CrossProtocolRead(NamedTuple):
    """One topic that a Pulsar or TubeMQ client wrote and a Kafka client read."""

    topic: str
    writer: str
    messages: int
    samples: list[Sample]


def compare_messages(written: TopicReceipts, read: list[Message]) -> list[str]:
    """Return a line per difference between receipts and read messages, at most three samples."""
    topic, writer, receipts = written
    by_position: dict[Position, Any] = {Position(one.partition, one.offset): one for one in read}
    differences: list[str] = []
    wrong = 0
    for position, receipt in receipts.items():
        one, event = by_position.pop(position, None), receipt.event
        key = None if event.key is None else event.key.encode()
        if one is None or (one.key, one.value, one.time_ms) != (key, event.value, event.time_ms):
            wrong += 1
            if wrong <= SHOWN:
                differences.append(f"  {receipt.message_id} {event.key}: {one}")
    if wrong:
        plural = "message is" if wrong == 1 else "messages are"
        differences.insert(0, f"{topic}: {wrong:,} {plural} not what the {writer} client sent")
    if len(read) != len(receipts):
        differences.append(f"{topic}: {len(read):,} messages read, {len(receipts):,} were sent")
    return differences


def sample_messages(written: TopicReceipts, read: list[Message]) -> CrossProtocolRead:
    """Return the number of messages, and the first, the middle and the last as samples."""
    topic, writer, receipts = written
    some = [one for one in read if one.key != b"closing"]
    picked = [some[at] for at in (0, len(some) // 2, -1)] if some else []
    samples = []
    for one in picked:
        position = Position(one.partition, one.offset)
        receipt = receipts.get(position)
        samples.append(
            Sample(
                "?" if receipt is None else receipt.message_id,
                position,
                (one.key or b"").decode(errors="replace"),
                one.time_ms,
                (one.value or b"").decode(errors="replace"),
            )
        )
    return CrossProtocolRead(topic, writer, len(read), samples)
