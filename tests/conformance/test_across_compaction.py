"""A compacted topic that clients of both protocols write and read."""

from __future__ import annotations

import time
from pathlib import Path

import pulsar
from confluent_kafka.admin import AdminClient, NewTopic
from tests.conformance.test_across import WAIT_S, World, offset_of, read_by_kafka
from tests.server import start_server

OFTEN = {"journal.file-age": "200ms", "compaction.check-every": "100ms"}
COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
}


def test_both_read_what_compaction_leaves_at_the_same_places(tmp_path: Path):
    world = World(start_server(tmp_path / "data", settings=OFTEN))
    admin = AdminClient({"bootstrap.servers": world.server.kafka})
    admin.create_topics([NewTopic("t", 1, config=COMPACT)])["t"].result(WAIT_S)
    client = world.pulsar()
    written: list[tuple[str, bytes]] = []

    kafka = world.producer(**{"linger.ms": 50})
    for index in range(20):
        written.append((f"k{index % 6}", b"kafka %d" % index))
        kafka.produce("t", written[-1][1], written[-1][0], partition=0)
    assert kafka.flush(WAIT_S) == 0
    producer = client.create_producer(
        "t-partition-0", batching_enabled=True, batching_max_publish_delay_ms=200
    )
    for index in range(20):
        written.append((f"k{index % 4}", b"pulsar %d" % index))
        producer.send_async(written[-1][1], lambda *_: None, partition_key=written[-1][0])
    producer.flush()
    kafka.produce("t", b"last", "z", partition=0)
    kafka.flush(WAIT_S)
    written.append(("z", b"last"))
    last = {key: offset for offset, (key, _) in enumerate(written)}
    left = [(at, written[at][0], written[at][1]) for at in sorted(last.values())]

    deadline = time.monotonic() + WAIT_S
    found = []
    while found != left and time.monotonic() < deadline:
        reader = client.create_reader("t-partition-0", pulsar.MessageId.earliest)
        messages = []
        while reader.has_message_available():
            messages.append(reader.read_next(5000))
        reader.close()
        found = [
            (offset_of(each.message_id()), each.partition_key(), each.data()) for each in messages
        ]

    assert found == left
    by_kafka = read_by_kafka(world, "t", len(left))
    assert [(each.offset, (each.key or b"").decode(), each.value) for each in by_kafka] == left

    # without acks of single indexes clients ack a batch only when they have seen all of it
    how = {"consumer_type": pulsar.ConsumerType.Shared, "batch_index_ack_enabled": True}
    consumer = client.subscribe(
        "t-partition-0", "s", initial_position=pulsar.InitialPosition.Earliest, **how
    )
    for _ in left:
        consumer.acknowledge(consumer.receive(5000))
    consumer.close()
    consumer = client.subscribe("t-partition-0", "s", **how)
    producer.send(b"new", partition_key="n")
    assert consumer.receive(5000).data() == b"new"  # nothing that went keeps anything back
    client.close()
    world.server.stop()
