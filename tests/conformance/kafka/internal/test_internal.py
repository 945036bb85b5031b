"""The internal listener: who has access, requests between brokers, copies of partitions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pulsar
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tools.kafka_answers.internal import (
    OURS,
    PASSWORD,
    REAL,
    log_in,
    read_recorded,
    start_internal,
    walk_trilogue,
)

from tests.conformance import raw
from tests.conformance.asking import Asker
from tests.conformance.clients import Deadline
from tests.conformance.kafka.internal.replica import FOLLOWER, Replica
from tests.server import Server
from trilogue.client.tubemq import Message
from trilogue.client.tubemq.sync import TubeClient
from trilogue.entry.entry import CONTROL, TRANSACTIONAL
from trilogue.gateway.conversion_cache import ConversionCache
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.internal.controlled_shutdown import ControlledShutdownRequest
from trilogue.wire.kafka.metadata.api_versions import ApiVersionsRequest
from trilogue.wire.kafka.metadata.metadata import MetadataRequest, MetadataRequestTopic
from trilogue.wire.kafka.offsets.leader_epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from trilogue.wire.kafka.security.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from trilogue.wire.kafka.transactions.write_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

WAIT_S = 90.0
OFTEN = {"journal.file-age": "200ms", "compaction.check-every": "100ms"}
COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
}
TOPICS = ("mixed", "compacted")


def connect(server: Server) -> Asker:
    """Connect as a broker of the cluster."""
    return log_in(Asker(server.doors["internal"]))


def topic_id(asker: Asker, name: str) -> bytes:
    topics = [MetadataRequestTopic(name=name)]
    return asker.request(MetadataRequest(topics=topics), 12).topics[0].topic_id


def copy(server: Server, topic: str, *, version: int = 17, max_bytes: int = 1 << 20) -> Replica:
    with connect(server) as asker:
        replica = Replica(topic, topic_id(asker, topic), version=version)
        return replica.copy(asker, max_bytes=max_bytes)


def write_all(server: Server) -> Producer:
    """Write to both topics by all protocols; return a producer with an open transaction."""
    address = server.kafka
    admin = AdminClient({"bootstrap.servers": address})
    for name, config in (("mixed", {}), ("compacted", COMPACT)):
        admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(WAIT_S)
    assert not raw.produce(address, "mixed", 0, raw.batch_of(b"plain"))
    _write_transactions(address, "compacted")
    client = pulsar.Client(server.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    sender = client.create_producer("mixed")
    for number in range(3):
        sender.send(b"pulsar %d" % number, partition_key="key", properties={"a": "b"})
    client.close()
    with TubeClient(server.tubemq) as tubes, tubes.producer("mixed") as producer:
        list(producer.submit_many([Message("mixed", b"tube %d" % n) for n in range(3)]))
    return _write_transactions(address, "mixed")


def _write_transactions(address: str, topic: str) -> Producer:
    """Write idempotently, a committed, an aborted and an open transaction."""
    plain = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for number in range(20):
        plain.produce(topic, b"idempotent %d" % number, b"key %d" % (number % 3))
    plain.flush(WAIT_S)
    for outcome in ("committed", "aborted", "open"):
        settings = {"bootstrap.servers": address, "transactional.id": f"{topic}-{outcome}"}
        producer = Producer(settings)
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic, f"{outcome} {number}", b"key %d" % (number % 3))
        producer.flush(WAIT_S)
        if outcome == "committed":
            producer.commit_transaction(WAIT_S)
        elif outcome == "aborted":
            producer.abort_transaction(WAIT_S)
    assert not raw.produce(address, topic, 0, raw.batch_of(b"last")) or topic == "compacted"
    return producer


def read_by_consumer(server: Server, topic: str) -> bytes:
    """Return all batches as a consumer without a transaction of its own gets them."""
    found, offset = bytearray(), 0
    end = raw.list_offset(server.kafka, topic, 0, raw.LATEST)
    while offset < end:
        records = raw.fetch(server.kafka, topic, 0, offset).records
        found += records
        offset = list(raw.walk(records))[-1].next_offset
    return bytes(found)


def as_consumers_get(replica: Replica) -> bytes:
    """Convert a copy as a fetch of a consumer is converted."""
    parts = ConversionCache().for_kafka(1, [bytes(replica.log)], 1 << 30, keep=False)
    return b"".join(bytes(part) for part in parts)


class World:
    """A server that was written to, and the copies of its topics before it was killed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.stack = ExitStack()
        self.server = self.stack.enter_context(start_internal(root, **OFTEN))
        self.opened = write_all(self.server)
        self.copies = {topic: copy(self.server, topic) for topic in TOPICS}
        self.server.kill9()
        self.server = self.stack.enter_context(start_internal(root, **OFTEN))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("internal"))
    with made.stack:
        yield made


# ---- copies


def test_a_copy_is_what_a_consumer_reads_with_markers_and_open_transactions(world: World):
    replica = copy(world.server, "mixed")

    assert as_consumers_get(replica) == read_by_consumer(world.server, "mixed")
    before = world.copies["mixed"].batches
    attributes = [batch.attributes for batch in before]
    assert sum(bool(each & CONTROL) for each in attributes) == 2
    assert attributes[-2] & TRANSACTIONAL, "the open transaction"
    assert len({batch.attributes >> 8 & 3 for batch in before}) == 3, "formats"
    assert {batch.producer_id for batch in before} > {-1}


@pytest.mark.full
def test_a_second_copy_after_a_kill_is_the_same_to_the_byte(world: World):
    before = world.copies["mixed"].log

    assert copy(world.server, "mixed").log[: len(before)] == before


@pytest.mark.full
@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_copies_the_same(world: World, version: int):
    small = copy(world.server, "mixed", version=version, max_bytes=100)

    assert small.log == copy(world.server, "mixed").log


