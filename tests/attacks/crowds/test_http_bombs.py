"""Hundreds of requests at once for messages that are a thousand times as large as what is stored:
Kafka's REST proxy, the console, single messages of Pulsar over HTTP, offsets by time."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import cramjam
import pytest

from tests.attacks.node import MIB, WAIT_S, AttackedNode, Report, attack
from tests.attacks.peers import send_in_parallel
from tests.attacks.test_bombs import create_producer
from tests.attacks.test_http_floods import HOST, sending
from tests.attacks.test_large_requests import encode
from tests.brokers import make_topic
from tests.crash.hostile import dial
from tests.crash.kafka.test_hostile import Line
from tests.crash.pulsar.test_hostile import CONNECT
from tests.gateway.pulsar.rig import send_frame
from trilogue.entry.entry import Codec, Record
from trilogue.entry.kafka.record_batch import build_batch
from trilogue.wire.kafka.offsets.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
SIZE = 31 * MIB  # as much as is decompressed of one message
MESSAGES = 3
TIME = 1_600_000_000_000
KAFKA_JSON = "application/vnd.kafka.v2+json"
PATHS = {
    "console": b"GET /console/messages?name=%s&offset=0",
    "console search": b"GET /console/messages?name=%s&text=missing",
    "examined": b"GET /admin/v2/persistent/public/default/%s/examinemessage"
    b"?initialPosition=earliest",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedNode]:
    made = AttackedNode(tmp_path_factory.mktemp("bombs")).start()
    for topic in ("of-kafka", "of-pulsar"):
        make_topic(made.address, topic, 1)
    batch = build_batch([Record(0, TIME, b"key", bytes(SIZE))], codec=Codec.ZSTD)
    with Line(made.address) as line:
        for _ in range(MESSAGES):
            assert line.produce("of-kafka", batch) == 0
    packed = bytes(cramjam.zstd.compress(bytes(SIZE)))
    frames = [
        send_frame(1, each, packed, metadata_compression=3, metadata_uncompressed_size=SIZE)
        for each in range(MESSAGES)
    ]
    with dial(made.doors["pulsar"]) as peer:
        peer.settimeout(WAIT_S)
        for content in (CONNECT, create_producer("of-pulsar-partition-0"), *frames):
            peer.sendall(content)
            assert peer.recv(1 << 12)
    yield made
    made.kill9()


@pytest.mark.parametrize("is_read", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize("topic", ["of-kafka", "of-pulsar"])
@pytest.mark.parametrize("page", PATHS)
def test_pages(node: AttackedNode, report: Report, page: str, topic: str, is_read: bool):
    """Two hundred clients request a page again and again."""
    content = (PATHS[page] % topic.encode() + HOST + b"\r\n") * 20

    def request(peer: socket.socket, stopping: threading.Event) -> None:
        peer.sendall(content)
        while is_read and peer.recv(1 << 16) and not stopping.is_set():
            pass

    with attack(node, report, most_s=15.0) as stack:
        stack.enter_context(sending(stack, node, 200, request))


def call(node: AttackedNode, method: str, path: str, body: object = None) -> tuple[int, bytes]:
    """The status and the body of an answer of the REST proxy, to an address of its own."""
    host, port = node.doors["http"].rsplit(":", 1)
    opened = http.client.HTTPConnection(
        host, int(port), timeout=WAIT_S, source_address=("127.0.0.3", 0)
    )
    headers = {"Content-Type": KAFKA_JSON, "Accept": "application/vnd.kafka.binary.v2+json"}
    with closing(opened):
        text = None if body is None else json.dumps(body)
        opened.request(method, f"/kafka-rest{path}", text, headers)
        answer = opened.getresponse()
        return answer.status, answer.read()


@pytest.mark.parametrize("topic", ["of-kafka", "of-pulsar"])
def test_consumers_of_the_rest_proxy(node: AttackedNode, report: Report, topic: str):
    """Thirty instances read at once."""
    codes: Counter[int] = Counter()

    def consume(number: int) -> None:
        group = f"/consumers/bombs-{topic}-{number}"
        made = {"name": "one", "format": "binary", "auto.offset.reset": "earliest"}
        assert call(node, "POST", group, made)[0] == 200
        instance = f"{group}/instances/one"
        where = {"partitions": [{"topic": topic, "partition": 0}]}
        assert call(node, "POST", f"{instance}/assignments", where)[0] == 204
        assert call(node, "POST", f"{instance}/positions/beginning", where)[0] == 204
        for _ in range(MESSAGES):
            try:
                codes[call(node, "GET", f"{instance}/records?timeout=3000")[0]] += 1
            except (OSError, http.client.HTTPException):  # closed: others waited for its memory
                codes[0] += 1
        assert call(node, "DELETE", instance)[0] == 204

    with attack(node, report, most_s=0.0), ThreadPoolExecutor(30) as pool:
        list(pool.map(consume, range(30)))
    report(f"{dict(codes)}")
    assert set(codes) <= {0, 200}
    assert codes[200] > MESSAGES


@pytest.mark.parametrize("topic", ["of-kafka", "of-pulsar"])
def test_offsets_by_time(node: AttackedNode, report: Report, topic: str):
    """Each looks into the messages."""
    late = [ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=TIME)]
    asked = [ListOffsetsTopic(name=topic, partitions=late)]
    content = encode(ListOffsetsRequest(replica_id=-1, topics=asked)) * 50
    with attack(node, report, most_s=15.0) as stack:
        send_in_parallel(stack, node.address, 200, content)
