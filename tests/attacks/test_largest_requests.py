"""Each of Kafka's requests at its largest, from many clients at once.

Requests are made from the tables of the codec: lists of things that exist and of things that do
not, as wide as they may be (many items) and as deep (one item with very many).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.attacks.node import AttackedNode, Report, attack
from tests.conformance.raw import batch_of
from tests.crash.kafka.test_hostile import Line, framed
from trilogue.gateway.kafka.api_table import ApiSpec
from trilogue.gateway.kafka.apis import TABLE
from trilogue.wire.kafka.codec.compile import encoder
from trilogue.wire.kafka.codec.header import RequestHeader, encode_request_header
from trilogue.wire.kafka.codec.schema import Field, Wire, is_message, table

TOPICS = 2_000
BYTES = 1 << 20  # of a request, about
CLIENTS, TIMES = 20, 2
WAIT_S = 240
VALUES = {"timeout_ms": 1_000, "replica_id": -1, "producer_id": -1, "max_wait_ms": 0}


class LargeRequest:
    """Fills the fields of a request, for one client."""

    def __init__(self, cls: type, version: int, client: int, items: int, *, deep: bool) -> None:
        self.cls, self.version, self.client, self.deep = cls, version, client, deep
        self.items = items
        self.numbers = count()

    def encode(self) -> bytes:
        known = table(self.cls)
        body = bytearray()
        encode_request_header(body, RequestHeader(known.key, self.version, 1, "large"))
        encoder(self.cls, self.version)(self.fill(self.cls, 0), body)
        return framed(bytes(body))

    def fill(self, cls: type, depth: int) -> object:
        fields = table(cls).fields
        present = [each for each in fields if each.present(self.version)]
        return cls(**{each.name: self.value(each, depth) for each in present})

    def value(self, field: Field, depth: int) -> object:
        if field.item is not None and field.wire.kind == "array":
            is_large = depth == (1 if self.deep else 0)
            return [self.item(field, depth + 1) for _ in range(self.items if is_large else 1)]
        if isinstance(field.item, type):
            return self.fill(field.item, depth + 1)
        return self.scalar(field.name, field.wire)

    def item(self, field: Field, depth: int) -> object:
        if isinstance(field.item, type) and is_message(field.item):
            return self.fill(field.item, depth)
        assert isinstance(field.item, Wire)
        return self.scalar(field.name, field.item)

    def scalar(self, name: str, wire: Wire) -> object:
        if name in VALUES:
            return VALUES[name]
        if wire.kind == "string":
            number = next(self.numbers)
            return f"t{number % TOPICS}" if number % 2 else f"{name}-{self.client}-{number}"
        if wire.kind == "records":
            return bytes(batch_of(b"value"))
        if wire.code == "16s":
            return next(self.numbers).to_bytes(16, "big")
        return wire.zero


def largest(api: ApiSpec, client: int, *, deep: bool) -> bytes:
    cls, version = api.request, api.served[1]
    sample = len(LargeRequest(cls, version, client, 100, deep=deep).encode())
    # An item has one element or two.
    items = max(1, min(api.elements_max // 3, 100 * BYTES // sample))
    return LargeRequest(cls, version, client, items, deep=deep).encode()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedNode]:
    made = AttackedNode(tmp_path_factory.mktemp("largest")).start()
    admin = AdminClient({"bootstrap.servers": made.address})
    topics = [NewTopic(f"t{number}", 1, 1) for number in range(TOPICS)]
    for future in admin.create_topics(topics).values():
        future.result(WAIT_S)
    yield made
    made.kill9()


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("deep", [False, True], ids=["wide", "deep"])
@pytest.mark.parametrize("api", TABLE, ids=lambda api: api.name)
def test_largest_requests(node: AttackedNode, report: Report, api: ApiSpec, deep: bool):
    """Whatever the answer is, or a closed connection; others are served meanwhile."""
    contents = [largest(api, client, deep=deep) for client in range(CLIENTS)]

    def work(content: bytes) -> None:
        with contextlib.suppress(OSError, AssertionError), Line(node.address) as line:
            line.peer.settimeout(WAIT_S)
            for _ in range(TIMES):
                line.request(content)

    with attack(node, report, most_s=0.0):
        threads = [threading.Thread(target=work, args=(each,)) for each in contents]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert not any(thread.is_alive() for thread in threads)
    report(f"{len(contents[0]) >> 10} KiB")
