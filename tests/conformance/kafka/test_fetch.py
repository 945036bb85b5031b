"""Fetch, ListOffsets and OffsetForLeaderEpoch, response by response, as of a real Kafka 3.9.1.

For requests that no library can be made to send: the rules are those of KIP-227 (sessions), KIP-110
(zstd), KIP-320 and KIP-595 (epochs), KIP-734 and KIP-405 (special times).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator

import pytest

from tests.brokers import Broker
from tests.conformance.asking import Asker
from tests.conformance.raw import produce
from trilogue.entry.entry import Record
from trilogue.entry.kafka.record_batch import build_batch
from trilogue.wire.kafka.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from trilogue.wire.kafka.offsets.leader_epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from trilogue.wire.kafka.offsets.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from trilogue.wire.kafka.topics.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from trilogue.wire.kafka.topics.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

T = 1_700_000_000_000
NOTHING = -1
# A real Kafka reports a deleted id with error 3 or 103, once its controller has applied it.
pytestmark = pytest.mark.timeout(120)
FetchOutcome = list[tuple[int, int, int, int, int]]


class Reads:
    """Fetches the partitions of one topic, in one version, in a session if it has one."""

    def __init__(self, asker: Asker, topic: str, topic_id: bytes, version: int) -> None:
        self.asker, self.version = asker, version
        self.names = {"topic": topic, "topic_id": topic_id}
        self.session_id, self.epoch = 0, NOTHING

    def request(
        self,
        offsets: dict[int, int] | None = None,
        forget: Iterable[int] = (),
        *,
        epoch: int | None = None,
        max_bytes: int = 50 << 20,
        wait_ms: int = 0,
        last_epoch: int = NOTHING,
    ) -> tuple[int, FetchOutcome]:
        """The answer's error, and of each partition: number, error, end, start, bytes."""
        partitions = [
            FetchPartition(
                partition=number,
                fetch_offset=offset,
                partition_max_bytes=1 << 20,
                last_fetched_epoch=last_epoch,
            )
            for number, offset in (offsets or {}).items()
        ]
        gone = list(forget)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self.session_id,
            session_epoch=self.epoch if epoch is None else epoch,
            topics=[FetchTopic(partitions=partitions, **self.names)] if partitions else [],
            forgotten_topics_data=[ForgottenTopic(partitions=gone, **self.names)] if gone else [],
        )
        self.answer = self.asker.request(request, self.version)
        if epoch == 0:
            self.session_id, self.epoch = self.answer.session_id, 1
        elif epoch is None and self.session_id and not self.answer.error_code:
            self.epoch += 1
        return self.answer.error_code, [
            (
                each.partition_index,
                each.error_code,
                each.high_watermark,
                each.log_start_offset,
                len(each.records or b""),
            )
            for topic in self.answer.responses
            for each in topic.partitions
        ]


@pytest.fixture
def asker(address: str) -> Iterator[Asker]:
    with Asker(address) as made:
        yield made


def create(asker: Asker, topic: str, partitions: int = 1, **configs: str) -> bytes:
    rows = [CreatableTopicConfig(name=key.replace("_", "."), value=configs[key]) for key in configs]
    requested = CreatableTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=rows,
    )
    (made,) = asker.request(CreateTopicsRequest(timeout_ms=10_000, topics=[requested]), 7).topics
    assert made.error_code == 0, made
    return made.topic_id


def fill(address: str, topic: str, partition: int, *values: str, codec: int = 0) -> int:
    """One batch; its size."""
    made = bytes(batch(*[(T, value) for value in values], codec=codec))
    deadline = time.monotonic() + 60
    while code := produce(address, topic, partition, made):  # a real one takes a moment to lead
        assert code in {3, 5, 6}
        assert time.monotonic() < deadline
    return len(made)


def batch(*rows: tuple[int, str], codec: int = 0) -> bytes:
    records = [
        Record(at, time_ms, None, value.encode()) for at, (time_ms, value) in enumerate(rows)
    ]
    return bytes(build_batch(records, codec=codec))


@pytest.mark.parametrize("version", [7, 11, 12, 13, 17])
def test_a_session_from_its_first_to_its_last_answer(
    address: str, asker: Asker, topic: str, version: int
):
    reads = Reads(asker, topic, create(asker, topic, 3), version)
    two = fill(address, topic, 1, "a", "b")
    for number in (0, 2):
        fill(address, topic, number, "x")

    code, response = reads.request({0: 1, 1: 0, 2: 1}, epoch=0)
    assert (code, response) == (0, [(0, 0, 1, 0, 0), (1, 0, 2, 0, two), (2, 0, 1, 0, 0)])
    assert reads.session_id > 0
    assert reads.request() == (0, [(1, 0, 2, 0, two)]), "what is not read on comes again"
    assert reads.request({1: 2}) == (0, [])
    one = fill(address, topic, 0, "c")
    assert reads.request() == (0, [(0, 0, 2, 0, one)])
    assert reads.request({0: 99}) == (0, [(0, 1, -1, -1, 0)])
    assert reads.request({0: 2}) == (0, [(0, 0, 2, 0, 0)]), "the end of an error is told"
    assert reads.request({7: 0}) == (0, [(7, 3, -1, -1, 0)])
    assert reads.request(forget=[7]) == (0, [])
    assert reads.request(epoch=reads.epoch + 1) == (71, [])
    assert reads.request() == (0, [])
    assert reads.request(forget=[0, 1, 2]) == (0, [])
    assert reads.answer.session_id == 0, "nothing is wanted any more"
    assert reads.request() == (70, [])


