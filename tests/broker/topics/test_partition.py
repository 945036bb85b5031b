from __future__ import annotations

import pytest

from tests.broker.fakes import FakeLog, batch
from trilogue.broker import errors
from trilogue.broker.producers.idempotence import Producers
from trilogue.broker.settings.topic_settings import TopicSettings
from trilogue.broker.topics.partition import AppendResult, Partition
from trilogue.broker.topics.policies import Policies
from trilogue.entry.checksum import crc32c
from trilogue.entry.header import CHECKED_FROM
from trilogue.entry.kafka.record_batch import read_header
from trilogue.log import errors as log_errors

NOW = 5_000


class Room:
    way = "plain"

    def __init__(self, **settings) -> None:
        self.log = FakeLog()
        self.producers = Producers()
        self.partition = Partition(
            self.log.create_partition(7, 4), self.producers.partition(7), TopicSettings(**settings)
        )

    def append(self, *args, **fields) -> AppendResult:
        return self.put(batch(*args, **fields), now_ms=NOW)

    def put(self, records: memoryview, *, now_ms: int) -> AppendResult:
        if self.way == "quick":
            return self.partition.append_sent(records, lambda: now_ms)
        return self.partition.append(records, now_ms=now_ms)

    @property
    def stored(self) -> list[bytes]:
        return self.log.partitions[7].entries


@pytest.fixture(autouse=True, params=["plain", "quick"])
def way(request, monkeypatch):
    """Every rule holds on both ways into a partition."""
    monkeypatch.setattr(Room, "way", request.param)


def test_batches_are_given_offsets_by_their_span():
    room = Room()

    appended = [room.append(count) for count in (3, 1, 2)]

    assert [each.base_offset for each in appended] == [0, 3, 4]
    assert appended[0] == AppendResult(0, -1, duplicate=False)
    assert room.stored[0] == batch(3)
    assert (room.partition.partition_id, room.partition.owner_epoch) == (7, 4)


def test_a_batch_above_the_limit_is_refused_before_it_is_read():
    size = len(batch())
    room = Room(message_size_max=size)
    room.append()

    with pytest.raises(errors.TooLarge):
        room.append(value=b"vv")
    with pytest.raises(errors.TooLarge):
        room.put(memoryview(bytes(size + 1)), now_ms=NOW)
    assert len(room.stored) == 1


def broken(position: int, value: int) -> memoryview:
    entry = bytearray(batch())
    entry[position] = value
    return memoryview(entry)


REFUSED = [
    (broken(20, 99), errors.CorruptRecord),  # checksum
    (broken(65, 99), errors.CorruptRecord),  # a record
    (broken(16, 1), errors.InvalidRecord),  # magic
    (batch(attributes=0x20), errors.InvalidRecord),  # control
    (batch(attributes=0x100), errors.InvalidRecord),  # a format of ours
    (batch(attributes=0x07), errors.UnsupportedCompression),
    (batch(attributes=0x08), errors.InvalidRecord),  # the broker's time
    (batch(attributes=0x10, producer=(1, 0, 0)), errors.InvalidTransactionState),
    (batch(producer=(1, 0, -1)), errors.InvalidRecord),
    (batch(producer=(1, -1, 0)), errors.InvalidRecord),
    (memoryview(b""), (errors.CorruptRecord, errors.InvalidRecord)),
    (memoryview(bytes(batch()) * 2), errors.BrokerError),
]


@pytest.mark.parametrize(("records", "reason"), REFUSED)
def test_a_batch_that_breaks_a_rule_is_refused_and_leaves_nothing(records, reason):
    room = Room()

    with pytest.raises(reason):
        room.put(records, now_ms=NOW)

    assert room.stored == []
    assert len(room.producers) == 0


def test_a_repeated_batch_is_answered_with_its_offset_and_not_stored_again():
    room = Room()
    first = room.append(3, producer=(1, 0, 0))
    room.append(2)

    again = room.append(3, producer=(1, 0, 0))

    assert (first.base_offset, again) == (0, AppendResult(0, -1, duplicate=True))
    assert len(room.stored) == 2


def test_a_sequence_out_of_order_is_refused():
    room = Room()
    room.append(3, producer=(1, 0, 0))

    with pytest.raises(errors.OutOfOrderSequence):
        room.append(3, producer=(1, 0, 6))
    assert len(room.stored) == 1


@pytest.mark.parametrize(
    ("refused", "meant"),
    [
        (log_errors.TailFull("full"), errors.DiskFull),
        (log_errors.StorageFailed("broken"), errors.StorageFailed),
    ],
)
def test_append_refused_by_the_log_records_no_sequence(refused, meant):
    room = Room()
    room.log.refusal = refused
    with pytest.raises(meant):
        room.append(3, producer=(1, 0, 0))

    room.log.refusal = None
    appended = room.append(3, producer=(1, 0, 0))

    assert appended == AppendResult(0, -1, duplicate=False)


def test_log_append_time_stamps_a_copy_with_a_valid_checksum():
    room = Room(log_append_time=True)
    sent = batch(2, producer=(1, 0, 0))
    before = bytes(sent)

    appended = room.put(sent, now_ms=NOW)

    stored = read_header(memoryview(room.stored[0]))
    assert appended == AppendResult(0, NOW, duplicate=False)
    assert bytes(sent) == before
    assert (stored.log_append_time, stored.max_timestamp) == (True, NOW)
    assert crc32c(room.stored[0][CHECKED_FROM:]) == stored.crc


def test_a_repeated_batch_has_the_time_of_the_first():
    room = Room(log_append_time=True)
    room.append(2, producer=(1, 0, 0))

    again = room.put(batch(2, producer=(1, 0, 0)), now_ms=NOW + 99)

    assert again == AppendResult(0, NOW, duplicate=True)


def test_a_deleted_partition_takes_nothing():
    room = Room()
    room.partition.deleted = True

    with pytest.raises(errors.UnknownTopic):
        room.append()


def test_a_partition_takes_nothing_while_it_is_terminated():
    room = Room()
    room.partition.terminated = True
    with pytest.raises(errors.TopicTerminated):
        room.append()
    room.partition.terminated = False

    assert room.append().base_offset == 0


def test_policies_hold_from_when_they_are_set():
    room, size = Room(), len(batch())
    room.append()

    room.partition.policies = Policies(max_message_size=size)
    room.append()
    with pytest.raises(errors.TooLarge):
        room.append(value=b"vv")
    room.partition.policies = Policies(encryption_required=True)
    with pytest.raises(errors.PolicyViolation):
        room.append()

    assert len(room.stored) == 2


def test_settings_hold_from_when_they_are_obeyed():
    room = Room()
    room.append()

    room.partition.apply_settings(TopicSettings(log_append_time=True))
    stamped = room.append()
    room.partition.apply_settings(TopicSettings(acks_from_memory=True))
    appended = room.append()

    assert (stamped.log_append_time_ms, appended.acks_from_memory) == (NOW, True)


@pytest.mark.parametrize(
    ("epoch", "reason"),
    [(-1, None), (0, None), (4, None), (3, errors.StaleEpoch), (5, errors.UnknownEpoch)],
)
def test_a_client_that_knows_another_owner_is_sent_to_look_again(epoch, reason):
    partition = Room().partition

    if reason is None:
        partition.check_epoch(epoch)
    else:
        with pytest.raises(reason):
            partition.check_epoch(epoch)
