"""Members at the bounds of what they may report: streams topologies, topics of TubeMQ producers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.node import AttackedNode, Report, attack
from tests.attacks.peers import send_in_parallel
from tests.crash.kafka.test_hostile import Line, framed
from trilogue.wire.kafka.codec.compile import decoder, encoder
from trilogue.wire.kafka.codec.header import RequestHeader, encode_request_header
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups.streams import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsSubtopology,
    StreamsTopology,
)
from trilogue.wire.tubemq.frame import encode_request
from trilogue.wire.tubemq.methods import BY_NAME

LONG = [pytest.mark.long, pytest.mark.timeout(600)]
SUBTOPOLOGIES = 1_000  # as many as there may be
SOURCES = 2
TOPICS = 1_024  # of a TubeMQ producer
RESPONSE_HEADER = 5  # a correlation id and no tagged fields


@pytest.fixture
def node(tmp_path: Path) -> Iterator[AttackedNode]:
    made = AttackedNode(tmp_path).start()
    yield made
    made.kill9()


def join_streams_group(group: str, member: str) -> bytes:
    """A first heartbeat with the largest topology, whose topics do not exist."""
    nothing = {
        "source_topic_regex": [],
        "state_changelog_topics": [],
        "repartition_sink_topics": [],
        "repartition_source_topics": [],
        "copartition_groups": [],
    }
    subtopologies = [
        StreamsSubtopology(
            subtopology_id=str(number),
            source_topics=[f"{group}-{number}-{each}" for each in range(SOURCES)],
            **nothing,
        )
        for number in range(SUBTOPOLOGIES)
    ]
    request = StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        rebalance_timeout_ms=60_000,
        topology=StreamsTopology(epoch=0, subtopologies=subtopologies),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id=member,
        client_tags=[],
    )
    body = bytearray()
    encode_request_header(body, RequestHeader(88, 0, 1, "streams"))
    encoder(StreamsGroupHeartbeatRequest, 0)(request, body)
    return framed(bytes(body))


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=LONG)])
@pytest.mark.parametrize("is_shared", [True, False], ids=["one group", "a group each"])
def test_streams_topologies(node: AttackedNode, report: Report, count: int, is_shared: bool):
    """Each member reports as large a topology as it may."""
    with attack(node, report) as stack:
        for number in range(count):
            line = stack.enter_context(Line(node.address))
            line.peer.settimeout(120)
            group = "streams" if is_shared else f"streams-{number}"
            response = line.request(join_streams_group(group, f"member-{number}"))
            decode = decoder(StreamsGroupHeartbeatResponse, 0)
            found, _ = decode(memoryview(response), RESPONSE_HEADER)
            assert found.error_code == ErrorCode.NONE, found


@pytest.mark.parametrize("clients", [20, pytest.param(300, marks=LONG)])
def test_topics_of_tubemq_producers(node: AttackedNode, report: Report, clients: int):
    """Each registers with 10,000 topics, which is refused, and with as many as it may have."""
    requests = [b"".join(publish(number)) for number in range(clients)]
    with attack(node, report) as stack:
        for content in requests:
            send_in_parallel(stack, node.doors["tubemq-master"], 1, content)


def publish(number: int) -> Iterator[bytes]:
    """A registration with too many topics, one with all that are allowed, and heartbeats."""
    calls = [("producerRegisterP2M", 10 * TOPICS), ("producerRegisterP2M", TOPICS)]
    for serial, (name, count) in enumerate(calls + 20 * [("producerHeartbeatP2M", TOPICS)]):
        method = BY_NAME[name]
        fields = {"brokerCheckSum": 0, "hostName": "attacker"}
        body = method.request(
            clientId=f"producer-{number}", topicList=[f"t{each}" for each in range(count)], **fields
        ).SerializeToString()
        yield bytes(encode_request(serial, method.service, method.number, body, timeout_ms=60_000))
