"""What Pulsar's clients leave in the data that tools/make_fixture.py keeps.

One topic with de-duplication: every compression, batches and singles, keys and properties; a named
producer; a shared subscription with holes. What there is to read is reported by the client alone.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pulsar
from tests.server import Server

TOPIC, PRODUCER, SUBSCRIPTION = "letters", "scribe", "desk"
CODECS = ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")
PATIENCE_MS = 30_000
QUIET_MS = 1_000


@contextmanager
def connected(server: Server) -> Iterator[pulsar.Client]:
    client = pulsar.Client(server.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        yield client
    finally:
        client.close()


def deduplicate(server: Server) -> None:
    """Have names remembered in the whole namespace."""
    request = urllib.request.Request(
        f"{server.http}/admin/v2/namespaces/public/default/deduplication",
        json.dumps(True).encode(),
        {"Content-Type": "application/json"},
        method="POST",
    )
    urllib.request.urlopen(request, timeout=30).close()


def subscribe(client: pulsar.Client) -> pulsar.Consumer:
    return client.subscribe(
        TOPIC,
        SUBSCRIPTION,
        pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        batch_index_ack_enabled=True,
    )


def write(server: Server, about: str) -> None:
    """Some messages in every compression, of which two of three are acked."""
    with connected(server) as client:
        consumer = subscribe(client)
        sent = 0
        for codec in CODECS:
            producer = client.create_producer(
                TOPIC,
                PRODUCER,
                compression_type=getattr(pulsar.CompressionType, codec),
                batching_enabled=codec != "NONE",
                batching_max_publish_delay_ms=50,
            )
            for number in range(4):
                producer.send_async(
                    f"{about} {codec} {number}".encode(),
                    None,
                    partition_key=f"key {number}" if number % 2 else None,
                    properties={"number": str(number)} if number % 3 else None,
                )
                sent += 1
            producer.flush()
            producer.close()
        for message in rest(consumer):
            if place(message) % 3:
                consumer.acknowledge(message)
        consumer.close()


def rest(consumer: pulsar.Consumer) -> list[pulsar.Message]:
    found = []
    while True:
        try:
            found.append(consumer.receive(QUIET_MS))
        except pulsar.Timeout:
            return found


def place(message: pulsar.Message) -> int:
    found = message.message_id()
    return found.entry_id() + max(0, found.batch_index())


def read(server: Server) -> dict[str, Any]:
    """Return what clients read."""
    messages = []
    with connected(server) as client:
        producer = client.create_producer(TOPIC, PRODUCER)
        last = producer.last_sequence_id()
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
        while reader.has_message_available():
            each = reader.read_next(PATIENCE_MS)
            properties = dict(sorted(each.properties().items()))
            row = [place(each), each.partition_key(), each.data().decode(), properties]
            messages.append(json.dumps(row))
        unacked = sorted(place(each) for each in rest(subscribe(client)))
    return {
        "topic": TOPIC,
        "messages": messages,
        "producer": PRODUCER,
        "last_sequence_id": last,
        "subscription": SUBSCRIPTION,
        "unacked": unacked,
    }
