"""The demo's Pulsar client in front of a real server, and what the Kafka client finds of it."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from rich.console import Console
from tests.server import Server, start_server

from trilogue.cli.demo_check import Message
from trilogue.cli.demo_data import Event
from trilogue.cli.demo_page import _across
from trilogue.cli.demo_pulsar import Across, Place, PulsarReplay, Receipt, Sample, across, compare
from trilogue.cli.demo_replay import create_topics, ends, read_all
from trilogue.cli.demo_report import Report, crossed
from trilogue.cli.demo_steps import DemoFailed

LONG_AGO_MS = 1_357_000_000_000
TOLD = Across(
    "weather", 26_118, [Sample("5:7:1", Place(2, 8), "EWR", LONG_AGO_MS, '{"temp":39.02,"a":1}')]
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("demo") / "data") as made:
        yield made


def test_each_message_is_where_the_pulsar_client_was_told(server: Server):
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
    found = read_all(server.kafka, "w", ends(server.kafka, "w"), lambda _: None)

    assert replay.sent == replay.acknowledged == len(found) == 5_003
    assert len(seen) == 2
    assert compare("w", replay.receipts, found) == []
    told = across("w", replay.receipts, found)
    assert told.messages == 5_003
    assert all(one.key != "closing" and one.message_id != "?" for one in told.samples)


def test_an_event_that_the_server_refuses_ends_the_replay(server: Server):
    create_topics(server.kafka, {"one": 1})
    replay = PulsarReplay(server.pulsar, "one")
    replay._received(Event("one", "k", b"v", 1), 0, "TopicTerminated", None)

    with pytest.raises(DemoFailed, match="refused an event: TopicTerminated"):
        replay.finish()


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Message(b"k", b"v", 5, 1, 7), []),
        (Message(b"k", b"V", 5, 1, 7), ["w: 1 messages are not what the Pulsar client sent"]),
        (Message(b"K", b"v", 5, 1, 7), ["w: 1 messages are not what the Pulsar client sent"]),
        (Message(b"k", b"v", 6, 1, 7), ["w: 1 messages are not what the Pulsar client sent"]),
        (Message(b"k", b"v", 5, 1, 8), ["w: 1 messages are not what the Pulsar client sent"]),
    ],
)
def test_any_difference_is_told(found: Message, said: list[str]):
    receipts = {Place(1, 7): Receipt(Event("w", "k", b"v", 5), "9:7:0")}

    assert compare("w", receipts, [found])[:1] == said


def test_a_message_that_is_missing_or_too_much_is_told():
    receipts = {Place(1, 7): Receipt(Event("w", "k", b"v", 5), "9:7:0")}
    found = Message(b"k", b"v", 5, 1, 7)

    assert compare("w", receipts, [])[-1] == "w: 0 messages read, 1 were sent"
    assert compare("w", receipts, [found, found]) == ["w: 2 messages read, 1 were sent"]


def test_it_is_shown_in_the_terminal_and_on_the_page():
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(crossed(TOLD))
    report = Report([], [], 1.0)
    report.across = TOLD

    for text in (console.export_text(), _across(report)):
        for word in ("26,118", "5:7:1", "EWR", "2013-01-01 00:26", "39.02 °F"):
            assert word in text
    assert _across(Report([], [], 1.0)) == ""
