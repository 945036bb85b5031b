"""The worst requests of each protocol at once, while one client of each sends and reads."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pulsar
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.attacks.node import WAIT_S, AttackedNode, Report, attack
from tests.attacks.peers import fetch
from tests.attacks.test_pulsar_storms import (
    BATCH,
    ack_sets,
    acks,
    find_ledger,
    last_message_ids,
    open_producer,
    seeks,
    send_all,
    subscribe,
)
from tests.attacks.test_tubemq_requests import make_requests, tubemq_request
from tests.brokers import make_topic
from tests.crash.hostile import Healthy, dial
from tests.crash.kafka.test_hostile import HOSTILE, Line, framed, head
from tests.crash.pulsar.pulsar_load import client
from tests.crash.pulsar.test_hostile import CONNECT
from tests.crash.tubemq.tubemq_reader import TubeReader
from trilogue.gateway.tubemq.methods import BROKER, MASTER

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
CLIENTS = 40  # of each listener
CPU_S = 4.0  # of all threads, while all listeners are attacked
MESSAGES = 2_000
HOST = b" HTTP/1.1\r\nHost: localhost\r\n"
METADATA = framed(head(3, 1) + struct.pack(">i", -1))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[AttackedNode]:
    made = AttackedNode(tmp_path).start()
    for topic in ("stormed", "cold", "kafka-read", "pulsar-read", "tubemq-read"):
        make_topic(made.address, topic, 1)
    with Line(made.address) as line:
        for _ in range(MESSAGES):
            assert line.produce("stormed", BATCH) == 0
    yield made
    made.kill9()


class RoundTrips:
    """One client of each protocol that reads each message that it sends, in order."""

    def __init__(self, node: AttackedNode) -> None:
        self._stack = contextlib.ExitStack()
        self.clients = {
            f"{name} read": Healthy(node.pid, self._make(*make(node)), lambda: None)
            for name, make in (
                ("Kafka", self._kafka),
                ("Pulsar", self._pulsar),
                ("TubeMQ", self._tubemq),
            )
        }

    def _make(
        self, send: Callable[[bytes], object], read: Callable[[], bytes | None]
    ) -> Callable[[], None]:
        numbers = count()

        def send_and_read() -> None:
            value = str(next(numbers)).encode()
            send(value)
            while (found := read()) is None:
                pass
            assert found == value  # none is lost or comes twice

        return send_and_read

    def _kafka(self, node: AttackedNode) -> tuple[Callable[[bytes], object], Callable[[], object]]:
        settings = {"bootstrap.servers": node.address, "log_level": 0}
        producer = Producer({**settings, "enable.idempotence": True})
        consumer = Consumer({**settings, "group.id": "read", "enable.auto.commit": False})
        consumer.assign([TopicPartition("kafka-read", 0, OFFSET_BEGINNING)])
        self._stack.callback(consumer.close)

        def send(value: bytes) -> None:
            producer.produce("kafka-read", value)
            assert producer.flush(WAIT_S) == 0

        def read() -> bytes | None:
            message = consumer.poll(WAIT_S)
            return None if message is None or message.error() else message.value()

        return send, read

    def _pulsar(self, node: AttackedNode) -> tuple[Callable[[bytes], object], Callable[[], object]]:
        opened = client(node.doors["pulsar"])
        self._stack.callback(opened.close)
        producer = opened.create_producer("pulsar-read", send_timeout_millis=int(WAIT_S * 1_000))
        consumer = opened.subscribe(
            "pulsar-read", "read", initial_position=pulsar.InitialPosition.Earliest
        )

        def read() -> bytes:
            message = consumer.receive(int(WAIT_S * 1_000))
            consumer.acknowledge(message)
            return bytes(message.data())

        return producer.send, read

    def _tubemq(self, node: AttackedNode) -> tuple[Callable[[bytes], object], Callable[[], object]]:
        reader = TubeReader(
            node.doors["tubemq-broker"],
            "read_192.0.2.7-1-1-1-Pull-1.13.0",
            group="read",
            topic="tubemq-read",
        )
        self._stack.callback(reader.line.close)
        reader.register()

        def read() -> bytes | None:
            found = reader.get(consumed=True)
            assert len(found) <= 1
            return found[0] if found else None

        return reader.send, read

    def __enter__(self) -> dict[str, Healthy]:
        return self.clients

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def kafka_requests(number: int) -> bytes:
    kinds = (METADATA * 2_000, fetch(0) * 500, HOSTILE["frames of garbage"], METADATA[:-1])
    return kinds[number % len(kinds)]


def http_requests(number: int) -> bytes:
    kinds = (
        (b"GET /admin/v2/clusters" + HOST + b"\r\n") * 5_000,
        b"GET /healthz" + HOST + b"x: y\r\n" * 100_000,
        b"GET /healthz" + HOST + b"x",
        b"POST /kafka-rest/v3/clusters"
        + HOST
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + b"1\r\n \r\n" * 50_000,
    )
    return kinds[number % len(kinds)]


def tubemq_requests(number: int) -> tuple[str, bytes]:
    """Registrations of producers and consumers at the master and at the broker."""
    registers = [("tubemq-master", each) for each in MASTER] + [
        ("tubemq-broker", each) for each in BROKER
    ]
    registers = [each for each in registers if "register" in each[1].method.name.lower()]
    listener, spec = registers[number % len(registers)]
    return listener, make_requests(
        lambda filler: tubemq_request(spec, filler), number, is_large=number % 2 == 1
    )


def send(peer: socket.socket, content: bytes, *, is_read: bool) -> None:
    """Send all of it, and read the responses, or never."""

    def read() -> None:
        with contextlib.suppress(OSError):
            while peer.recv(1 << 16):
                pass

    if is_read:
        threading.Thread(target=read, daemon=True).start()
    with contextlib.suppress(OSError):
        peer.sendall(content)


def test_all_listeners_at_once(node: AttackedNode, report: Report):
    ledger = find_ledger(node)
    kinds = (last_message_ids, seeks, acks, ack_sets)
    storms = [kinds[each % len(kinds)](each, ledger) for each in range(CLIENTS)]
    firsts = [CONNECT + subscribe(f"storm-{each}") + open_producer() for each in range(CLIENTS)]
    contents = [("kafka", kafka_requests(each)) for each in range(CLIENTS)]
    contents += [("http", http_requests(each)) for each in range(CLIENTS)]
    contents += [tubemq_requests(each) for each in range(CLIENTS)]
    with (
        RoundTrips(node) as clients,
        attack(node, report, most_s=30.0, cpu_s=CPU_S, more=clients) as stack,
    ):
        for number, (listener, content) in enumerate(contents):
            peer = stack.enter_context(dial(node.doors[listener]))
            peer.settimeout(WAIT_S)
            work = {"is_read": number % 8 < 6}
            threading.Thread(target=send, args=(peer, content), kwargs=work, daemon=True).start()
        send_all(stack, node.doors["pulsar"], storms, firsts, answers=3)
