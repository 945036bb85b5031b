"""Storms of Pulsar clients: redeliveries, statistics, acks of parts, chunks, refreshed logins."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.attacks.node import WAIT_S, AttackedNode, Report, attack
from tests.attacks.test_registrations import send_and_read
from tests.attacks.test_transactions import PulsarLine
from tests.brokers import make_topic
from tests.crash.kafka.test_hostile import Line
from tests.crash.pulsar.test_hostile import CONNECT, TYPES, command
from tests.gateway.pulsar.rig import send_frame
from trilogue.entry.entry import Codec, Record
from trilogue.entry.kafka.record_batch import build_batch
from trilogue.wire.pulsar.frame import encode_command
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
CPU_S = 2.0  # of all threads
MESSAGES = 2_000
CLIENTS = 40
TOPIC = "stormed-partition-0"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[AttackedNode]:
    made = AttackedNode(tmp_path).start()
    make_topic(made.address, "stormed", 1)
    with Line(made.address) as line:
        for _ in range(MESSAGES):
            assert line.produce("stormed", BATCH) == 0
    yield made
    made.kill9()


BATCH = build_batch([Record(0, 1_600_000_000_000, b"key", b"value")], codec=Codec.NONE)


def subscribe(name: str, consumer: int = 0, kind: int = 1) -> bytes:
    made = BaseCommand(type=TYPES["subscribe"])
    made.subscribe.topic, made.subscribe.subscription = TOPIC, name
    made.subscribe.subType = kind
    made.subscribe.consumer_id = made.subscribe.request_id = consumer
    made.subscribe.initialPosition = 1
    return encode_command(made)


FLOW = command("flow", consumer_id=0, messagePermits=MESSAGES)


def open_producer() -> bytes:
    made = BaseCommand(type=TYPES["producer"])
    made.producer.topic = TOPIC
    made.producer.producer_id = made.producer.request_id = 0
    return encode_command(made)


def redeliver(client: int, ledger: int) -> bytes:
    """All of them again, many times, with permits for them."""
    again = command("redeliverUnacknowledgedMessages", consumer_id=0)
    return FLOW + (again + command("flow", consumer_id=0, messagePermits=MESSAGES)) * 50


def statistics(client: int, ledger: int) -> bytes:
    return FLOW + command("consumerStats", consumer_id=0, request_id=1) * 20_000


def last_message_ids(client: int, ledger: int) -> bytes:
    return FLOW + command("getLastMessageId", consumer_id=0, request_id=1) * 20_000


def seeks(client: int, ledger: int) -> bytes:
    made = BaseCommand(type=TYPES["seek"])
    made.seek.consumer_id, made.seek.request_id = 0, 1
    made.seek.message_publish_time = 1_600_000_000_000
    return FLOW + encode_command(made) * 5_000


def ack_sets(client: int, ledger: int) -> bytes:
    """Acks of parts of batches: as many words as fit a frame."""
    made = BaseCommand(type=TYPES["ack"])
    made.ack.consumer_id, made.ack.ack_type, made.ack.request_id = 0, 0, 1
    for entry in range(2):
        made.ack.message_id.add(ledgerId=ledger, entryId=entry, ack_set=[2**62] * 100_000)
    small = BaseCommand(type=TYPES["ack"])
    small.ack.consumer_id, small.ack.ack_type, small.ack.request_id = 0, 0, 1
    for entry in range(2_000):
        small.ack.message_id.add(ledgerId=ledger, entryId=entry, ack_set=[2**62] * 16)
    return FLOW + encode_command(made) * 3 + encode_command(small) * 20


def acks(client: int, ledger: int) -> bytes:
    """ACKs of ids that are not there, 100,000 each."""
    made = BaseCommand(type=TYPES["ack"])
    made.ack.consumer_id, made.ack.ack_type, made.ack.request_id = 0, 0, 1
    for entry in range(100_000):
        made.ack.message_id.add(ledgerId=ledger, entryId=MESSAGES + 2 * entry)
    return FLOW + encode_command(made) * 3


def chunks(client: int, ledger: int) -> bytes:
    """First chunks of messages that never end."""
    return b"".join(
        send_frame(
            0,
            number,
            bytes(1_000),
            metadata_uuid=f"{client}-{number}",
            metadata_chunk_id=0,
            metadata_num_chunks_from_msg=1_000_000,
            metadata_total_chunk_msg_size=2**31 - 1,
            is_chunk=True,
        )
        for number in range(2_000)
    )


def login_answers(client: int, ledger: int) -> bytes:
    """Answers to challenges that the server did not send."""
    made = BaseCommand(type=TYPES["authResponse"])
    made.authResponse.client_version = "x" * 10_000
    made.authResponse.response.auth_method_name = "token"
    made.authResponse.response.auth_data = b"a.b.c" * 10_000
    return encode_command(made) * 100


def subscriptions(client: int, ledger: int) -> bytes:
    """Consumers that come and go."""
    return b"".join(
        subscribe(f"come-{client}", number + 1)
        + command("close_consumer", consumer_id=number + 1, request_id=number)
        for number in range(3_000)
    )


def producers(client: int, ledger: int) -> bytes:
    """Producers that come and go."""
    close = command("close_producer", producer_id=0, request_id=1)
    return (close + open_producer()) * 5_000


STORMS: list[Callable[[int, int], bytes]] = [
    redeliver,
    statistics,
    last_message_ids,
    seeks,
    ack_sets,
    acks,
    chunks,
    login_answers,
    subscriptions,
    producers,
]


@pytest.mark.parametrize("make", STORMS)
def test_storms(node: AttackedNode, report: Report, make: Callable[[int, int], bytes]):
    """Each client has a producer, and a consumer with all messages, none of them acked."""
    ledger = find_ledger(node)
    requests = [make(client, ledger) for client in range(CLIENTS)]
    with attack(node, report, most_s=8.0, cpu_s=CPU_S) as stack:
        firsts = [
            CONNECT + subscribe(f"storm-{client}") + open_producer() for client in range(CLIENTS)
        ]
        send_all(stack, node.doors["pulsar"], requests, firsts, answers=3)


def find_ledger(node: AttackedNode) -> int:
    """Return the ledger id of the topic's messages."""
    with contextlib.ExitStack() as stack:
        line = PulsarLine(node.doors["pulsar"], stack)
        line.send(subscribe("found"))
        line.wait("success")
        line.send(FLOW)
        return line.wait("message").message_id.ledgerId


def send_all(
    stack: contextlib.ExitStack,
    address: str,
    requests: list[bytes],
    firsts: list[bytes],
    *,
    answers: int,
) -> None:
    """Send all of them at once, each over a connection of its own, and read the answers."""

    def send(content: bytes, first: bytes) -> None:
        stack.enter_context(send_and_read(address, content, first, answers=answers))

    threads = [
        threading.Thread(target=send, args=each, daemon=True)
        for each in zip(requests, firsts, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
