"""OpenTelemetry spans of messages whose clients speak another protocol than their producer."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pulsar
import pytest
from confluent_kafka import Consumer, Producer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.conformance.clients import tubemq as java
from tests.conformance.clients.pulsar import Process
from tests.conformance.tubes import Tubes
from tests.server import Server, start_server
from trilogue.client.tubemq import Message

WAIT_S = 60
TRACE = "4bf92f3577b34da6a3ce929d0e0e47{:02x}"
PARENT = "00f067aa0ba902b7"


class Collector:
    """An OTLP receiver; `spans` has what arrived."""

    def __init__(self) -> None:
        self.spans: queue.Queue[Any] = queue.Queue()
        spans = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                assert self.path == "/v1/traces"
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in resource.scope_spans:
                        for span in scope.spans:
                            spans.put(span)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def take(self, count: int) -> dict[tuple[str, str], Any]:
        """Return so many spans by system and operation."""
        found = [self.spans.get(timeout=WAIT_S) for _ in range(count)]
        return {
            (read(each, "messaging.system"), read(each, "messaging.operation.name")): each
            for each in found
        }


def read(span: Any, key: str) -> str:
    return next(each.value.string_value for each in span.attributes if each.key == key)


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def node(tmp_path: Path, collector: Collector) -> Iterator[Server]:
    with start_server(
        tmp_path / "data",
        settings={"traces.endpoint": collector.endpoint},
        environment={"OTEL_BSP_SCHEDULE_DELAY": "100"},
    ) as started:
        yield started


def consume(node: Server, topic: str) -> Any:
    consumer = Consumer(
        {"bootstrap.servers": node.kafka, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    ends = time.monotonic() + WAIT_S
    message = None
    while message is None and time.monotonic() < ends:
        message = consumer.poll(1)
    consumer.close()
    return message


def test_a_message_of_kafka_has_one_trace_through_pulsar(node: Server, collector: Collector):
    before_ns = time.time_ns()
    client = pulsar.Client(node.pulsar)
    consumer = client.subscribe("orders", "s")
    producer = Producer({"bootstrap.servers": node.kafka, "compression.type": "lz4"})
    headers = [("traceparent", f"00-{TRACE.format(1)}-{PARENT}-01".encode())]
    for number in range(20):
        producer.produce("orders", b"x" * 100, headers=headers if number == 7 else [])
    assert producer.flush(WAIT_S) == 0
    received = [consumer.receive(WAIT_S * 1_000) for _ in range(20)]
    client.close()

    assert sum("traceparent" in each.properties() for each in received) == 1
    spans = collector.take(2)
    assert spans.keys() == {("kafka", "publish"), ("pulsar", "deliver")}
    for span in spans.values():
        assert span.trace_id.hex() == TRACE.format(1)
        assert span.parent_span_id.hex() == PARENT
        assert read(span, "messaging.destination.name") == "public/default/orders"
        assert before_ns <= span.start_time_unix_nano <= span.end_time_unix_nano <= time.time_ns()


def test_a_message_of_pulsar_has_one_trace_through_kafka(node: Server, collector: Collector):
    client = pulsar.Client(node.pulsar)
    producer = client.create_producer("orders")
    producer.send(b"silent", properties={"traceparent": f"00-{TRACE.format(2)}-{PARENT}-00"})
    producer.send(b"traced", properties={"traceparent": f"00-{TRACE.format(3)}-{PARENT}-01"})
    client.close()
    published = collector.take(1)
    assert consume(node, "orders").value() == b"silent"
    spans = published | collector.take(1)

    assert spans.keys() == {("pulsar", "publish"), ("kafka", "deliver")}
    assert {each.trace_id.hex() for each in spans.values()} == {TRACE.format(3)}


@pytest.mark.java
def test_a_message_of_tubemq_has_one_trace_through_kafka(
    node: Server, collector: Collector, tube_drivers: dict[str, Process]
):
    world = make_tubes(node, tube_drivers)
    topic = world.topic("orders")
    silent = Message(
        topic, b"silent", attributes={"traceparent": f"00-{TRACE.format(5)}-{PARENT}-00"}
    )
    traced = Message(
        topic, b"traced", attributes={"traceparent": f"00-{TRACE.format(6)}-{PARENT}-01"}
    )
    before_ns = time.time_ns()
    world.write("java", silent, traced)
    published = collector.take(1)
    assert consume(node, topic).value() == b"silent"
    spans = published | collector.take(1)

    assert spans.keys() == {("tubemq", "publish"), ("kafka", "deliver")}
    for span in spans.values():
        assert span.trace_id.hex() == TRACE.format(6)
        assert span.parent_span_id.hex() == PARENT
        assert read(span, "messaging.destination.name") == f"public/default/{topic}"
        assert before_ns <= span.start_time_unix_nano <= span.end_time_unix_nano <= time.time_ns()


@pytest.mark.java
def test_a_message_of_kafka_has_one_trace_through_tubemq(
    node: Server, collector: Collector, tube_drivers: dict[str, Process]
):
    world = make_tubes(node, tube_drivers)
    topic = world.topic("orders")
    producer = Producer({"bootstrap.servers": node.kafka})
    producer.produce(topic, b"plain")
    headers = [
        ("traceparent", f"00-{TRACE.format(7)}-{PARENT}-01".encode()),
        ("tracestate", b"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
    ]
    producer.produce(topic, b"traced", headers=headers)
    assert producer.flush(WAIT_S) == 0
    published = collector.take(1)
    assert [each.body for each in world.read("java", topic, 2)] == [b"plain", b"traced"]
    spans = published | collector.take(1)

    assert spans.keys() == {("kafka", "publish"), ("tubemq", "deliver")}
    assert {each.trace_id.hex() for each in spans.values()} == {TRACE.format(7)}
    assert {each.trace_state for each in spans.values()} == {headers[1][1].decode()}


def make_tubes(node: Server, drivers: dict[str, Process]) -> Tubes:
    """TubeMQ's Java client, beside the server."""
    drivers["trilogue"] = drivers.get("trilogue") or java.driver_process()
    return Tubes(node, driver=lambda: drivers["trilogue"])


def test_a_collector_that_is_gone_delays_no_client(tmp_path: Path):
    with start_server(
        tmp_path / "data", settings={"traces.endpoint": "http://127.0.0.1:9"}
    ) as node:
        producer = Producer({"bootstrap.servers": node.kafka})
        headers = [("traceparent", f"00-{TRACE.format(4)}-{PARENT}-01".encode())]
        for _ in range(100):
            producer.produce("orders", b"x", headers=headers)
            assert producer.flush(WAIT_S) == 0
        assert consume(node, "orders").value() == b"x"
