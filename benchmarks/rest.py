"""What does it cost to produce over HTTP, beside Kafka's protocol and beside a real Pulsar?

    python -m benchmarks.rest [--rounds 2] [--seconds 4] [--ours] [--no-save]

Requests of 100 messages of 100 B, one on its way at each of four connections: Kafka's REST proxy
(v2, JSON) beside librdkafka with as many messages on their way, and Pulsar's `/topics/…` beside a
real Pulsar's, in turn. CPU is that of the server.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import sys
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from confluent_kafka import Producer
from tools.servers.pulsar import VERSION, RealPulsar

from benchmarks import report
from benchmarks.drivers import BUILD
from benchmarks.gates import CPU_PER_MESSAGE, TRILOGUE, Figures, at_least, at_most
from benchmarks.measure import Meter, settle
from benchmarks.servers import Trilogue, create_topic

MESSAGES, SIZE, CONNECTIONS = 100, 100, 4
TEXT = "x" * SIZE
WARM_S = 1.0
PULSAR, BY_KAFKA = "pulsar", "librdkafka"
TOPICS = "/topics/persistent/public/default/by-http"
KAFKA_KIND = "application/vnd.kafka.json.v2+json"
RECORDS = {"records": [{"value": TEXT}] * MESSAGES}
PUBLISHED = {"messages": [{"payload": TEXT}] * MESSAGES}
PULSAR_QUESTION = "POST of 100 messages of 100 B to /topics, one on its way at 4 connections."
KAFKA_QUESTION = "The same to Kafka's REST proxy, beside librdkafka at the same server."
GATES = (
    at_least("Pulsar's messages/s", "messages_per_s", 1.0, PULSAR),
    at_most("its CPU/message", CPU_PER_MESSAGE, 1.0, PULSAR),
)
Sender = Callable[[], None]


def make_poster(url: str, path: str, body: object, kind: str) -> Sender:
    """Return what posts one request on a connection of its own and checks its answer."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    content = json.dumps(body).encode()

    def post() -> None:
        connection.request("POST", path, content, {"Content-Type": kind})
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status != 200 or '"errorCode":' in text.replace('"errorCode":0', ""):
            raise RuntimeError(f"{path}: {answer.status} {text[:200]}")

    return post


def make_kafka_sender(address: str, topic: str) -> Sender:
    """Return what sends as many messages by librdkafka and waits until they are acknowledged."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 1, "log_level": 2})
    value = TEXT.encode()

    def send() -> None:
        for _ in range(MESSAGES):
            producer.produce(topic, value)
        if producer.flush(60):
            raise RuntimeError(f"{topic}: messages were not acknowledged")

    return send


def measure(pid: int, make: Callable[[], Sender], seconds: float) -> Figures:
    """Send on all connections; the rate, and the server's CPU for each message."""
    sent = [0] * CONNECTIONS
    problems: list[BaseException] = []
    counting, ended = threading.Event(), threading.Event()

    def run(number: int, send: Sender) -> None:
        try:
            while not ended.is_set():
                send()
                sent[number] += counting.is_set()
        except BaseException as problem:  # noqa: BLE001 - raised by the caller
            problems.append(problem)
            ended.set()

    threads = [threading.Thread(target=run, args=(each, make())) for each in range(CONNECTIONS)]
    settle([pid])
    for thread in threads:
        thread.start()
    ended.wait(WARM_S)
    meter, began = Meter(pid), time.monotonic()
    counting.set()
    ended.wait(seconds)
    ended.set()
    for thread in threads:
        thread.join()
    passed = time.monotonic() - began
    settle([pid])
    if problems:
        raise problems[0]
    count = sum(sent) * MESSAGES
    cpu = meter.read().whole_cpu_s / count * 1e6
    return {"messages_per_s": count / passed, CPU_PER_MESSAGE: cpu}


def measure_kafka(ours: Trilogue, seconds: float) -> dict[str, Figures]:
    """Kafka's REST proxy beside Kafka's protocol."""
    path = "/kafka-rest/topics/by-rest"
    makers = {
        BY_KAFKA: lambda: make_kafka_sender(ours.address, "by-kafka"),
        TRILOGUE: lambda: make_poster(ours.http, path, RECORDS, KAFKA_KIND),
    }
    return {name: measure(ours.pid, make, seconds) for name, make in makers.items()}


def measure_topics(servers: dict[str, tuple[int, str]], seconds: float) -> dict[str, Figures]:
    """Pulsar's `/topics` of each server, by its process and address."""
    return {
        name: measure(
            pid, lambda url=url: make_poster(url, TOPICS, PUBLISHED, "application/json"), seconds
        )
        for name, (pid, url) in servers.items()
    }


def make_topic(real: RealPulsar) -> None:
    """A real Pulsar makes none itself for a POST."""
    made = http.client.HTTPConnection("127.0.0.1", real.http_port, timeout=60)
    made.request("PUT", "/admin/v2/persistent/public/default/by-http")
    if made.getresponse().status != 204:
        raise RuntimeError("the topic was not created")


def gather(legs: list[dict[str, Figures]]) -> report.Legs:
    """The legs by server, without the first round, which warms them."""
    return {name: [leg[name] for leg in legs[1:]] for name in legs[0]}


def main() -> int:
    parser = argparse.ArgumentParser(description="producing over HTTP")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--ours", action="store_true", help="no real Pulsar; not saved")
    parser.add_argument("--no-save", action="store_true")
    chosen = parser.parse_args()
    root = (BUILD / "rest").absolute()
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    ours = Trilogue(root / "ours", doors=("pulsar",)).start()
    real: RealPulsar | None = None
    try:
        for name in ("by-kafka", "by-rest"):
            create_topic(ours.address, name, 1)
        servers = {TRILOGUE: (ours.pid, ours.http)}
        if not chosen.ours:
            real = RealPulsar(root / "pulsar", durable=True, heap="1g", direct="2g").start()
            make_topic(real)
            servers = {PULSAR: (real.pid, f"http://127.0.0.1:{real.http_port}"), **servers}
        times = range(chosen.rounds + 1)
        by_kafka = gather([measure_kafka(ours, chosen.seconds) for _ in times])
        topics = gather([measure_topics(servers, chosen.seconds) for _ in times])
    finally:
        ours.kill9()
        if real is not None:
            real.kill9()
    rows = [
        report.summarise("pulsar-rest-100B", PULSAR_QUESTION, topics, GATES),
        report.summarise("kafka-rest-100B", KAFKA_QUESTION, by_kafka, ()),
    ]
    print(report.table(rows))
    if not (chosen.no_save or chosen.ours):
        path = report.save_rows(root, {PULSAR: VERSION}, chosen.rounds, rows)
        print(f"written to {path}")
    shutil.rmtree(root, ignore_errors=True)
    return 1 if any(not gate["passed"] for row in rows for gate in row["gates"]) else 0


if __name__ == "__main__":
    sys.exit(main())