@pytest.mark.parametrize("version", [11, 13])
def test_which_session_a_request_means(address: str, asker: Asker, topic: str, version: int):
    reads = Reads(asker, topic, create(asker, topic), version)
    size = fill(address, topic, 0, "a")
    everything = (0, [(0, 0, 1, 0, size)])

    assert reads.request({0: 0}, epoch=-1) == everything
    assert reads.answer.session_id == 0
    assert reads.request(epoch=-2) == (70, [])
    assert reads.request({0: 0}, epoch=0) == everything
    first = reads.session_id
    assert reads.request({0: 0}, epoch=0) == everything
    second, reads.session_id = reads.session_id, first
    assert first != second
    assert reads.request(epoch=1) == (70, []), "a full request closes the session that it names"
    reads.session_id = second
    reads.version = 24 - version
    assert reads.request(epoch=1) == (106, []), "names and ids do not mix"
    reads.version = version
    assert reads.request({0: 0}, epoch=-1) == everything
    assert reads.request(epoch=1) == (70, []), "that was the last one"
    reads.session_id = 0
    reads.request(epoch=0)
    assert reads.session_id > 0, "of nothing yet"
    assert reads.request({0: 0}) == everything


def test_partitions_rotate_and_log_start_offsets_are_returned(
    address: str, asker: Asker, topic: str
):
    reads = Reads(asker, topic, create(asker, topic, 3), 12)
    for number in range(3):
        for _ in range(3):
            size = fill(address, topic, number, "v" * 300)

    reads.request(dict.fromkeys(range(3), 0), epoch=0, max_bytes=size)
    turns = [reads.request(max_bytes=size)[1][0][0] for _ in range(4)]
    assert turns == [0, 1, 2, 0]
    assert reads.request(dict.fromkeys(range(3), 3)) == (0, [])
    partition = DeleteRecordsPartition(partition_index=1, offset=2)
    deleting = [DeleteRecordsTopic(name=topic, partitions=[partition])]
    asker.request(DeleteRecordsRequest(timeout_ms=5_000, topics=deleting), 2)
    assert reads.request() == (0, [(1, 0, 3, 2, 0)])
    assert reads.request() == (0, [])
    begin = time.monotonic()
    assert reads.request({9: 0}, wait_ms=300) == (0, [(9, 3, -1, -1, 0)])
    assert time.monotonic() - begin > 0.25, "what is unknown is told with the rest"


@pytest.mark.parametrize(("version", "codes"), [(12, (3, 1)), (13, (3, 103))])
def test_a_topic_of_a_session_goes_and_another_has_its_name(
    address: str, asker: Asker, topic: str, version: int, codes: tuple[int, int]
):
    reads = Reads(asker, topic, create(asker, topic), version)
    fill(address, topic, 0, "a")
    reads.request({0: 1}, epoch=0)

    asker.request(DeleteTopicsRequest(timeout_ms=5_000, topic_names=[topic]), 5)
    assert codes_until(reads, codes[0]) == codes[0]
    create(asker, topic)
    assert codes_until(reads, codes[1]) == codes[1]


def codes_until(reads: Reads, code: int) -> int:
    deadline = time.monotonic() + 60
    while (response := reads.request()[1]) == [] or response[0][1] != code:
        assert time.monotonic() < deadline, response
    return response[0][1]


@pytest.mark.parametrize(("version", "expected"), [(9, 76), (10, 0), (11, 0)])
def test_zstd_topics_require_a_version_with_zstd(
    address: str, asker: Asker, topic: str, version: int, expected: int
):
    """KIP-110; 4.x has given that up. Of a topic without a codec each reader gets what is there."""
    if "." in os.environ.get("TRILOGUE_TEST_REAL", "") and version < 10:
        pytest.skip("4.x")
    create(asker, topic, compression_type="zstd")
    plain = f"{topic}.plain"
    create(asker, plain)
    for name in (topic, plain):
        fill(address, name, 0, "a" * 100, codec=4)

    (_, ((_, code, *_, size),)) = Reads(asker, topic, b"", version).request({0: 0})
    (_, ((_, other, *_, found),)) = Reads(asker, plain, b"", version).request({0: 0})

    assert (code, size > 0) == (expected, expected == 0)
    assert (other, found > 0) == (0, True)


