"""Segments with partitions of several nodes, after slots have moved: each gets its own part."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.server import Server, run_trilogue, start_server
from trilogue.meta.tables import load_state

LISTEN = {"kafka": "127.0.0.1:0", "http": "127.0.0.1:0"}
QUIET = {"log_level": 0}
PARTITIONS, KEYS, ROUNDS = 6, 10, 3
WAIT_S = 60.0
PROMPT = {"journal.file-age": "1s", "compaction.check-every": "1s", "segments.grace": "1s"}
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
}

COMPACTED_WITHIN_S = 10.0


def produce(server: Server, topic: str, round_: int) -> None:
    producer = Producer({"bootstrap.servers": server.kafka, **QUIET})
    for partition in range(PARTITIONS):
        for key in range(KEYS):
            producer.produce(topic, b"%d" % round_, b"%d" % key, partition)
    assert producer.flush(WAIT_S) == 0


def read(server: Server, topic: str) -> dict[tuple[int, bytes], list[bytes]]:
    """Return the values of each key of each partition."""
    consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": "reader", **QUIET})
    ends = {
        partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), WAIT_S)[1]
        for partition in range(PARTITIONS)
    }
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    found: dict[tuple[int, bytes], list[bytes]] = {}
    limit = time.monotonic() + WAIT_S
    while time.monotonic() < limit:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.setdefault((message.partition(), message.key()), []).append(message.value())
        at = {each.partition: each.offset for each in consumer.position(consumer.assignment())}
        if all(at[each] >= ends[each] for each in ends):
            break
    consumer.close()
    return found


def owners_of_segments(data: Path) -> list[set[int]]:
    """Return the nodes that have partitions in each segment, as meta has them."""
    with closing(sqlite3.connect(f"file:{data}/meta.sqlite?mode=ro", uri=True)) as meta:
        state = load_state(meta.execute, 1)
    return [
        {
            state.slots[state.partitions[each].slot].node_id
            for each in segment.partitions
            if each in state.partitions
        }
        for segment in state.segments.values()
    ]


def wait_until_split(data: Path) -> None:
    limit = time.monotonic() + WAIT_S
    while any(len(owners) > 1 for owners in owners_of_segments(data)):
        assert time.monotonic() < limit, owners_of_segments(data)
        time.sleep(0.1)


def test_shared_segments_are_split_merged_and_compacted(tmp_path: Path):
    data = tmp_path / "data"
    with start_server(data, listen=LISTEN, nodes=1, settings=PROMPT) as server:
        client = AdminClient({"bootstrap.servers": server.kafka, **QUIET})
        topics = [NewTopic("kept", PARTITIONS), NewTopic("latest", PARTITIONS, config=COMPACTED)]
        for created in client.create_topics(topics).values():
            created.result(WAIT_S)
        for topic in ("kept", "latest"):
            produce(server, topic, 0)
        assert server.stop() == 0
    with start_server(data, listen=LISTEN, nodes=3, settings=PROMPT) as server:
        wait_until_split(data)
        for round_ in range(1, ROUNDS):
            for topic in ("kept", "latest"):
                produce(server, topic, round_)
            moved = run_trilogue("nodes", "drain", str(round_), "--data", str(data))
            assert moved.returncode == 0, moved.stderr
        wait_until_split(data)

        every = {(each, b"%d" % key) for each in range(PARTITIONS) for key in range(KEYS)}
        values = [b"%d" % round_ for round_ in range(ROUNDS)]
        assert read(server, "kept") == dict.fromkeys(every, values)
        began = written = time.monotonic()
        while (found := read(server, "latest")) != dict.fromkeys(every, values[-1:]):
            assert time.monotonic() < began + 3 * WAIT_S, found
            if time.monotonic() > written + COMPACTED_WITHIN_S:
                produce(server, "latest", ROUNDS - 1)  # so that more is in segments
                written = time.monotonic()
        assert "split.done" in server.output
        assert "segment.missing" not in server.output
        server.kill9()
    with start_server(data, listen=LISTEN, nodes=2) as server:
        assert read(server, "kept") == dict.fromkeys(every, values)
        assert server.stop() == 0
