"""Compaction of one Pulsar entry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.entry.converted import message, metadata, pulsar_messages, stored
from trilogue.entry.compaction.compaction import emptied, open_entry
from trilogue.entry.conversion.convert import kafka_batch, pulsar_sections
from trilogue.entry.entry import DELETE_HORIZON, Format
from trilogue.entry.kafka.record_batch import check_crc, iter_records
from trilogue.entry.pulsar.compression import PulsarCodec
from trilogue.entry.pulsar.pulsar_batch import (
    build_batch,
    build_single,
    read_metadata,
    read_stamp,
    walk_messages,
)
from trilogue.wire.pulsar.pulsar_pb2 import EncryptionKeys


def batch(*pairs: tuple[str | None, bytes | None], codec: int = 0) -> tuple:
    messages = [message(value, partition_key=key) for key, value in pairs]
    return stored(build_batch(messages, metadata(), codec=codec), base_offset=50)


@pytest.mark.parametrize("codec", list(PulsarCodec))
def test_a_batch_keeps_its_size_and_its_producers_words(codec):
    entry, header = batch(("a", b"1" * 90), ("b", b"2" * 90), ("a", b"3" * 90), codec=codec)

    rewritten = open_entry(entry, header).keeping([False, True, True])
    after = check_crc(rewritten)

    assert after.format is Format.PULSAR
    assert (after.base_offset, after.span, after.record_count) == (50, 3, 2)
    assert after.leader_epoch == header.leader_epoch
    assert after.max_timestamp == header.max_timestamp
    assert [(m.batch_index, m.value) for m in walk_messages(rewritten, after)] == [
        (1, b"2" * 90),
        (2, b"3" * 90),
    ]
    before, now = read_metadata(entry), read_metadata(rewritten)
    assert now.num_messages == 3
    assert now.compression == codec
    assert now._replace(uncompressed_size=0) == before._replace(uncompressed_size=0)
    assert read_stamp(rewritten)[:3] == read_stamp(entry)[:3]
    assert [r.offset for r in iter_records(kafka_batch(rewritten, after).data)] == [51, 52]


def test_it_may_be_compacted_again():
    entry, header = batch(("a", b"1"), ("b", b"2"), ("c", b"3"))
    once = open_entry(entry, header).keeping([False, True, True])

    again = open_entry(once, check_crc(once))
    twice = again.keeping([False, True])

    assert [each.offset for each in again.records] == [51, 52]
    assert [m.value for m in walk_messages(twice, check_crc(twice))] == [b"3"]


def test_an_empty_value_is_a_tombstone_and_its_horizon_is_kept():
    entry, header = batch(("a", None), ("b", b""), ("c", b"3"), (None, b"x"))

    found = open_entry(entry, header)
    marked = found.keeping([True] * 4, 777)
    after = check_crc(marked)

    assert [each.is_tombstone for each in found.records] == [True, True, False, False]
    assert [each.key for each in found.records] == [b"a", b"b", b"c", None]
    assert after.attributes & DELETE_HORIZON
    assert after.base_timestamp == 777
    assert marked[101:] == entry[101:]


def test_a_message_alone_stays_or_goes_whole():
    entry, header = stored(build_single(message(b"v", partition_key="k"), metadata()), 9)

    (only,) = open_entry(entry, header).records

    assert (only.offset, only.key) == (9, b"k")
    left = emptied(header)
    after = check_crc(left)
    assert (after.base_offset, after.record_count) == (9, 0)
    assert pulsar_sections(left, after)[0].reason is None


@pytest.mark.parametrize(
    "fields",
    [
        {"encryption_keys": [EncryptionKeys(key="k", value=b"x")]},
        {"num_chunks_from_msg": 2, "chunk_id": 0, "uuid": "u"},
    ],
)
def test_encrypted_or_chunked_entries_are_not_compacted(fields):
    entry, header = stored(build_single(message(), metadata(**fields)))

    assert open_entry(entry, header) is None


@given(st.lists(st.tuples(pulsar_messages(), st.booleans()), min_size=1, max_size=6))
def test_kept_messages_are_unchanged_to_the_bit(chosen):
    messages = [each for each, _ in chosen]
    kept = [flag for _, flag in chosen]
    if not any(kept):
        return
    entry, header = stored(build_batch(messages, metadata(), codec=PulsarCodec.ZSTD))

    rewritten = open_entry(entry, header).keeping(kept)

    expected = [each for each, flag in zip(walk_messages(entry, header), kept, strict=True) if flag]
    assert list(walk_messages(rewritten, check_crc(rewritten))) == expected
