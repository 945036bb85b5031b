"""What does it cost to produce over HTTP, beside Kafka's protocol and beside a real Pulsar?

    python -m benchmarks.rest [--seconds 4] [--real]

Requests of 100 messages of 100 B, one on its way at each of four connections: Kafka's REST proxy
(v2, JSON), Pulsar's `/topics/…`, and librdkafka with as many messages on their way. `--real`
measures a real Pulsar's `/topics/…` as well. CPU is that of the server.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from confluent_kafka import Producer
from tools.servers.pulsar import RealPulsar

from benchmarks.drivers import BUILD
from benchmarks.measure import Meter, settle
from benchmarks.servers import Trilogue, create_topic

MESSAGES, SIZE, CONNECTIONS = 100, 100, 4
TEXT = "x" * SIZE
WARM_S = 1.0
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


def measure(name: str, pid: int, make: Callable[[], Sender], seconds: float) -> None:
    """Send on all connections and print the rate, and the server's CPU for each message."""
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
    print(f"{name:32}{count / passed:12,.0f} messages/s{cpu:9.2f} us of CPU a message", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="producing over HTTP")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--real", action="store_true", help="a real Pulsar, too")
    chosen = parser.parse_args()
    root = (BUILD / "rest").absolute()
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    records = {"records": [{"value": TEXT}] * MESSAGES}
    messages = {"messages": [{"payload": TEXT}] * MESSAGES}
    kafka_kind, topic = "application/vnd.kafka.json.v2+json", "/topics/persistent/public/default"
    ours = Trilogue(root / "ours", doors=("pulsar",)).start()
    try:
        for name in ("by-kafka", "by-rest"):
            create_topic(ours.address, name, 1)
        measure(
            "Kafka's protocol, librdkafka",
            ours.pid,
            lambda: make_kafka_sender(ours.address, "by-kafka"),
            chosen.seconds,
        )
        measure(
            "Kafka's REST proxy, v2",
            ours.pid,
            lambda: make_poster(ours.http, "/kafka-rest/topics/by-rest", records, kafka_kind),
            chosen.seconds,
        )
        measure(
            "Pulsar's REST",
            ours.pid,
            lambda: make_poster(ours.http, f"{topic}/by-http", messages, "application/json"),
            chosen.seconds,
        )
    finally:
        ours.kill9()
    if chosen.real:
        measure_pulsar(root / "pulsar", topic, messages, chosen.seconds)
    shutil.rmtree(root, ignore_errors=True)


def measure_pulsar(root: Path, topic: str, messages: object, seconds: float) -> None:
    """The same requests at a real one."""
    real = RealPulsar(root, durable=True, heap="1g", direct="2g").start()
    try:
        url = f"http://127.0.0.1:{real.http_port}"
        made = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        made.request("PUT", "/admin/v2/persistent/public/default/by-http")  # it creates none itself
        if made.getresponse().status != 204:
            raise RuntimeError("the topic was not created")
        measure(
            "Pulsar's REST, a real Pulsar",
            real.pid,
            lambda: make_poster(url, f"{topic}/by-http", messages, "application/json"),
            seconds,
        )
    finally:
        real.kill9()


if __name__ == "__main__":
    main()