@pytest.mark.full
def test_a_copy_of_a_compacted_partition_has_its_holes(world: World):
    """Compaction stops at the open transaction, and keeps offsets."""
    whole = world.copies["compacted"]
    deadline = Deadline("compaction")
    while all(batch.record_count for batch in copy(world.server, "compacted").batches):
        deadline.check()
    replica = copy(world.server, "compacted")

    assert bytes(replica.log) == read_by_consumer(world.server, "compacted")
    assert replica.offset >= whole.offset
    left = {(each.base_offset, each.producer_epoch) for each in replica.batches}
    before = {(each.base_offset, each.producer_epoch) for each in whole.batches}
    assert {each for each in left if each[0] < whole.offset} <= before


def test_message_sets_are_no_copies(world: World):
    with connect(world.server) as asker:
        replica = Replica("mixed", topic_id(asker, "mixed"), version=3)

        assert replica.fetch(asker).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_waiting_follower_receives_new_batches_and_epochs(world: World):
    """After the restart batches have the next epoch; the earlier one ends where that begins."""
    replica = copy(world.server, "mixed")
    before = world.copies["mixed"].offset
    with connect(world.server) as asker:
        assert not raw.produce(world.server.kafka, "mixed", 0, raw.batch_of(b"in epoch 2"))
        assert replica.append(replica.fetch(asker, wait_ms=10_000))
        ends = {epoch: epoch_end(asker, "mixed", epoch) for epoch in (1, 2, 3)}

    assert replica.batches[-1].leader_epoch == 2
    assert ends == {1: (0, 1, before), 2: (0, 2, replica.offset), 3: (0, -1, -1)}


def epoch_end(asker: Asker, topic: str, epoch: int) -> tuple[int, int, int]:
    """Return error code, epoch and end offset of an epoch, as a follower requests them."""
    partition = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=FOLLOWER, topics=[OffsetForLeaderTopic(topic=topic, partitions=[partition])]
    )
    (result,) = asker.request(request, 4).topics[0].partitions
    return result.error_code, result.leader_epoch, result.end_offset


def test_a_follower_that_went_on_in_an_ended_epoch_learns_where_it_ended(world: World):
    assert not raw.produce(world.server.kafka, "mixed", 0, raw.batch_of(b"another"))
    with connect(world.server) as asker:
        mixed = Replica("mixed", topic_id(asker, "mixed"))
        mixed.offset, mixed.epoch = copy(world.server, "mixed").offset, 1
        data = mixed.fetch(asker)

    assert data.diverging_epoch.epoch == 1
    assert data.diverging_epoch.end_offset == world.copies["mixed"].offset


# ---- markers


def test_a_coordinator_of_the_cluster_commits(world: World):
    """The marker ends what is open; a second one has no effect."""
    server = world.server
    opened = next(
        each for each in copy(server, "compacted").batches[::-1] if each.attributes & TRANSACTIONAL
    )
    marker = WritableTxnMarker(
        producer_id=opened.producer_id,
        producer_epoch=opened.producer_epoch,
        transaction_result=True,
        topics=[WritableTxnMarkerTopic(name="compacted", partition_indexes=[0])],
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    with Asker(server.kafka) as client:
        refused = client.request(request, 1).markers[0].topics[0].partitions[0]
    with connect(server) as asker:
        done = [asker.request(request, 1).markers[0].topics[0].partitions[0] for _ in range(2)]

    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert [each.error_code for each in done] == [ErrorCode.NONE] * 2
    last = copy(server, "compacted").batches[-1]
    assert last.attributes & CONTROL
    assert last.producer_id == opened.producer_id


# ---- access


def test_at_a_public_listener_followers_and_requests_between_brokers_are_refused(world: World):
    with Asker(world.server.kafka) as client:
        replica = Replica("mixed", topic_id(client, "mixed"))
        data = replica.fetch(client)
        listed = {each.api_key for each in client.request(ApiVersionsRequest(), 0).api_keys}
        with pytest.raises(ConnectionError):
            client.request(ControlledShutdownRequest(broker_id=1), 1)

    assert data.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not bytes(data.records)
    assert not {4, 5, 6, 7} & listed


def test_the_internal_listener_lists_requests_between_brokers(world: World):
    with connect(world.server) as asker:
        listed = {
            each.api_key: each.max_version
            for each in asker.request(ApiVersionsRequest(), 0).api_keys
        }

    assert {key: listed[key] for key in (4, 5, 6, 7)} == {4: 7, 5: 4, 6: 8, 7: 3}


@pytest.mark.parametrize("user", ["stranger", None])
def test_only_cluster_principals_have_access(world: World, user: str | None):
    """A user who is not a broker, or a client without a login, is disconnected."""
    with Asker(world.server.doors["internal"]) as asker:
        if user is not None:
            asker.request(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            token = f"\0{user}\0{PASSWORD}".encode()
            assert not asker.request(SaslAuthenticateRequest(auth_bytes=token), 2).error_code
        with pytest.raises(ConnectionError):
            asker.request(MetadataRequest(topics=[]), 9)


# ---- requests between brokers


@pytest.mark.full
def test_every_version_is_answered_as_recorded(tmp_path: Path):
    """What has changed on purpose is recorded by `python -m tools.kafka_answers.internal`."""
    assert walk_trilogue(tmp_path) == read_recorded()[OURS]


def test_stale_epochs_are_refused_as_a_real_kafka_does():
    ours, real = (read_recorded()[server] for server in (OURS, REAL))

    for key in ("4", "5", "6", "7"):
        for case in ("epoch of an older controller", "older epoch of the broker"):
            assert ours[key].get(case) == real[key].get(case)
