"""Quotas as foreign clients and tools see them: set, described, enforced, fair to others.

A real broker measures over the last ten seconds, ours over the last second (`quotas.burst`): where
that matters a test expects less of a real one.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tools.servers.java import ROOT
from tools.servers.probe import call, own_time, receive

from tests.brokers import Broker
from tests.conformance.clients import DEADLINE, JAVA, Deadline
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.java import Java
from tests.conformance.raw import batch_of

ALTER_CLIENT_QUOTAS = 49
EVERY_JAVA = pytest.mark.parametrize("java", JAVA, ids=lambda java: java.name)
REAL_WINDOW_S = 10
KEPT_RATE = 0.5


def text(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else struct.pack(">h", len(value)) + value.encode()


def set_quota(address: str, kind: str, name: str | None, key: str, rate: float | None) -> None:
    """By hand, since no Python client can: AlterClientQuotas v0. No rate removes it."""
    entity = struct.pack(">i", 1) + text(kind) + text(name)
    change = struct.pack(">i", 1) + text(key) + struct.pack(">d?", rate or 0.0, rate is None)
    answer = call(
        address, ALTER_CLIENT_QUOTAS, 0, struct.pack(">i", 1) + entity + change + b"\0", DEADLINE
    )
    _, count, error = struct.unpack_from(">iih", answer)
    assert (count, error) == (1, 0), answer


@pytest.fixture
def made(address: str, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": address})
    (done,) = admin.create_topics([NewTopic(topic)]).values()
    done.result(DEADLINE)
    return topic


def fill(address: str, topic: str, count: int) -> None:
    """Small batches: a real broker never hands out one that its window has no room for."""
    producer = Confluent.producer(address, {"batch.size": 20_000})
    for _ in range(count):
        producer.produce(topic, os.urandom(1_000))
    assert producer.flush(DEADLINE) == 0


# ---- Java's tools


CASES = {
    "3.9.1": (
        JAVA[0],
        "users --entity-name=NAME --entity-type=clients --entity-default",
        "user-principal 'NAME', the default client-id",
        "consumer_byte_rate",
    ),
    "4.3.1": (
        JAVA[1], "ips --entity-name=192.0.2.7", "ip '192.0.2.7'", "connection_creation_rate",
    ),
}  # fmt: skip


@pytest.mark.java
@pytest.mark.parametrize("version", CASES)
def test_kafka_configs_sets_describes_and_removes_quotas(address: str, topic: str, version: str):
    java, entity, shown, quota = CASES[version]
    chosen = f"--entity-type={entity}".replace("NAME", topic).split()

    def configs(*arguments: str) -> str:
        options = [f"--bootstrap-server={address}", *arguments, *chosen]
        return java.run("kafka.admin.ConfigCommand", *options)

    configs("--alter", f"--add-config={quota}=1000000")
    response = configs("--describe")
    configs("--alter", f"--delete-config={quota}")

    assert f"{shown.replace('NAME', topic)} are {quota}=1000000.0" in response
    assert quota not in configs("--describe")


@pytest.mark.java
@EVERY_JAVA
def test_a_java_producer_counts_how_long_it_was_made_to_wait(
    broker: Broker, address: str, made: str, java: Java
):
    rate = 25_000 if broker.name == "kafka" else 100_000
    set_quota(address, "client-id", made, "producer_byte_rate", rate)

    printed = java.run(
        "org.apache.kafka.tools.ProducerPerformance", f"--topic={made}", "--num-records=400",
        "--record-size=1000", "--throughput=-1", "--print-metrics", "--producer-props",
        f"bootstrap.servers={address}", f"client.id={made}", "batch.size=16384",
    )  # fmt: skip

    assert metric(printed, "produce-throttle-time-avg") > 0
    assert "400 records sent" in printed


@pytest.mark.java
@EVERY_JAVA
def test_a_java_consumer_counts_how_long_it_was_made_to_wait(
    broker: Broker, made: str, java: Java, tmp_path: Path
):
    address = broker.address
    fill(address, made, 400)
    properties = tmp_path / "client.properties"
    properties.write_text(f"client.id={made}\n")
    rate = 25_000 if broker.name == "kafka" else 150_000
    set_quota(address, "client-id", made, "consumer_byte_rate", rate)

    printed = java.run(
        "org.apache.kafka.tools.ConsumerPerformance", f"--bootstrap-server={address}",
        f"--topic={made}", "--num-records=400" if java.since_4 else "--messages=400",
        f"--command-config={properties}" if java.since_4 else f"--consumer.config={properties}",
        "--print-metrics", "--timeout=60000", "--fetch-size=20000",
    )  # fmt: skip

    assert metric(printed, "fetch-throttle-time-avg") > 0


def metric(printed: str, name: str) -> float:
    """The largest value of a metric that a tool printed."""
    lines = [line for line in printed.splitlines() if f":{name}:" in line.replace(" ", "")]
    assert lines, printed
    return max(float(line.rsplit(":", 1)[1]) for line in lines)


# ---- librdkafka


def test_a_producer_is_directed_to_wait_and_gets_no_further(
    broker: Broker, address: str, made: str
):
    rate = 50_000 if broker.name == "kafka" else 250_000
    set_quota(address, "client-id", made, "producer_byte_rate", rate)
    waits_s: list[float] = []
    producer = Confluent.producer(
        address,
        {
            "client.id": made,
            "batch.size": 50_000,
            "message.timeout.ms": 120_000,
            "throttle_cb": lambda event: waits_s.append(event.throttle_time),
        },
    )
    began = time.monotonic()

    for _ in range(800):
        producer.produce(made, os.urandom(1_000))
        producer.poll(0)
    assert producer.flush(100) == 0
    took_s = time.monotonic() - began
    deadline = Deadline("a word about the throttle")
    while not waits_s:
        producer.poll(0.05)
        deadline.check(waits_s)

    assert max(waits_s) > 0.05
    if broker.name != "kafka":
        assert 800_000 / took_s < 1.5 * rate  # the first second's worth goes at once


def test_a_consumer_gets_no_more_than_its_quota(broker: Broker, address: str, made: str):
    rate = 50_000 if broker.name == "kafka" else 250_000
    fill(address, made, 800)
    set_quota(address, "client-id", made, "consumer_byte_rate", rate)
    waits_s: list[float] = []
    consumer = Confluent.consumer(
        address,
        made,
        {
            "client.id": made,
            "fetch.message.max.bytes": 100_000,
            "throttle_cb": lambda event: waits_s.append(event.throttle_time),
        },
    )
    consumer.subscribe([made])
    deadline, got = Deadline("800 records", 100), 0
    began = time.monotonic()

    while got < 800:
        deadline.check(got)
        got += len(consumer.consume(800 - got, 0.2))
    took_s = time.monotonic() - began
    while not waits_s:
        consumer.poll(0.05)
        deadline.check(waits_s)
    consumer.close()

    assert max(waits_s) > 0.05
    if broker.name != "kafka":
        assert 800_000 / took_s < 1.5 * rate


# ---- everybody else


class OneInFlight:
    """A client that waits for each answer: its rate is how soon the server gets to it."""

    def __init__(self, address: str, topic: str, pid: int) -> None:
        self.pid = pid
        host, port = address.rsplit(":", 1)
        self.connection = socket.create_connection((host, int(port)), DEADLINE)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        records = batch_of(bytes(1_000))
        body = struct.pack(">hhii", -1, -1, 1_000, 1) + text(topic)  # no transaction, acks -1
        body += struct.pack(">iii", 1, 0, len(records)) + records
        frame = struct.pack(">hhi", 0, 7, 1) + text("modest") + body
        self.frame = struct.pack(">i", len(frame)) + frame

    def rate(self, seconds: float) -> float:
        """Answers a second, what the machine gave to others taken off; the median of tenths."""
        rates: list[float] = []
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            count, began, until = 0, own_time(self.pid), time.monotonic() + 0.1
            while time.monotonic() < until:
                self.connection.sendall(self.frame)
                (size,) = struct.unpack(">i", receive(self.connection, 4))
                receive(self.connection, size)
                count += 1
            rates.append(count / (own_time(self.pid) - began))
        return statistics.median(rates)


@contextmanager
def greedy(address: str, topic: str, client_id: str, seconds: float) -> Iterator[list[dict]]:
    command = [sys.executable, "-m", "tests.conformance.greedy", address, topic, client_id]
    process = subprocess.Popen(
        [*command, str(seconds)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    reported: list[dict] = []
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield reported
        reported.append(json.loads(process.stdout.readline()))
        assert process.wait(DEADLINE) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_greedy_client_waits_and_others_keep_their_rate(
    broker: Broker, address: str, made: str, report: Callable[[object], None]
):
    """The greedy client is throttled and keeps its connection; the other keeps most of its rate.

    On an idle machine the other client keeps four fifths of its rate and more; the bound of one
    half leaves room for other processes.
    """
    set_quota(address, "client-id", made, "producer_byte_rate", 1_000_000)
    modest = OneInFlight(address, made, broker.pid)
    modest.rate(0.5)

    for attempt in range(6):  # what else the machine writes to its disk counts too
        alone = modest.rate(1.5)
        with greedy(address, made, made, 3.5) as reports:
            time.sleep(1.0)  # its burst
            beside = modest.rate(1.5)
        if beside >= KEPT_RATE * alone or attempt == 5:
            break

    report(f"{beside / alone:.0%} of the rate without the greedy client")
    assert beside >= KEPT_RATE * alone
    (figures,) = reports
    assert figures["problems"] == []
    assert max(figures["waits_ms"]) > 100
    if broker.name != "kafka":
        assert figures["sent"] * 1_000 < 1.2 * 1_000_000 * (1 + figures["seconds"])


def test_topics_made_too_fast_are_refused_until_later(address: str, topic: str):
    """KIP-599: CreateTopics v6 and later hear THROTTLING_QUOTA_EXCEEDED."""
    from kafka.admin import KafkaAdminClient
    from kafka.admin import NewTopic as PythonTopic
    from kafka.errors import ThrottlingQuotaExceededError

    set_quota(address, "client-id", topic, "controller_mutation_rate", 2.0)
    admin = KafkaAdminClient(bootstrap_servers=address, client_id=topic)
    try:
        admin.create_topics([PythonTopic(f"{topic}.1", 40, 1)])
        with pytest.raises(ThrottlingQuotaExceededError):
            admin.create_topics([PythonTopic(f"{topic}.2", 1, 1)])
    finally:
        admin.close()
    response = AdminClient({"bootstrap.servers": address}).list_topics(timeout=DEADLINE).topics
    assert f"{topic}.1" in response
    assert f"{topic}.2" not in response
