"""Searches of the console that find nothing, and payloads that stand for more than they are."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pulsar
import pytest
from confluent_kafka import Producer
from pulsar.schema import Array, AvroSchema, Integer, Record

from tests.attacks.node import MIB, WAIT_S, AttackedNode, Report, attack
from tests.brokers import make_topic

SEARCHES = 40  # at once
MESSAGES, VALUE = 20_000, b"x" * 4_000  # a search ends at 10,000 messages or 8 MiB
GROWTH_MAX, CPU_MAX_S = 150 * MIB, 0.8  # 5 to 20 MiB and 0.14 s were measured, 75 MiB beside others
ENDLESS = b"\x80\x80\x80\x80\x80\x80\x80\x80\x20"  # the length of an Avro array, 2**60
pytestmark = [pytest.mark.full, pytest.mark.timeout(240)]


class Reading(Record):
    """A message of the topic `broken`."""

    numbers = Array(Integer())


@pytest.fixture
def node(tmp_path: Path) -> Iterator[AttackedNode]:
    made = AttackedNode(tmp_path).start()
    yield made
    made.kill9()


def get(node: AttackedNode, page: str, **parameters: object) -> tuple[int, str]:
    """Return status and text of a page, at an address of its own."""
    host, port = node.doors["http"].rsplit(":", 1)
    source = ("127.0.0.3", 0)
    opened = http.client.HTTPConnection(host, int(port), timeout=WAIT_S, source_address=source)
    with closing(opened):
        opened.request("GET", f"/console/{page}?{urlencode(parameters)}")
        answer = opened.getresponse()
        return answer.status, answer.read().decode()


def fill(node: AttackedNode) -> None:
    """Write 80 MB of text, and payloads of a schema that they break."""
    make_topic(node.address, "broken", 1)
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(f"pulsar://{node.doors['pulsar']}", logger=logger)
    producer = client.create_producer("broken-partition-0", schema=AvroSchema(Reading))
    producer.send(Reading(numbers=[1]))
    client.close()
    producer = Producer({"bootstrap.servers": node.address, "linger.ms": 20})
    for number in range(MESSAGES):
        producer.produce("healthy", VALUE, f"key-{number}")
        if number % 1_000 == 0:
            producer.flush(WAIT_S)
    for payload in (ENDLESS * 100, b"[" * 100_000, b"\xff" * 100_000):
        producer.produce("broken", payload)
    assert producer.flush(WAIT_S) == 0


@contextmanager
def search_without_end(node: AttackedNode, found: Counter[int]) -> Iterator[None]:
    """Search for what is not there, with so many clients, each again and again."""
    stopping = threading.Event()

    def search(number: int) -> None:
        while not stopping.is_set():
            page = {0: "messages", 1: "topics", 2: "groups", 3: "subscriptions"}[number % 4]
            text = {"name": "healthy", "text": "missing"} if number % 4 == 0 else {"q": "z" * 1_000}
            found[get(node, page, **text)[0]] += 1

    threads = [threading.Thread(target=search, args=(each,)) for each in range(SEARCHES)]
    for each in threads:
        each.start()
    yield
    stopping.set()
    for each in threads:
        each.join(WAIT_S)


def test_searches_that_find_nothing_and_broken_payloads(node: AttackedNode, report: Report):
    fill(node)
    found: Counter[int] = Counter()
    with (
        attack(node, report, most_s=6.0, growth=GROWTH_MAX, cpu_s=CPU_MAX_S),
        search_without_end(node, found),
    ):
        status, text = get(node, "messages", name="healthy", text="missing")
        assert status == 200
        assert "0 found among" in text
        assert "the search can go on" in text
        status, text = get(node, "messages", name="broken", offset=0)
        assert status == 200
        assert text.count("bytes, ") + text.count("text, ") == 3
        assert get(node, "nothing")[0] == 404
        assert get(node, "messages", name="healthy", text="x" * 2_000)[0] == 400
    report(f"{found.total()} searches: {dict(found)}")
    assert set(found) == {200}
    assert found.total() > SEARCHES
