"""What is taken out of fetched batches: positions, transactions, damage; and keys to partitions."""

from __future__ import annotations

import random

import pytest

from trilogue.client.errors import ClientError
from trilogue.client.kafka import READ_COMMITTED, READ_UNCOMMITTED, BadRecords, Partition
from trilogue.client.kafka.consumer.message import BatchTooLarge, FetchedBatches
from trilogue.client.kafka.consumer.partition_state import PartitionState
from trilogue.client.kafka.options import Hashing
from trilogue.client.kafka.producer.hashes import murmur2
from trilogue.client.kafka.producer.partitioner import KEYS_KEPT, TopicPartitioner
from trilogue.entry.control import Outcome, build_marker
from trilogue.entry.entry import Record
from trilogue.entry.kafka.record_batch import build_batch

AT = Partition("t", 0)


def batch(first: int, *values: bytes, producer: int = -1, codec: int = 0) -> bytes:
    records = [Record(first + at, 7, None, value) for at, value in enumerate(values)]
    return build_batch(
        records, codec=codec, transactional=producer >= 0, producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1, base_sequence=0 if producer >= 0 else -1,
    )  # fmt: skip


def marker(offset: int, producer: int, outcome: Outcome) -> bytes:
    return build_marker(
        outcome, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp_ms=7,
        base_offset=offset,
    )  # fmt: skip


def fetched(octets: bytes, aborted=(), isolation: int = READ_COMMITTED) -> FetchedBatches:
    return FetchedBatches(AT, memoryview(octets), list(aborted), isolation, check=True)


def values(one: FetchedBatches, position: int = 0, limit: int = 1000) -> list[bytes | None]:
    got, _, _ = one.take_messages(position, limit)
    return [message.value for message in got]


def test_messages_come_from_the_position_on_in_portions():
    """A batch is sent whole, also for a fetch from its middle."""
    one = fetched(batch(0, b"a", b"b", b"c", codec=3) + batch(3, b"d", b"e"))
    first, position, more = one.take_messages(1, 2)
    rest, end, left = one.take_messages(position, 100)

    assert [message.offset for message in first] == [1, 2]
    assert (position, more) == (3, True)
    assert [message.value for message in rest] == [b"d", b"e"]
    assert (end, left, one.end) == (5, False, 5)


def test_a_position_in_fetched_batches_can_be_gone_to():
    one = fetched(batch(0, b"a") + batch(1, b"b") + batch(2, b"c"))
    assert values(one, 0, 1) == [b"a"]
    assert values(one, 2) == [b"c"]


def test_the_last_batch_may_be_cut():
    """The last one of a fetch may be cut: drop it."""
    one = fetched(batch(0, b"a") + batch(1, b"b")[:-1])
    assert (values(one), one.end) == ([b"a"], 1)
    assert fetched(batch(0, b"a")[:30]).end == -1


def test_aborted_records_are_skipped_up_to_their_marker():
    """Records of that producer from first_offset to its abort marker."""
    octets = (
        batch(0, b"no", producer=5)
        + batch(1, b"yes", producer=6)
        + batch(2, b"plain")
        + marker(3, 5, Outcome.ABORT)
        + batch(4, b"later", producer=5)
        + marker(5, 6, Outcome.COMMIT)
        + marker(6, 5, Outcome.COMMIT)
    )
    aborted = [(5, 0)]

    assert values(fetched(octets, aborted)) == [b"yes", b"plain", b"later"]
    assert values(fetched(octets, aborted, READ_UNCOMMITTED)) == [
        b"no", b"yes", b"plain", b"later",
    ]  # fmt: skip
    assert fetched(octets).take_messages(0, 100)[1] == 7  # behind the markers


@pytest.mark.parametrize("at", [30, 65, -1])
def test_damaged_batch_raises_bad_records_with_its_offset(at: int):
    octets = bytearray(batch(0, b"a") + batch(1, b"bbbbbbbb"))
    octets[len(batch(0, b"a")) + at if at > 0 else -1] ^= 0xFF
    one = fetched(bytes(octets))
    assert values(one, 0, 1) == [b"a"]
    with pytest.raises(BadRecords, match="t-0 at 1") as caught:
        one.take_messages(1, 10)
    assert caught.value.offset == 1


def test_a_batch_whose_header_is_nonsense_is_an_error():
    with pytest.raises(BadRecords):
        fetched(bytes(100))


def test_hashes_are_remembered_within_a_bound():
    chooser = TopicPartitioner(7, 1000, Hashing.MURMUR2, None, random.Random(1))
    for number in range(3 * KEYS_KEPT):
        key = b"%d" % number
        assert chooser.choose(key, 10) == murmur2(key) % 7
        if number > KEYS_KEPT and number % KEYS_KEPT == 5:
            assert len(chooser._hashes) <= KEYS_KEPT


def test_a_choice_outside_of_the_topic_is_an_error():
    chooser = TopicPartitioner(2, 1000, Hashing.MURMUR2, lambda _key, _count: -1, random.Random(1))
    with pytest.raises(ClientError, match="chose -1 of 2"):
        chooser.choose(None, 1)


def test_messages_before_damage_are_returned_and_damage_is_raised_until_skipped():
    """Nothing is lost, nothing left out in silence: it is the application that seeks past it."""
    bad = bytearray(batch(2, b"x", b"y"))
    bad[-1] ^= 1
    one = fetched(batch(0, b"a", b"b") + bad + batch(4, b"c"))

    messages, position, more = one.take_messages(0, 100)
    assert ([message.value for message in messages], position, more) == ([b"a", b"b"], 2, True)
    for _ in range(2):
        with pytest.raises(BadRecords, match="t-0 at 2") as caught:
            one.take_messages(position, 100)
    assert values(one, caught.value.last + 1) == [b"c"]


def test_a_batch_that_is_large_when_decompressed_waits_until_it_may_be():
    held = PartitionState(AT)
    held.move_to(0)
    held.add_fetched(fetched(batch(0, b"a") + batch(1, bytes(5_000), b"b", codec=3)))

    assert [message.offset for message in held.take_messages(10, 1_000)] == [0]
    for _ in range(2):
        with pytest.raises(BatchTooLarge):
            held.take_messages(10, 1_000)
    assert [message.offset for message in held.take_messages(1)] == [1]
    held.release()
    with pytest.raises(BatchTooLarge):
        held.take_messages(10, 1_000)
    assert [message.value for message in held.take_messages(10)] == [b"b"]
    assert not held.buffer


def test_a_partition_with_damage_takes_nothing_from_the_others():
    bad = bytearray(batch(1, b"x"))
    bad[-1] ^= 1
    held = PartitionState(AT)
    held.move_to(0)
    held.add_fetched(fetched(batch(0, b"a")))
    held.add_fetched(fetched(bytes(bad)))

    assert [message.value for message in held.take_messages(10)] == [b"a"]
    with pytest.raises(BadRecords):
        held.take_messages(10)
    assert held.position == 1
