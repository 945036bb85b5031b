"""The demo's Pulsar client in front of a real server, and what the Kafka client finds of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server import Server, start_server
from trilogue.demo.across import TopicReceipts, compare_messages, sample_messages
from trilogue.demo.data import Event
from trilogue.demo.pulsar import PulsarReplay
from trilogue.demo.replay import create_topics, end_offsets, read_all
from trilogue.demo.steps import DemoFailed

LONG_AGO_MS = 1_357_000_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("demo") / "data") as made:
        yield made


def test_each_message_is_at_the_id_that_the_pulsar_client_received(server: Server):
    create_topics(server.kafka, {"w": 3})
    replay = PulsarReplay(server.pulsar, "w")
    seen: list[int] = []
    events = [
        Event("w", f"k{one % 7}", b'{"temp":%d}' % one, LONG_AGO_MS + one) for one in range(5_000)
    ]

    replay.send_all(events, seen.append)
    for partition in range(3):
        replay.send(Event("w", "closing", b"{}", LONG_AGO_MS), partition)
    replay.finish()
    found = read_all(server.kafka, "w", end_offsets(server.kafka, "w"), lambda _: None)

    assert replay.sent == replay.acknowledged == len(found) == 5_003
    assert len(seen) == 2
    writing = TopicReceipts("w", "Pulsar", replay.receipts)
    assert compare_messages(writing, found) == []
    samples = sample_messages(writing, found)
    assert samples.messages == 5_003
    assert all(one.key != "closing" and one.message_id != "?" for one in samples.samples)


def test_an_event_that_the_server_refuses_ends_the_replay(server: Server):
    create_topics(server.kafka, {"one": 1})
    replay = PulsarReplay(server.pulsar, "one")
    replay._received(Event("one", "k", b"v", 1), 0, "TopicTerminated", None)

    with pytest.raises(DemoFailed, match="refused an event: TopicTerminated"):
        replay.finish()