def test_fetch_past_the_log_end_returns_the_diverging_epoch(address: str, asker: Asker, topic: str):
    """KIP-595, which consumers do not use."""
    reads = Reads(asker, topic, create(asker, topic), 12)
    fill(address, topic, 0, "a", "b")
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    epoch = asker.request(request, 4).topics[0].partitions[0].leader_epoch

    assert reads.request({0: 1}, last_epoch=epoch)[1][0][1:3] == (0, 2)
    reads.request({0: 9}, last_epoch=epoch)
    (diverged,) = reads.answer.responses[0].partitions
    assert (diverged.error_code, diverged.diverging_epoch.epoch) == (0, epoch)
    assert (diverged.diverging_epoch.end_offset, diverged.high_watermark) == (2, 2)
    assert reads.request({0: 1}, last_epoch=epoch + 1)[1][0][1] == 1


def end_of_epoch(
    asker: Asker, topic: str, epoch: int, *, current: int = -1, version: int = 4
) -> tuple[int, int, int]:
    partition = OffsetForLeaderPartition(
        partition=0, current_leader_epoch=current, leader_epoch=epoch
    )
    topics = [OffsetForLeaderTopic(topic=topic, partitions=[partition])]
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
    (answer,) = asker.request(request, version).topics[0].partitions
    return answer.error_code, answer.leader_epoch, answer.end_offset


@pytest.mark.parametrize("version", [2, 3, 4])
def test_offsets_of_leader_epochs_match_kafka(address: str, asker: Asker, topic: str, version: int):
    create(asker, topic)
    fill(address, topic, 0, "a", "b")

    assert end_of_epoch(asker, topic, 1 << 20, version=version) == (0, -1, -1)
    assert end_of_epoch(asker, topic, -1, version=version) == (0, -1, -1)
    assert end_of_epoch(asker, topic, 0, current=1 << 20, version=version) == (75, -1, -1)
    assert end_of_epoch(asker, f"{topic}.none", 0, version=version) == (3, -1, -1)


def listed(
    asker: Asker, topic: str, *times: int, version: int, isolation: int = 0
) -> list[tuple[int, int, int, bool]]:
    """Error, offset, time, and whether there is an epoch."""
    partitions = [
        ListOffsetsPartition(partition_index=0, timestamp=each, max_num_offsets=1) for each in times
    ]
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        timeout_ms=1_000,
        topics=[ListOffsetsTopic(name=topic, partitions=partitions)],
    )
    return [
        (each.error_code, each.offset, each.timestamp, each.leader_epoch >= 0)
        for each in asker.request(request, version).topics[0].partitions
    ]


SPECIAL = {-1: (1, (6, -1)), -2: (1, (0, -1)), -3: (7, (1, T + 10)), -4: (8, (0, -1))}
SPECIAL |= {-5: (9, None), -7: (99, None), -100: (99, None)}
TIMES = {0: 0, T: 0, T + 1: 1, T + 4: 1, T + 10: 1, T + 11: None}


@pytest.mark.parametrize("version", [1, 2, 4, 6, 7, 8, 9])
def test_offsets_by_time_and_by_name(address: str, asker: Asker, topic: str, version: int):
    create(asker, topic)
    fill(address, topic, 0, "x" * 10)
    partition = DeleteRecordsPartition(partition_index=0, offset=1)
    deleting = [DeleteRecordsTopic(name=topic, partitions=[partition])]
    other = f"{topic}.other"
    create(asker, other)
    asker.request(DeleteRecordsRequest(timeout_ms=5_000, topics=deleting), 2)
    fill_times(address, other)

    has_epoch = version >= 4
    for wanted, (since, found) in SPECIAL.items():
        (answer,) = listed(asker, other, wanted, version=version)
        if version < since:
            assert answer == (35, -1, -1, False)
        else:
            assert answer == ((0, *found, has_epoch) if found else (0, -1, -1, False))
    for wanted, offset in TIMES.items():
        time_ms = T if offset == 0 else T + 10
        expected = (0, -1, -1, False) if offset is None else (0, offset, time_ms, has_epoch)
        for isolation in (0, 1) if version >= 2 else (0,):
            requested = listed(asker, other, wanted, version=version, isolation=isolation)
            assert requested == [expected]
    assert {each[0] for each in listed(asker, other, -1, -2, version=version)} == {42}
    assert listed(asker, topic, -2, version=version) == [(0, 1, -1, has_epoch)]


def fill_times(address: str, topic: str) -> None:
    for rows in (
        ((T, "a"), (T + 10, "b"), (T + 5, "c")),
        ((T + 3, "d"), (T + 10, "e")),
        ((T + 1, "f"),),
    ):
        made = batch(*rows)
        deadline = time.monotonic() + 60
        while produce(address, topic, 0, made):
            assert time.monotonic() < deadline


def test_earliest_pending_upload_offset_exists_since_version_11(
    broker: Broker, asker: Asker, topic: str
):
    if broker.name != "trilogue":
        pytest.skip("3.9.1 has no version 11; 4.3.1 was asked by hand")
    create(asker, topic)

    assert listed(asker, topic, -6, version=10) == [(35, -1, -1, False)]
    assert listed(asker, topic, -6, version=11) == [(0, -1, -1, False)]
