"""Many clients that send half of a large request: of one protocol, and of all at once."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator

import pytest

from tests.attacks.node import AttackedNode, Report, attack
from tests.attacks.peers import (
    begin_http,
    begin_kafka,
    begin_pulsar,
    begin_tubemq,
    send_in_parallel,
)
from tests.crash.kafka.test_hostile import Line, framed, head
from tests.crash.pulsar.test_hostile import CONNECT

MIB = 1 << 20


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedNode]:
    made = AttackedNode(tmp_path_factory.mktemp("half")).start()
    yield made
    made.kill9()


def kafka(node: AttackedNode, stack: contextlib.ExitStack) -> None:
    send_in_parallel(stack, node.address, 16, begin_kafka(99 * MIB, 60 * MIB))


def tubemq(node: AttackedNode, stack: contextlib.ExitStack) -> None:
    send_in_parallel(stack, node.doors["tubemq-broker"], 30, begin_tubemq(9 * MIB))


def pulsar(node: AttackedNode, stack: contextlib.ExitStack) -> None:
    half = begin_pulsar(5 * MIB, 5 * MIB - 1_000)
    send_in_parallel(stack, node.doors["pulsar"], 100, half, first=CONNECT)


def http(node: AttackedNode, stack: contextlib.ExitStack) -> None:
    send_in_parallel(stack, node.doors["http"], 400, begin_http(MIB, MIB - 1_000))


HALVES = [kafka, tubemq, pulsar, http]


MOST = [kafka, tubemq, *(pytest.param(each, marks=pytest.mark.long) for each in (pulsar, http))]


@pytest.mark.parametrize("send_half", MOST)
def test_half_requests_of_one_protocol(
    node: AttackedNode,
    report: Report,
    send_half: Callable[[AttackedNode, contextlib.ExitStack], None],
):
    with attack(node, report, most_s=15.0) as stack:
        send_half(node, stack)


def test_half_requests_of_all_protocols_at_once(node: AttackedNode, report: Report):
    with attack(node, report, most_s=15.0) as stack:
        for send_half in HALVES:
            send_half(node, stack)


def test_whole_large_requests_beside_half_ones_are_served(node: AttackedNode, report: Report):
    """A request of 14 MiB is received, although others hold all memory for such requests."""
    garbage = framed(head(0, 7) + struct.pack(">hhii", -1, 1, 10_000, 0) + bytes(14 * MIB))
    with attack(node, report, most_s=1.0) as stack:
        kafka(node, stack)
        with Line(node.address) as line:
            for _ in range(5):
                line.request(garbage)
