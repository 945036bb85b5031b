"""Each request of TubeMQ's methods, from many clients at once.

Requests are made from the descriptors of their messages: very large ones, whose lists are as long
as a MiB allows, and very many small ones. The clients read what they are answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.attacks.node import AttackedNode, Report, attack
from tests.attacks.test_pulsar_storms import send_all
from tests.brokers import make_topic
from trilogue.gateway.tubemq.methods import BROKER, MASTER
from trilogue.gateway.tubemq.request_context import MethodSpec
from trilogue.wire.tubemq.frame import encode_request

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
CLIENTS = 30
LARGE_BYTES, LARGE_TIMES = 1 << 20, 4
SMALL_TIMES, DIFFERENT = 2_000, 50
PARTITIONS = 500
CPU_S = 1.0
FORMATS = {  # of texts that a handler takes apart
    "partition": "wide:{}",
    "topicCondition": "t{}#a,b,c",
    "topicList": "t{}",
}
NUMBERS = {FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64}
UNSIGNED = {FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64}
FLOATS = {FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedNode]:
    made = AttackedNode(tmp_path_factory.mktemp("protobuf")).start()
    make_topic(made.address, "wide", PARTITIONS)
    yield made
    made.kill9()


class RequestFiller:
    """Fills the fields of messages; lists at the top have so many items."""

    def __init__(self, client: int, items: int) -> None:
        self._client = client
        self._items = items
        self.numbers = count()

    def fill(self, message: Message, depth: int = 0) -> None:
        for field in message.DESCRIPTOR.fields:
            is_needed = field.is_required
            if field.is_repeated:
                self._fill_list(message, field, depth)
            elif field.message_type is not None:
                if depth < 2:
                    made = getattr(message, field.name)
                    made.SetInParent()
                    self.fill(made, depth + 1)
            elif is_needed or field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
                setattr(message, field.name, self._scalar(field))

    def _fill_list(self, message: Message, field: FieldDescriptor, depth: int) -> None:
        if depth > 2:
            return
        for _ in range(self._items if depth <= 1 else 1):
            if field.message_type is not None:
                self.fill(getattr(message, field.name).add(), depth + 2)
            else:
                getattr(message, field.name).append(self._scalar(field))

    def _scalar(self, field: FieldDescriptor) -> object:
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            if field.type == FieldDescriptor.TYPE_BYTES:
                return b"value"
            pattern = FORMATS.get(field.name, f"{field.name[:6]}-{self._client}-{{}}")
            return pattern.format(next(self.numbers))
        if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
            return field.enum_type.values[0].number
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return True
        if field.cpp_type in FLOATS:
            return 1.0
        assert field.cpp_type in NUMBERS | UNSIGNED
        return 0 if field.name.endswith(("consumer_id", "producer_id", "tc_id")) else 1


def make_requests(make, client: int, *, is_large: bool) -> bytes:
    """Return the bytes that one client sends; `make(filler)` returns one request."""
    if not is_large:
        filler = RequestFiller(client, 1)
        return b"".join(make(filler) for _ in range(DIFFERENT)) * (SMALL_TIMES // DIFFERENT)
    items = LARGE_BYTES * 10 // len(make(RequestFiller(client, 10)))
    return make(RequestFiller(client, min(items, 100_000))) * LARGE_TIMES


def run_attack(
    node: AttackedNode,
    report: Report,
    address: str,
    requests: list[bytes],
) -> None:
    """Send all of them at once, each over a connection of its own."""
    with attack(node, report, most_s=10.0, cpu_s=CPU_S) as stack:
        send_all(stack, address, requests, [b""] * len(requests), answers=0)


def tubemq_request(spec: MethodSpec, filler: RequestFiller) -> bytes:
    method = spec.method
    body = method.request()
    filler.fill(body)
    content = body.SerializeToString()
    return bytes(encode_request(1, method.service, method.number, content, timeout_ms=60_000))


@pytest.mark.parametrize("is_large", [False, True], ids=["many", "large"])
@pytest.mark.parametrize(
    ("listener", "spec"),
    [("tubemq-master", each) for each in MASTER] + [("tubemq-broker", each) for each in BROKER],
    ids=lambda each: each.method.name if isinstance(each, MethodSpec) else "",
)
def test_tubemq_requests(
    node: AttackedNode, report: Report, listener: str, spec: MethodSpec, is_large: bool
):
    requests = [
        make_requests(lambda filler: tubemq_request(spec, filler), client, is_large=is_large)
        for client in range(CLIENTS)
    ]
    run_attack(node, report, node.doors[listener], requests)
