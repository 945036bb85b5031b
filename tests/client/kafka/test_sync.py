"""The synchronous face: the same client, from threads that block; and the page about both."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest

from tests.server import Server
from trilogue.client.errors import ClientError
from trilogue.client.kafka import (
    EARLIEST,
    LATEST,
    ClosedError,
    KafkaError,
    NewTopic,
    Partition,
    Resource,
    ResourceType,
    granted,
    sync,
)
from trilogue.client.kafka.options import ClientOptions, ConsumerOptions, ProducerOptions

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/use-the-kafka-client.md"
QUICK = {"reset_to": EARLIEST, "heartbeat_s": 0.2, "max_wait_s": 0.1}


def test_everything_is_there_without_asyncio(server: Server):
    reported: list[tuple[str, int]] = []
    with sync.KafkaClient(server.kafka) as client:
        granted(client.admin.create_topics([NewTopic("sync", 2)]))
        with client.producer(linger_s=0.001) as producer:
            assert producer.partitions("sync") == 2
            assert producer.send("sync", "one", partition=0).offset == 0
            drafts = [sync.Draft("sync", b"%d" % number, partition=1) for number in range(5)]
            futures = producer.submit_many([*drafts, sync.Draft("sync", b"?", partition=9)])
            producer.flush()
            assert [future.result(60).offset for future in futures[:5]] == [0, 1, 2, 3, 4]
            assert isinstance(futures[5].exception(5), KafkaError)
            assert producer.send_many("sync", [], partition=1) == 0
            assert producer.submit("sync", b"x", key="k").result(60).partition in {0, 1}

        def assigned(partitions: list[Partition]) -> None:
            reported.extend(
                ("+", consumer.position(one)) for one in partitions
            )  # may call the client

        consumer = client.consumer("sync", group="sync", on_assigned=assigned, **QUICK)
        got = []
        while len(got) < 7:
            got += consumer.poll(5)
        assert sorted(reported) == [("+", 0), ("+", 0)]
        consumer.commit()
        assert sum(one.offset for one in consumer.committed(consumer.assignment).values()) == 7
        assert set(consumer.lag().values()) == {0}
        consumer.pause(("sync", 0))
        assert consumer.paused == {("sync", 0)}
        consumer.resume(("sync", 0))
        consumer.seek(("sync", 0), EARLIEST)
        message = consumer.get(60)
        assert message is not None
        assert message.value == b"one"
        consumer.seek_to_time(("sync", 0), 0)
        assert consumer.offsets({("sync", 0): LATEST})[Partition("sync", 0)].offset >= 1
        consumer.close()


def test_administration_is_there_without_asyncio(server: Server):
    topic, place = Resource(ResourceType.TOPIC, "sync-admin"), Partition("sync-admin", 0)
    with sync.KafkaClient(server.kafka) as client:
        admin = client.admin
        assert admin.create_topic("sync-admin", 1)
        assert not admin.create_topic("sync-admin", 1)
        assert "sync-admin" in {one.name for one in admin.list_topics()}
        assert granted(admin.describe_topics(["sync-admin"]))["sync-admin"].partitions
        assert admin.alter_configs({topic: {"retention.ms": "5"}}) == {topic: None}
        assert granted(admin.describe_configs([topic]))[topic]["retention.ms"].value == "5"
        assert admin.replace_configs({topic: {}}) == {topic: None}
        assert admin.can_alter_some()
        assert admin.create_partitions({"sync-admin": 2}) == {"sync-admin": None}
        assert granted(admin.list_offsets({place: LATEST}))[place].offset == 0
        assert admin.delete_records({place: -1}) == {place: 0}
        assert admin.alter_group_offsets("sync-g", {place: 0}) == {place: None}
        assert granted(admin.group_offsets("sync-g"))[place].offset == 0
        assert "sync-g" in {one.name for one in admin.list_groups()}
        assert granted(admin.describe_groups(["sync-g"]))["sync-g"].state == "Empty"
        assert admin.delete_group_offsets("sync-g", [place]) == {place: None}
        admin.delete_groups(["sync-g"])
        assert admin.describe_cluster().nodes
        assert admin.api_versions()[18]
        assert admin.log_dirs([place])
        assert admin.delete_topics(["sync-admin"]) == {"sync-admin": None}
        assert not admin.delete_topic("sync-admin")


def test_messages_come_in_a_loop_until_the_consumer_is_closed(server: Server):
    with sync.KafkaClient(server.kafka) as client:
        with client.producer() as producer:
            for number in range(3):
                producer.send("sync-loop", b"%d" % number)
        consumer = client.consumer(**QUICK)
        consumer.assign([("sync-loop", 0)])
        got: list[bytes | None] = []
        three = threading.Event()

        def read() -> None:
            for message in consumer:
                got.append(message.value)
                if len(got) == 3:
                    three.set()

        reading = threading.Thread(target=read)
        reading.start()
        assert three.wait(60)
        client.close()
        reading.join(60)

        assert got == [b"0", b"1", b"2"]
        assert not reading.is_alive()
        with pytest.raises(ClosedError):
            client.producer()


def test_a_client_that_cannot_be_made_leaves_no_thread():
    before = threading.active_count()
    with pytest.raises(TypeError):
        sync.KafkaClient("h", no_such_option=1)
    assert threading.active_count() == before


@pytest.mark.parametrize(
    "options",
    [
        {"instance_id": "a"},
        {"assignors": ()},
        {"reset_to": 5},
        {"isolation": 2},
        {"max_bytes": 0},
        {"heartbeat_s": 50.0},
        {"max_poll_s": 0},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object]):
    with pytest.raises(ClientError):
        ConsumerOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [ClientOptions, ProducerOptions, ConsumerOptions])
def test_every_option_is_documented(options: type):
    text = PAGE.read_text()
    missing = [field.name for field in dataclasses.fields(options) if f"`{field.name}`" not in text]

    assert missing == []


def test_a_callback_that_closes_the_client_is_refused(server: Server):
    """The loop's thread cannot wait for its own end: it would stand still for ever."""
    refused: list[BaseException] = []
    closed = threading.Event()
    with sync.KafkaClient(server.kafka) as client:
        producer = client.producer()

        def close(_sent: object) -> None:
            try:
                client.close()
            except ClientError as problem:
                refused.append(problem)
            closed.set()

        producer.submit("closes", b"a").add_done_callback(close)
        assert closed.wait(60)
    assert "may not" in str(refused[0])
