"""Appending what another protocol sent: who may, what it gets, and what is not written again."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.broker.fakes import FakeLog, batch
from tests.broker.pulsar import append, send
from trilogue.broker import errors
from trilogue.broker.producers.idempotence import Producers
from trilogue.broker.settings.topic_settings import TopicSettings
from trilogue.broker.topics.partition import AppendResult, Partition
from trilogue.broker.topics.policies import DEFAULT_POLICIES
from trilogue.entry.entry import Format
from trilogue.entry.kafka.record_batch import check_crc
from trilogue.log import errors as log_errors

NOW = 5_000


class Room:
    def __init__(self, *, settings: TopicSettings | None = None, **policies) -> None:
        self.log = FakeLog()
        self.producers = Producers()
        self.partition = Partition(
            self.log.create_partition(7, 4),
            self.producers.partition(7),
            settings or TopicSettings(),
        )
        self.partition.policies = replace(DEFAULT_POLICIES, **policies)

    def append(self, *args, **fields) -> AppendResult:
        return append(self.partition, send(*args, **fields), NOW)

    @property
    def stored(self) -> list[bytes]:
        return self.log.partitions[7].entries


def test_entries_are_stored_to_the_byte_and_given_offsets_by_their_span():
    room = Room()
    sent = [send(count=count) for count in (1, 3, 1)]

    appended = [append(room.partition, each, NOW) for each in sent]

    assert appended == [AppendResult(offset, -1, duplicate=False) for offset in (0, 1, 4)]
    assert room.stored == [bytes(each.entry) for each in sent]


def test_the_size_of_kafkas_batches_does_not_bind_others_but_a_policy_does():
    section = len(send(value=b"x" * 100).entry) - 101
    room = Room(settings=TopicSettings(message_size_max=10), max_message_size=section)

    room.append(value=b"x" * 100)
    with pytest.raises(errors.TooLarge):
        room.append(value=b"x" * 101)


@pytest.mark.parametrize(
    "extra",
    [
        {"max_message_size": 20},
        {"encryption_required": True},
        {"deduplication": True},
        {"settings": TopicSettings(log_append_time=True)},
        {"settings": TopicSettings(acks_from_memory=True)},
    ],
    ids=str,
)
def test_an_entry_that_a_policy_or_setting_concerns_is_not_plain(extra: dict[str, object]):
    sent = send(value=b"x" * 100)
    size = len(sent.entry) - 101

    assert Room().partition.plain.append_entry(sent.entry, sent.header, size) == 0
    assert Room(**extra).partition.plain.append_entry(sent.entry, sent.header, size) == -1


def test_an_entry_for_a_topic_that_has_ended_is_not_plain():
    room, sent = Room(), send()
    room.partition.terminated = True

    assert room.partition.plain.append_entry(sent.entry, sent.header, 1) == -1
    room.partition.terminated = False
    assert room.partition.plain.append_entry(sent.entry, sent.header, 1) == 0
    room.partition.deleted = True
    assert room.partition.plain.append_entry(sent.entry, sent.header, 1) == -1


def test_append_to_a_deleted_or_terminated_topic_is_refused_for_any_protocol():
    room = Room()
    room.partition.terminated = True
    with pytest.raises(errors.TopicTerminated):
        room.append()
    with pytest.raises(errors.TopicTerminated):
        room.partition.append(batch(), now_ms=NOW)

    room.partition.deleted = True
    with pytest.raises(errors.UnknownTopic):
        room.append()
    with pytest.raises(errors.UnknownTopic):
        room.partition.append(batch(), now_ms=NOW)
    assert room.stored == []


def test_policies_apply_to_batches_of_kafka():
    """An entry has a flag for encryption, a batch of Kafka has none."""
    room = Room(encryption_required=True)
    with pytest.raises(errors.PolicyViolation, match="encrypted"):
        room.partition.append(batch(), now_ms=NOW)

    room = Room(max_message_size=20)
    with pytest.raises(errors.TooLarge):
        room.partition.append(batch(), now_ms=NOW)
    assert room.stored == []


def test_transactional_entries_are_refused_outside_of_a_transaction():
    with pytest.raises(errors.InvalidTransactionState):
        Room().append(txn=True)


def test_disk_full_and_storage_failed_are_raised_as_for_batches():
    room = Room(deduplication=True)
    for problem, refusal in (
        (log_errors.DiskFull("full"), errors.DiskFull),
        (log_errors.StorageFailed("gone"), errors.StorageFailed),
        (log_errors.FrameTooLarge("large"), errors.TooLarge),
    ):
        room.log.refusal = problem
        with pytest.raises(refusal):
            room.append("p", 1)
    room.log.refusal = None
    assert not room.append("p", 1).duplicate  # what was refused was not written


def test_log_append_time_is_set_and_sealed():
    room = Room(settings=TopicSettings(log_append_time=True))
    sent = send(publish_ms=1)
    before = bytes(sent.entry)

    appended = append(room.partition, sent, NOW)
    frozen = append(room.partition, sent._replace(entry=memoryview(before)), NOW + 1)

    assert (appended.log_append_time_ms, frozen.log_append_time_ms) == (NOW, NOW + 1)
    for stored, now_ms in zip(room.stored, (NOW, NOW + 1), strict=True):
        header = check_crc(stored)
        assert (header.log_append_time, header.max_timestamp) == (True, now_ms)
        assert header.format is Format.PULSAR
        assert stored[61:] == before[61:]


def test_a_compacted_topic_takes_messages_without_a_key():
    room = Room(settings=TopicSettings(compacts=True))

    assert room.append(count=3).base_offset == 0


def test_duplicates_are_stored_once_with_deduplication_enabled():
    room = Room(deduplication=True)

    appended = [
        room.append(*each)
        for each in (("p", 5), ("p", 5), ("p", 3), ("p", 6, 3), ("p", 8), ("p", 9), ("q", 5))
    ]

    assert [each.duplicate for each in appended] == [False, True, True, False, True, False, False]
    assert [each.base_offset for each in appended] == [0, -1, -1, 1, -1, 4, 5]
    assert len(room.stored) == 4
    assert room.partition.last_sequence_id("p") == 9
    assert room.partition.last_sequence_id("q") == 5
    assert room.partition.last_sequence_id("r") == -1


def test_by_default_nothing_is_looked_for_or_remembered():
    room = Room()

    assert [room.append("p", 5).duplicate for _ in range(3)] == [False] * 3
    assert len(room.producers.deduplication) == 0
    assert room.partition.last_sequence_id("p") == -1


def test_of_a_message_in_chunks_the_last_one_counts():
    room = Room(deduplication=True)
    chunks = [("p", 5, (0, 3)), ("p", 5, (1, 3)), ("p", 5, (2, 3))]

    def write(which: list) -> list[bool]:
        return [room.append(name, at, chunk=chunk).duplicate for name, at, chunk in which]

    assert write(chunks[:2]) == [False, False]
    assert room.partition.last_sequence_id("p") == -1
    assert write(chunks) == [False] * 3  # its producer began again
    assert write(chunks) == [True] * 3  # all of it is there
    assert room.partition.last_sequence_id("p") == 5
