"""Many requests at once that name very many things: others are served between their steps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.attacks.node import AttackedNode, Report, attack
from tests.attacks.peers import send_in_parallel
from tests.crash.kafka.test_hostile import Line, framed
from trilogue.wire.kafka.codec.compile import encoder
from trilogue.wire.kafka.codec.header import RequestHeader, encode_request_header
from trilogue.wire.kafka.codec.schema import table
from trilogue.wire.kafka.configs.configs import DescribeConfigsRequest, DescribeConfigsResource
from trilogue.wire.kafka.groups.committed_offsets import OffsetFetchRequest
from trilogue.wire.kafka.metadata.metadata import MetadataRequest, MetadataRequestTopic
from trilogue.wire.kafka.offsets.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from trilogue.wire.kafka.topics.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from trilogue.wire.kafka.topics.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from trilogue.wire.kafka.topics.topics import CreatableTopic, CreateTopicsRequest

MANY = [pytest.mark.long, pytest.mark.timeout(900)]
MANY_TOPICS = 2_000
RESOURCE_TOPIC = 2
NAMES = [f"t{number}" for number in range(MANY_TOPICS)]
UNKNOWN = [f"unknown-{number}" for number in range(50_000)]
VERSIONS = {
    CreateTopicsRequest: 7,
    DescribeConfigsRequest: 4,
    MetadataRequest: 9,
    ListOffsetsRequest: 7,
    DeleteRecordsRequest: 2,
    CreatePartitionsRequest: 3,
    OffsetFetchRequest: 7,
}


def encode(request: object) -> bytes:
    kind = type(request)
    body = bytearray()
    header = RequestHeader(table(kind).key, VERSIONS[kind], 1, "many")
    encode_request_header(body, header)
    encoder(kind, VERSIONS[kind])(request, body)
    return framed(bytes(body))


def describe_configs() -> bytes:
    resources = [
        DescribeConfigsResource(
            resource_type=RESOURCE_TOPIC, resource_name=name, configuration_keys=None
        )
        for name in NAMES
    ]
    return encode(
        DescribeConfigsRequest(
            resources=resources, include_synonyms=True, include_documentation=True
        )
    )


def metadata() -> bytes:
    topics = [MetadataRequestTopic(name=name) for name in UNKNOWN[:25_000]]
    return encode(MetadataRequest(topics=topics, allow_auto_topic_creation=False))


def list_offsets() -> bytes:
    latest = [ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)]
    topics = [ListOffsetsTopic(name=name, partitions=latest) for name in UNKNOWN]
    return encode(ListOffsetsRequest(replica_id=-1, topics=topics))


def delete_records() -> bytes:
    first = [DeleteRecordsPartition(partition_index=0, offset=0)]
    topics = [DeleteRecordsTopic(name=name, partitions=first) for name in NAMES]
    return encode(DeleteRecordsRequest(topics=topics, timeout_ms=1_000))


def create_partitions() -> bytes:
    topics = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in UNKNOWN]
    return encode(CreatePartitionsRequest(topics=topics, timeout_ms=1_000, validate_only=True))


def offset_fetch() -> bytes:
    return encode(OffsetFetchRequest(group_id="many", topics=None, require_stable=False))


REQUESTS: list[Callable[[], bytes]] = [
    describe_configs,
    metadata,
    list_offsets,
    delete_records,
    create_partitions,
    offset_fetch,
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedNode]:
    made = AttackedNode(tmp_path_factory.mktemp("requests")).start()
    topics = [
        CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        for name in NAMES
    ]
    with Line(made.address) as line:
        line.peer.settimeout(60)
        line.request(
            encode(CreateTopicsRequest(topics=topics, timeout_ms=60_000, validate_only=False))
        )
    yield made
    made.kill9()


def answer_in_parallel(node: AttackedNode, requests: list[bytes], times: int) -> int:
    """Send each over a connection of its own, so many times; return how many were closed early.

    The server closes those that read slowly while others wait for memory.
    """
    problems: list[BaseException] = []

    def work(content: bytes) -> None:
        try:
            with Line(node.address) as line:
                line.peer.settimeout(240)
                for _ in range(times):
                    line.request(content)
        except OSError as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(each,)) for each in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(problems)


@pytest.mark.parametrize(
    ("clients", "times"), [(10, 1), pytest.param(200, 5, marks=MANY)], ids=["few", "many"]
)
def test_settings_of_2000_topics(node: AttackedNode, report: Report, clients: int, times: int):
    with attack(node, report, most_s=0.0):
        closed = answer_in_parallel(node, [describe_configs()] * clients, times)
    report(f"{closed} of {clients} clients were closed")
    assert closed <= clients // 2


@pytest.mark.parametrize(
    ("clients", "times"), [(1, 1), pytest.param(10, 2, marks=MANY)], ids=["few", "many"]
)
def test_requests_of_all_kinds(node: AttackedNode, report: Report, clients: int, times: int):
    contents = [make() for make in REQUESTS]
    with attack(node, report, most_s=0.0):
        assert answer_in_parallel(node, contents * clients, times) == 0


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[AttackedNode]:
    """A node that may go on with what it received after the test."""
    made = AttackedNode(tmp_path).start()
    yield made
    made.kill9()


@pytest.mark.parametrize("clients", [20, pytest.param(600, marks=MANY)], ids=["few", "many"])
def test_large_requests_that_wait_for_each_other(
    own_node: AttackedNode, report: Report, clients: int
):
    """Each client sends three requests with 50,000 names at once, and reads nothing."""
    node = own_node
    with attack(node, report, most_s=5.0 if clients < 100 else 20.0, cpu_s=3.0) as stack:
        send_in_parallel(stack, node.address, clients, list_offsets() * 3)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_requests_of_the_largest_size(own_node: AttackedNode, report: Report):
    """Together they hold more than the memory for requests, and each needs more to be decoded."""
    clients = 24
    names = ["n" * 30_000 + str(number) for number in range(270)]
    topics = [MetadataRequestTopic(name=name) for name in names]
    content = encode(MetadataRequest(topics=topics, allow_auto_topic_creation=False))
    with attack(own_node, report, most_s=0.0):
        closed = answer_in_parallel(own_node, [content] * clients, 1)
    report(f"{closed} of {clients} clients were closed")
    assert closed <= clients // 2
