"""MirrorMaker 2 migrates a cluster: from a real Kafka 3.9.1 to ours, and back.

A migration copies topics with their partitions and settings, records to the byte and in order, and
committed offsets of groups. Between two real servers it is the same test (TRILOGUE_TEST_REAL=1).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from tools.servers.kafka import RealKafka
from tools.servers.probe import free_port

from tests import brokers
from tests.brokers import Broker
from tests.conformance.clients import DEADLINE, IN_PROCESS, Record
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.kafka_apps import App, properties, wait
from tests.tools import require_jars

VERSION = "3.9.1"
MIRROR = "org.apache.kafka.connect.mirror.MirrorMaker"
ORDERS, GROUP = "orders", "shop"
PARTITIONS, COUNT, READ, TOTAL = 2, 400, 150, 500

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(400)]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[RealKafka]:
    """The one that is left behind."""
    require_jars(VERSION)
    made = RealKafka(tmp_path / "left", version=VERSION, heap="384m").start()
    yield made
    made.kill9()


def admin_of(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address, "log_level": 2})


def fill(address: str) -> None:
    """A topic with settings and records, and a group that has read some of them."""
    settings = {"retention.ms": "-1", "cleanup.policy": "compact", "max.message.bytes": "700000"}
    new = NewTopic(ORDERS, PARTITIONS, 1, config=settings)
    admin = admin_of(address)
    admin.create_topics([new])[ORDERS].result(DEADLINE)
    IN_PROCESS[0].write(address, ORDERS, records(0, COUNT))
    IN_PROCESS[0].read(address, ORDERS, READ, group=GROUP)


def records(first: int, last: int) -> list[Record]:
    return [
        Record(b"key-%d" % number, b"value-%d" % number, (("h", b"\x00%d" % number), ("n", None)))
        for number in range(first, last)
    ]


def mirror(root: Path, source: str, target: str, policy: str = "Identity") -> App:
    """connect-mirror-maker.sh with what a single node needs."""
    identity = f"org.apache.kafka.connect.mirror.{policy}ReplicationPolicy"
    settings = {
        "clusters": "one, two",
        "one.bootstrap.servers": source,
        "two.bootstrap.servers": target,
        "one->two.enabled": "true",
        "two->one.enabled": "false",
        "topics": ORDERS,
        "groups": GROUP,
        "replication.policy.class": identity,
        "replication.factor": 1,
        "checkpoints.topic.replication.factor": 1,
        "heartbeats.topic.replication.factor": 1,
        "offset-syncs.topic.replication.factor": 1,
        "offset.storage.replication.factor": 1,
        "status.storage.replication.factor": 1,
        "config.storage.replication.factor": 1,
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": 1,
        "emit.checkpoints.interval.seconds": 1,
        "refresh.topics.interval.seconds": 2,
        "refresh.groups.interval.seconds": 2,
        "sync.topic.configs.interval.seconds": 2,
        "sync.topic.acls.enabled": "false",
        "offset.lag.max": 0,
        "offset.flush.interval.ms": 1000,
        "consumer.auto.offset.reset": "earliest",
        "listeners": f"http://127.0.0.1:{free_port()}",
        "dedicated.mode.enable.internal.rest": "false",
    }
    root.mkdir(parents=True, exist_ok=True)
    path = properties(root / "mm2.properties", settings)
    return App(root / "mirror", VERSION, MIRROR, [path], level="warn")


def ends(address: str, topic: str) -> int:
    """How many records the partitions of a topic hold; nothing for one that is not there."""
    reader = Confluent.consumer(address, "looks")
    try:
        places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        if topic not in reader.list_topics(timeout=DEADLINE).topics:
            return 0
        return sum(reader.get_watermark_offsets(place, DEADLINE)[1] for place in places)
    except KafkaException:  # a real server's new topic has no leader for a moment
        return 0
    finally:
        reader.close()


def positions(address: str) -> dict[int, int]:
    requested = [ConsumerGroupTopicPartitions(GROUP)]
    admin = admin_of(address)
    response = admin.list_consumer_group_offsets(requested)[GROUP].result(DEADLINE)
    return {each.partition: each.offset for each in response.topic_partitions if each.offset >= 0}


def all_of(address: str, count: int) -> list[tuple[object, ...]]:
    read = IN_PROCESS[0].read(address, ORDERS, count)
    reported = [(each.partition, each.offset, each.key, each.value, each.headers) for each in read]
    return sorted(reported, key=lambda each: each[:2])


def moved(root: Path, source: str, target: str) -> None:
    """Everything of the topic is at the target; its group, which read all, goes on there.

    Where a group is in the middle of a log MirrorMaker names a place before that, wherever it goes.
    """
    with mirror(root, source, target) as app:
        wait("the records", lambda: ends(target, ORDERS) >= COUNT)
        IN_PROCESS[0].write(source, ORDERS, records(COUNT, TOTAL))
        wait("the later ones", lambda: ends(target, ORDERS) >= TOTAL)
        IN_PROCESS[0].read(source, ORDERS, TOTAL - READ, group=GROUP)
        wanted = positions(source)
        assert sum(wanted.values()) == TOTAL
        wait(f"positions {wanted}", lambda: positions(target) == wanted)
        resource = ConfigResource(ResourceType.TOPIC, ORDERS)
        admin = admin_of(target)
        (response,) = admin.describe_configs([resource]).values()
        settings = response.result(DEADLINE)
        assert settings["cleanup.policy"].value == "compact"
        assert settings["max.message.bytes"].value == "700000"
        app.stop()
    assert all_of(target, TOTAL) == all_of(source, TOTAL)
    IN_PROCESS[0].write(target, ORDERS, records(TOTAL, TOTAL + 20))
    rest = IN_PROCESS[0].read(target, ORDERS, 20, group=GROUP)
    assert {each.value for each in rest} == {each.value for each in records(TOTAL, TOTAL + 20)}


def test_a_cluster_moves_from_kafka(own_broker: Broker, kafka: RealKafka, tmp_path: Path):
    fill(kafka.address)

    moved(tmp_path / "mm2", kafka.address, own_broker.address)


def test_a_cluster_moves_back_to_kafka(own_broker: Broker, kafka: RealKafka, tmp_path: Path):
    fill(own_broker.address)

    moved(tmp_path / "mm2", own_broker.address, kafka.address)


def test_the_mirror_goes_on_over_a_kill_of_our_server(
    own_broker: Broker, kafka: RealKafka, tmp_path: Path
):
    """At least once: every record is there, in order but for what comes again."""
    assert brokers.DEFAULT_VERSION == VERSION
    fill(kafka.address)
    with mirror(tmp_path / "mm2", kafka.address, own_broker.address) as app:
        wait("the records", lambda: ends(own_broker.address, ORDERS) >= COUNT)
        own_broker.kill9()
        IN_PROCESS[0].write(kafka.address, ORDERS, records(COUNT, TOTAL))
        own_broker.start()
        wait("the later ones", lambda: ends(own_broker.address, ORDERS) >= TOTAL)
        app.stop()
    count = ends(own_broker.address, ORDERS)
    read = IN_PROCESS[0].read(own_broker.address, ORDERS, count)
    assert {each.value for each in read} == {each.value for each in records(0, TOTAL)}
