"""A server and TubeMQ clients beside it, TubeMQ's own Java one and ours, for reading across."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.across.test_across import WAIT_S, World, WrittenMessage
from tests.conformance.clients import tubemq as java
from tests.conformance.clients.pulsar import Process
from trilogue.client.tubemq import Message, NoMessage
from trilogue.client.tubemq.sync import TubeClient

OFFSET_OF_ID = (1 << 44) - 1
MINUTE, MINUTE_MS = "202009131226", 1_599_999_960_000  # in UTC
groups = itertools.count(1)


class Seen(NamedTuple):
    """A message as a TubeMQ client has it."""

    offset: int
    body: bytes
    attributes: dict[str, str]
    type: str | None
    time: str | None


@dataclass
class Tubes(World):
    """A server, what was written to it, and clients of all kinds."""

    driver: Callable[[], Process] = field(kw_only=True)
    tube_topic: str = ""

    @property
    def master(self) -> str:
        return self.server.doors["tubemq-master"]

    def topic(self, name: str, partitions: int = 1, **config: str) -> str:
        made = f"{name}-{next(groups)}"
        admin = AdminClient({"bootstrap.servers": self.server.kafka})
        admin.create_topics([NewTopic(made, partitions, config=config)])[made].result(WAIT_S)
        return made

    def write(self, library: str, *messages: Message) -> list[int]:
        """Write one after the other; their offsets."""
        topics = {each.topic for each in messages}
        if library == "own":
            with TubeClient(self.master) as client, client.producer(*topics) as producer:
                return [each.result(WAIT_S).offset for each in producer.submit_many(messages)]
        client = java.connect(self.driver(), self.master)
        producer = client.producer(*topics)
        found = producer.sent(*(_out(each) for each in messages))
        client.close()
        return [each.offset for each in found]

    def read(self, library: str, topic: str, count: int, types: tuple[str, ...] = ()) -> list[Seen]:
        """Read so many messages from the beginning; ours also sees that no more come."""
        group = f"across-{next(groups)}"
        if library == "own":
            return self._read_by_ours(group, topic, count, types)
        client = java.connect(self.driver(), self.master)
        consumer = client.pull(group, {topic: list(types)})
        found = consumer.receive(count, WAIT_S)
        client.close()
        return [
            Seen(each.id & OFFSET_OF_ID, each.body, each.own_attributes, each.type, each.time)
            for each in found
        ]

    def _read_by_ours(
        self, group: str, topic: str, count: int, types: tuple[str, ...]
    ) -> list[Seen]:
        found: list[Seen] = []
        with (
            TubeClient(self.master) as client,
            client.consumer({topic: types}, group=group) as consumer,
        ):
            while len(found) < count:
                batch = consumer.get(WAIT_S)
                found += [seen(each) for each in batch]
                consumer.confirm(batch)
            with pytest.raises(NoMessage):
                consumer.get(0.05)
        return found


def _out(message: Message) -> java.Out:
    own = {name: text for name, text in message.attributes.items() if not name.startswith("$")}
    return java.Out(message.topic, message.body, own, message.type, message.time)


def seen(message: Message) -> Seen:
    own = {name: text for name, text in message.attributes.items() if not name.startswith("$")}
    assert message.message_id is not None
    offset = message.message_id & OFFSET_OF_ID
    return Seen(offset, message.body, own, message.type, message.time)


def message(topic: str, index: int) -> Message:
    """Every third without attributes, every other third with a key."""
    made = Message(topic, b"value %d " % index * 30)
    if index % 3:
        made.attributes = {"a": "1", "ü": "zwei ü", "number": str(index)}
        made.put_system_header(f"type {index % 2}", MINUTE)
    if index % 3 == 1:
        made.attributes["trilogue.key"] = f"schlüssel {index}"
    return made


def as_written(message: Message, offset: int) -> WrittenMessage:
    """What readers of the others are to see of it; 0 where the time is that of the append."""
    headers = [(name, text.encode()) for name, text in seen_attributes(message).items()]
    if message.type is not None:
        headers.append(("trilogue.type", message.type.encode()))
    key = message.attributes.get("trilogue.key")
    time_ms = MINUTE_MS if message.time else 0
    return WrittenMessage(offset, key and key.encode(), message.body, tuple(headers), time_ms)


def seen_attributes(message: Message) -> dict[str, str]:
    return {
        name: text
        for name, text in message.attributes.items()
        if not name.startswith(("$", "trilogue."))
    }


def as_seen(reported: WrittenMessage) -> Seen:
    """What TubeMQ's clients are to see of what the others wrote."""
    attributes = {"trilogue.timestamp": str(reported.time_ms)}
    if reported.key is not None and reported.key.startswith(b"\xff"):
        attributes["trilogue.key.base64"] = "/wA"
    elif reported.key is not None:
        attributes["trilogue.key"] = reported.key.decode()
    if reported.value is None:
        attributes["trilogue.value"] = "null"
    attributes |= {name: (text or b"").decode() for name, text in reported.headers}
    return Seen(reported.offset, reported.value or b"", attributes, None, MINUTE)
