"""Lists of very many names, of every protocol: requested at once, and not read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attacks.node import AttackedNode, Report, attack
from tests.attacks.peers import send_in_parallel
from tests.brokers import make_topic
from tests.crash.pulsar.test_hostile import CONNECT, TYPES
from trilogue.gateway.pulsar.metadata.topic_lists import hash_names
from trilogue.wire.pulsar.frame import encode_command
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand

TOPICS, PARTITIONS = 10, 2_000
NAMESPACE = "public/default"
NAMES = ["persistent://public/default/healthy"] + [
    f"persistent://{NAMESPACE}/wide-{topic}-partition-{number}"
    for topic in range(TOPICS)
    for number in range(PARTITIONS)
]
LONG = [pytest.mark.long, pytest.mark.timeout(300)]
QUICK = ("stats", "metrics")
PATHS = {
    "topics": "/admin/v2/persistent/public/default",
    "topics of a namespace": "/admin/v2/namespaces/public/default/topics",
    "partitioned topics": "/admin/v2/persistent/public/default/partitioned",
    "statistics": "/admin/v2/broker-stats/topics",
    "stats": "/admin/v2/persistent/public/default/wide-0/partitioned-stats",
    "metrics": "/metrics",
    "subjects": "/schema-registry/subjects",
    "console": "/console/topics",
    "TubeMQ": "/webapi.htm?method=admin_query_topic_info",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedNode]:
    made = AttackedNode(tmp_path_factory.mktemp("lists")).start()
    for number in range(TOPICS):
        make_topic(made.address, f"wide-{number}", PARTITIONS)
    yield made
    made.kill9()


def get_topics(request_id: int, known_hash: str = "") -> bytes:
    made = BaseCommand(type=TYPES["getTopicsOfNamespace"])
    made.getTopicsOfNamespace.request_id = request_id
    made.getTopicsOfNamespace.namespace = NAMESPACE
    made.getTopicsOfNamespace.topics_hash = known_hash
    return encode_command(made)


def watch_topics(watcher_id: int) -> bytes:
    made = BaseCommand(type=TYPES["watchTopicList"])
    made.watchTopicList.request_id = made.watchTopicList.watcher_id = watcher_id
    made.watchTopicList.namespace = NAMESPACE
    made.watchTopicList.topics_pattern = ".*"
    return encode_command(made)


@pytest.mark.long
@pytest.mark.parametrize("count", [30, 300])
@pytest.mark.parametrize("is_known", [False, True], ids=["unknown", "known"])
def test_topics_of_a_namespace(node: AttackedNode, report: Report, count: int, is_known: bool):
    """Each client requests the list 100 times and reads nothing; or knows it, and gets no names."""
    digest = "" if not is_known else hash_names(NAMES)
    requests = b"".join(get_topics(each, digest) for each in range(100))
    with attack(node, report) as stack:
        send_in_parallel(stack, node.doors["pulsar"], count, requests, first=CONNECT)


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=LONG)])
def test_watches_of_a_namespace(node: AttackedNode, report: Report, count: int):
    """Each client has as many watches as it may."""
    requests = b"".join(watch_topics(each) for each in range(32))
    with attack(node, report) as stack:
        send_in_parallel(stack, node.doors["pulsar"], count, requests, first=CONNECT)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=name, marks=() if name in QUICK else LONG)
        for name, path in PATHS.items()
    ],
)
def test_pages_with_very_many_names(node: AttackedNode, report: Report, path: str):
    """Two hundred clients request a page at once, and read nothing."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with attack(node, report, most_s=1.0) as stack:
        send_in_parallel(stack, node.doors["http"], 200, request)
