"""The demo's comparison of messages that one client wrote and another one read."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from trilogue.demo.across import (
    CrossProtocolRead,
    Position,
    Receipt,
    Sample,
    TopicReceipts,
    compare_messages,
    sample_messages,
)
from trilogue.demo.check import Message
from trilogue.demo.data import Event
from trilogue.demo.page import _across
from trilogue.demo.report import Report, cross_protocol_tables

LONG_AGO_MS = 1_357_000_000_000
WRITING = TopicReceipts("w", "Pulsar", {Position(1, 7): Receipt(Event("w", "k", b"v", 5), "9:7:0")})
REPORTED = [
    CrossProtocolRead(
        "airports",
        "TubeMQ",
        1_458,
        [
            Sample(
                "35184372088832",
                Position(0, 3),
                "EWR",
                LONG_AGO_MS,
                '{"faa":"EWR","name":"Newark"}',
            )
        ],
    ),
    CrossProtocolRead(
        "weather",
        "Pulsar",
        26_118,
        [Sample("5:7:1", Position(2, 8), "EWR", LONG_AGO_MS, '{"temp":39.02,"a":1}')],
    ),
]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Message(b"k", b"v", 5, 1, 7), []),
        (Message(b"k", b"V", 5, 1, 7), ["w: 1 message is not what the Pulsar client sent"]),
        (Message(b"K", b"v", 5, 1, 7), ["w: 1 message is not what the Pulsar client sent"]),
        (Message(b"k", b"v", 6, 1, 7), ["w: 1 message is not what the Pulsar client sent"]),
        (Message(b"k", b"v", 5, 1, 8), ["w: 1 message is not what the Pulsar client sent"]),
    ],
)
def test_any_difference_is_reported(found: Message, expected: list[str]):
    assert compare_messages(WRITING, [found])[:1] == expected


def test_a_message_that_is_missing_or_too_much_is_reported():
    found = Message(b"k", b"v", 5, 1, 7)

    assert compare_messages(WRITING, [])[-1] == "w: 0 messages read, 1 were sent"
    assert compare_messages(WRITING, [found, found]) == ["w: 2 messages read, 1 were sent"]


def test_unknown_message_id_is_shown_as_a_question_mark():
    samples = sample_messages(WRITING, [Message(b"k", b"v", 5, 1, 8)])

    assert [each.message_id for each in samples.samples] == ["?", "?", "?"]


def test_a_long_name_does_not_take_the_place_of_others():
    sample = Sample("70368744180985", Position(0, 3_321), "N999DN", 1, '{"name":"%s"}' % ("x" * 80))
    console = Console(record=True, width=80, file=io.StringIO())
    for table in cross_protocol_tables([CrossProtocolRead("airports", "TubeMQ", 1, [sample])]):
        console.print(table)

    expected = console.export_text()
    assert "…" not in expected
    assert "70368744180985  airports          0    3321  N999DN  xxxx" in expected


def test_it_is_shown_in_the_terminal_and_on_the_page():
    console = Console(record=True, width=80, file=io.StringIO())
    for table in cross_protocol_tables(REPORTED):
        console.print(table)
    report = Report([], [], 1.0)
    report.across = REPORTED

    for text in (console.export_text(), _across(report)):
        for word in (
            "26,118", "5:7:1", "EWR", "2013-01-01 00:26", "39.02 °F",
            "1,458", "35184372088832", "airports", "Newark",
        ):  # fmt: skip
            assert word in text
    assert _across(Report([], [], 1.0)) == ""
