"""What a client of one protocol wrote and a Kafka client has read back: the same, at its place.

Each event is remembered with the place that its writer was told. The Kafka client must find it
there, with the same key, value and event time; any difference fails the demo.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from trilogue.cli.demo_check import SHOWN, Message
from trilogue.cli.demo_data import Event


class Place(NamedTuple):
    """Where a message is: partition, and offset as all protocols count."""

    partition: int
    offset: int


class Receipt(NamedTuple):
    """An event, and the message id by which its writer knows it."""

    event: Event
    message_id: str


class Writing(NamedTuple):
    """What a client of another protocol than Kafka's wrote to a topic."""

    topic: str
    writer: str  # the protocol
    receipts: dict[Place, Receipt]


class Sample(NamedTuple):
    """One message of two clients, for the report."""

    message_id: str
    place: Place
    key: str
    time_ms: int
    value: str


class Across(NamedTuple):
    """What was written by a client of another protocol and read by a Kafka client."""

    topic: str
    writer: str
    messages: int
    samples: list[Sample]


def compare(writing: Writing, found: list[Message]) -> list[str]:
    """Say what the Kafka client did not find as the writer had sent it; nothing if all."""
    topic, writer, receipts = writing
    there: dict[Place, Any] = {Place(one.partition, one.offset): one for one in found}
    said: list[str] = []
    wrong = 0
    for place, receipt in receipts.items():
        one, event = there.pop(place, None), receipt.event
        key = None if event.key is None else event.key.encode()
        if one is None or (one.key, one.value, one.time_ms) != (key, event.value, event.time_ms):
            wrong += 1
            if wrong <= SHOWN:
                said.append(f"  {receipt.message_id} {event.key}: {one}")
    if wrong:
        said.insert(0, f"{topic}: {wrong:,} messages are not what the {writer} client sent")
    if len(found) != len(receipts):
        said.append(f"{topic}: {len(found):,} messages read, {len(receipts):,} were sent")
    return said


def across(writing: Writing, found: list[Message]) -> Across:
    """Pick a few messages from the beginning, the middle and the end."""
    topic, writer, receipts = writing
    some = [one for one in found if one.key != b"closing"]
    picked = [some[at] for at in (0, len(some) // 2, -1)] if some else []
    samples = []
    for one in picked:
        place = Place(one.partition, one.offset)
        receipt = receipts.get(place)
        samples.append(
            Sample(
                "?" if receipt is None else receipt.message_id,
                place,
                (one.key or b"").decode(errors="replace"),
                one.time_ms,
                (one.value or b"").decode(errors="replace"),
            )
        )
    return Across(topic, writer, len(found), samples)
