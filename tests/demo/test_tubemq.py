"""The demo's TubeMQ client in front of a real server, and what the Kafka client finds of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server import Server, start_server
from trilogue.demo.across import TopicReceipts, compare_messages, sample_messages
from trilogue.demo.data import Event
from trilogue.demo.replay import create_topics, end_offsets, read_all
from trilogue.demo.steps import DemoFailed
from trilogue.demo.tubemq import TubeReplay

LONG_AGO_MS = 1_356_998_400_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("demo") / "data") as made:
        yield made


def test_each_message_is_at_the_offset_that_the_tubemq_client_received(server: Server):
    create_topics(server.kafka, {"a": 1, "b": 2})
    replay = TubeReplay(server.doors["tubemq-master"], ("a", "b"))
    seen: list[int] = []
    events = [
        Event("ab"[one % 2], f"k{one % 7}", b'{"name":"%d"}' % one, LONG_AGO_MS + one * 60_000)
        for one in range(2_500)
    ]

    replay.send_all(events, seen.append)

    assert replay.sent == replay.acknowledged == 2_500
    assert replay.topics == {"a": 1_250, "b": 1_250}
    assert seen == [1_000, 2_000]
    for topic in "ab":
        found = read_all(server.kafka, topic, end_offsets(server.kafka, topic), lambda _: None)
        writing = TopicReceipts(topic, "TubeMQ", replay.receipts[topic])
        assert compare_messages(writing, found) == []
        samples = sample_messages(writing, found)
        assert samples.messages == 1_250
        assert all(one.message_id.isdigit() for one in samples.samples)


def test_a_topic_that_is_not_there_ends_the_replay(server: Server):
    replay = TubeReplay(server.doors["tubemq-master"], ("nowhere",))

    with pytest.raises(DemoFailed, match="refused an event"):
        replay.send_all([Event("nowhere", "k", b"v", LONG_AGO_MS)], lambda _: None)
