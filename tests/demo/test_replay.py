"""The demo's client in front of a real server: what goes in comes out."""

from __future__ import annotations

import pytest

from tests.brokers import Trilogue
from trilogue.demo.data import Event
from trilogue.demo.replay import HEADERS, KafkaReplay, create_topics, end_offsets, read_all
from trilogue.demo.steps import DemoFailed

LONG_AGO_MS = 1_357_000_000_000


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory):
    broker = Trilogue(tmp_path_factory.mktemp("demo") / "data").start()
    yield broker.address
    broker.kill9()


def numbered(topic: str, count: int) -> list[Event]:
    return [Event(topic, f"k{one}", b"%d" % one, LONG_AGO_MS + one) for one in range(count)]


def test_replayed_events_are_read_with_keys_and_event_times(servers):
    create_topics(servers, {"whole": 2})
    replay, seen = KafkaReplay(servers), []

    replay.send_all(numbered("whole", 12_000), seen.append)
    replay.send(Event("whole", None, b"last", LONG_AGO_MS), 1)
    replay.finish()
    there = end_offsets(servers, "whole")
    found = read_all(servers, "whole", there, lambda _: None)

    assert replay.topics == {"whole": 12_001}
    assert replay.acknowledged == 12_001 == sum(there.values())
    assert len(seen) == 2
    assert {one[:3] for one in found} == {
        *((b"k%d" % one, b"%d" % one, LONG_AGO_MS + one) for one in range(12_000)),
        (None, b"last", LONG_AGO_MS),
    }
    assert {one[3:] for one in found} == {
        (partition, offset) for partition, count in there.items() for offset in range(count)
    }


def test_topics_keep_events_that_are_years_old(servers):
    create_topics(servers, {"kept": 1})
    replay = KafkaReplay(servers)
    replay.send_all(numbered("kept", 3), lambda _: None)
    replay.finish()

    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "headers"})
    consumer.assign([TopicPartition("kept", 0, 0)])
    first = consumer.consume(1, timeout=90)[0]
    consumer.close()
    assert first.headers() == HEADERS
    assert end_offsets(servers, "kept") == {0: 3}


def test_an_event_that_the_server_refuses_ends_the_replay(servers):
    create_topics(servers, {"one-partition": 1})
    replay = KafkaReplay(servers)
    replay.send(Event("one-partition", "k", b"v", LONG_AGO_MS), 7)

    with pytest.raises(DemoFailed, match=r"refused an event: .*artition"):
        replay.finish()


def test_messages_that_do_not_come_end_the_reading(servers, monkeypatch):
    monkeypatch.setattr("trilogue.demo.replay.READ_S", 1)
    create_topics(servers, {"empty": 1})

    with pytest.raises(DemoFailed, match="empty: 3 messages not received"):
        read_all(servers, "empty", {0: 3}, lambda _: None)
