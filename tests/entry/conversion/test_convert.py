"""Conversion between Kafka's batches and Pulsar's sections: the mapping of the fields."""

from __future__ import annotations

import tracemalloc
from base64 import b64encode

import pytest

from tests.entry.converted import (
    CODECS,
    LIMIT,
    NOW_MS,
    back_to_kafka,
    message,
    metadata,
    one_section,
    read_section,
    records_of,
    stored,
    to_pulsar,
)
from trilogue.entry.conversion import convert
from trilogue.entry.conversion.convert import Reason, Section, SkippedRange
from trilogue.entry.conversion.kafka import HEADERS_MAX
from trilogue.entry.entry import CONTROL, Codec, Format, Record
from trilogue.entry.kafka.record_batch import (
    build_batch,
    check_crc,
    iter_records,
    read_header,
    set_log_append_time,
)
from trilogue.entry.pulsar.pulsar_batch import (
    build_batch as build_pulsar_batch,
)
from trilogue.entry.pulsar.pulsar_batch import (
    build_single,
    join_transaction,
)
from trilogue.wire.pulsar.pulsar_pb2 import EncryptionKeys, SingleMessageMetadata

# ---- Kafka to Pulsar


@pytest.mark.parametrize(("codec", "number"), CODECS)
def test_a_batch_index_is_the_distance_from_the_entrys_offset(codec, number):
    records = [Record(100 + i, NOW_MS + i, b"k%d" % i, b"value" * 20) for i in range(9)]

    section = one_section(build_batch(records, codec=codec))
    described, messages = read_section(section)

    assert (section.offset, section.span, section.is_batch) == (100, 9, True)
    assert described.compression == number
    assert described.num_messages_in_batch == 9
    assert described.publish_time == NOW_MS + 8
    assert (described.sequence_id, described.highest_sequence_id) == (100, 108)
    assert [(m.batch_index, m.sequence_id, m.partition_key, m.event_time) for m in messages] == [
        (i, 100 + i, f"k{i}", NOW_MS + i) for i in range(9)
    ]
    assert {m.value for m in messages} == {b"value" * 20}


def test_holes_are_items_that_were_compacted_out():
    records = [Record(12, NOW_MS, b"a", b"1"), Record(14, NOW_MS, b"b", b"2")]
    batch = bytearray(build_batch(records, base_offset=10))
    batch[23:27] = (6).to_bytes(4, "big")  # last offset delta: two more went at the end

    section = one_section(bytes(batch))
    described, messages = read_section(section)

    assert described.num_messages_in_batch == section.span == 7
    assert [(m.batch_index, m.value) for m in messages] == [(2, b"1"), (4, b"2")]
    assert section.holes == ((10, 12), (13, 14), (15, 17))
    size = int.from_bytes(section.data[6:10], "big")
    payload = section.data[10 + size :]
    assert payload[:4] == b"\0\0\0\4"
    first = SingleMessageMetadata.FromString(payload[4:8])
    assert first.compacted_out
    assert first.payload_size == 0


def test_one_message_alone_is_plain():
    batch = build_batch([Record(7, NOW_MS, b"k", b"v", (("a", b"1"),))])

    section = one_section(batch)
    described, (only,) = read_section(section)

    assert not section.is_batch
    assert not described.HasField("num_messages_in_batch")
    assert (described.event_time, described.partition_key) == (NOW_MS, "k")
    assert only.properties == (("a", "1"),)


@pytest.mark.parametrize(
    ("key", "text", "is_base64"),
    [
        (None, None, False),
        (b"", "", False),
        ("schlüssel".encode(), "schlüssel", False),
        (b"\xff\0", b64encode(b"\xff\0").decode(), True),
    ],
)
def test_a_key_that_is_no_text_travels_in_base64(key, text, is_base64):
    for count in (1, 2):
        batch = build_batch([Record(i, NOW_MS, key, b"v") for i in range(count)])

        _, messages = read_section(one_section(batch))

        assert {(m.partition_key, m.key_is_b64) for m in messages} == {(text, is_base64)}


def test_null_differs_from_empty():
    batch = build_batch([Record(0, NOW_MS, b"k", None), Record(1, NOW_MS, b"k", b"")])

    _, messages = read_section(one_section(batch))

    assert [m.value for m in messages] == [None, b""]


def test_headers_that_properties_cannot_represent_are_escaped():
    headers = (("a", b"1"), ("a", b"2"), ("b", None), ("c", b"\xff"), ("a", None), ("d", b""))

    _, (only,) = read_section(one_section(build_batch([Record(0, NOW_MS, None, b"", headers)])))

    assert only.properties == (
        ("a", "1"),
        ("trilogue.header.1.text.a", "2"),
        ("trilogue.header.0.null.b", ""),
        ("trilogue.header.0.base64.c", "/w=="),
        ("trilogue.header.2.null.a", ""),
        ("d", ""),
    )


@pytest.mark.parametrize("flags", [CONTROL, 0])
def test_batch_without_messages_is_skipped_without_loss(flags):
    batch = build_batch([Record(5, NOW_MS, b"k", b"v")], control=bool(flags))
    header = read_header(batch)
    if not flags:
        header = header._replace(record_count=0)

    found = convert.pulsar_sections(batch, header, limit=LIMIT)

    assert found == [SkippedRange(5, 1)]


# ---- pieces


def test_too_large_batch_is_split_into_sections_with_distinct_ids():
    records = [Record(50 + i, NOW_MS, b"k", bytes([i]) * 1000) for i in range(40)]
    batch = build_batch(records)

    pieces = to_pulsar(batch, limit=10_000)

    assert len(pieces) > 4
    assert pieces == to_pulsar(batch, limit=10_000)
    assert [piece.offset for piece in pieces[1:]] == [p.offset + p.span for p in pieces[:-1]]
    assert all(len(piece.data) <= 10_000 for piece in pieces)
    for piece in pieces:
        _, messages = read_section(piece)
        assert [piece.offset + m.batch_index for m in messages] == list(
            range(piece.offset, piece.offset + piece.span)
        )
    assert back_to_kafka(pieces) == records


def test_a_message_that_no_frame_holds_is_skipped_alone():
    values = [b"a" * 10, b"b" * 20_000, b"c" * 10, None]
    batch = build_batch([Record(i, NOW_MS, b"k", value) for i, value in enumerate(values)])

    first, missing, last = to_pulsar(batch, limit=10_000)

    assert (first.offset, first.span) == (0, 1)
    assert (missing.offset, missing.span, missing.reason) == (1, 1, Reason.TOO_LARGE)
    assert missing.messages == 1
    assert (last.offset, last.span) == (2, 2)


def test_batch_that_fits_compressed_is_not_split():
    batch = build_batch([Record(i, NOW_MS, None, b"a" * 9000) for i in range(5)], codec=Codec.ZSTD)

    (section,) = to_pulsar(batch, limit=10_000)

    assert section.span == 5


def test_pieces_that_do_not_compress_stay_within_the_limit():
    noise = bytes((i * i * 7919 >> 3) & 255 for i in range(4000))
    batch = build_batch(
        [Record(i, NOW_MS, None, noise[i:] + noise[:i]) for i in range(9)], codec=Codec.LZ4
    )

    pieces = to_pulsar(batch, limit=9_000)

    assert all(isinstance(p, Section) and len(p.data) <= 9_000 for p in pieces)


def test_many_holes_are_pieces_of_nothing():
    batch = bytearray(
        build_batch([Record(0, NOW_MS, b"k", b"v"), Record(5_000, NOW_MS, None, b"w")])
    )
    batch[23:27] = (60_000).to_bytes(4, "big")  # last offset delta

    pieces = to_pulsar(bytes(batch), limit=10_000)

    assert pieces[0].offset == 0
    assert [piece.offset for piece in pieces[1:]] == [p.offset + p.span for p in pieces[:-1]]
    assert pieces[-1].offset + pieces[-1].span == 60_001
    reported = [each for each in pieces if isinstance(each, Section)]
    assert [
        each.offset + message.batch_index for each in reported for message in read_section(each)[1]
    ] == [0, 5_000]
    assert {each.reason for each in pieces if isinstance(each, SkippedRange)} == {None}
    assert all(start >= each.offset and end <= each.offset + each.span
               for each in reported for start, end in each.holes)  # fmt: skip
    assert all(len(each.data) <= 10_000 for each in reported)


@pytest.mark.parametrize("way", ["to pulsar", "to kafka"])
def test_a_conversion_takes_few_times_the_bytes_of_its_messages(way):
    """Memory stays bounded: one object per empty message would be hundreds of times its bytes."""
    batch = build_batch([Record(each, NOW_MS, None, b"") for each in range(8_000)])
    section = one_section(batch)
    entry, header = stored(section.data)
    tracemalloc.start()
    if way == "to pulsar":
        to_pulsar(batch)
    else:
        convert.kafka_batch(entry, header)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 5 * len(section.data)


def test_a_bomb_is_skipped_and_not_unpacked():
    batch = build_batch([Record(0, NOW_MS, None, bytes(33 << 20))], codec=Codec.ZSTD)

    (missing,) = to_pulsar(batch)

    assert missing.reason is Reason.TOO_LARGE


def test_message_with_too_many_headers_is_skipped():
    """Each header is two bytes, compresses to almost none, and is hundreds as an object."""
    record = Record(0, NOW_MS, None, b"v", (("", None),) * (HEADERS_MAX + 1))
    batch = build_batch([record, Record(1, NOW_MS, None, b"w")], codec=Codec.ZSTD)

    (missing,) = to_pulsar(batch)

    assert isinstance(missing, SkippedRange)
    assert (missing.reason, missing.messages) == (Reason.TOO_LARGE, 2)


def test_many_headers_do_not_become_objects_all_at_once():
    record = Record(0, NOW_MS, None, b"", (("", None),) * 50_000)
    batch = build_batch([record._replace(offset=each) for each in range(20)], codec=Codec.ZSTD)
    tracemalloc.start()
    count = sum(1 for _ in convert.read_messages(batch, read_header(batch))[0])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert count == 20
    assert peak < 32 << 20


# ---- Pulsar to Kafka


@pytest.mark.parametrize(("codec", "number"), CODECS)
def test_a_pulsar_batch_keeps_its_offsets_and_its_codec(codec, number):
    messages = [
        message(b"value" * 30, partition_key=f"k{i}", event_time=NOW_MS + i) if i % 3 else None
        for i in range(10)
    ]
    section = build_pulsar_batch(messages, metadata(), codec=number)

    entry, header = stored(section, base_offset=1000)
    found = convert.kafka_batch(entry, header)
    converted = check_crc(found.data)

    assert converted.codec is codec
    assert converted.format is Format.KAFKA
    assert (converted.base_offset, converted.last_offset_delta) == (1000, 9)
    assert converted.leader_epoch == 7
    assert converted.record_count == 6
    assert [(r.offset, r.timestamp, r.key) for r in iter_records(found.data)] == [
        (1000 + i, NOW_MS + i, b"k%d" % i) for i in range(10) if i % 3
    ]


def test_a_message_without_an_event_time_has_its_publish_time():
    for section in (
        build_single(message(), metadata()),
        build_pulsar_batch([message()], metadata()),
    ):
        (record,) = records_of(section)
        assert record.timestamp == NOW_MS


def test_where_time_is_that_of_the_append_all_messages_have_it():
    entry, _ = stored(build_pulsar_batch([message(event_time=5), message()], metadata()))
    stamped = bytearray(entry)
    set_log_append_time(stamped, NOW_MS + 9)

    found = convert.kafka_batch(bytes(stamped), read_header(stamped))

    assert check_crc(found.data).log_append_time
    assert [each.timestamp for each in iter_records(found.data)] == [NOW_MS + 9] * 2


def test_pulsar_metadata_is_stored_in_reserved_headers():
    section = build_single(
        message(
            ordering_key=b"order", partition_key="YWJj", key_is_b64=True, properties=(("a", "b"),)
        ),
        metadata(schema_version=b"\0\1", replicated_from="west", deliver_at_time=99),
    )

    (record,) = records_of(section)

    assert record.key == b"abc"
    assert record.headers == (
        ("a", b"b"),
        ("trilogue.pulsar.key-form", b"base64"),
        ("trilogue.pulsar.schema-version", b"\0\1"),
        ("trilogue.pulsar.replicated-from", b"west"),
        ("trilogue.pulsar.deliver-at", b"99"),
        ("trilogue.ordering-key", b"order"),
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"encryption_keys": [EncryptionKeys(key="k", value=b"x")]}, Reason.ENCRYPTED),
        ({"num_chunks_from_msg": 2, "chunk_id": 1, "uuid": "u"}, Reason.CHUNKED),
        ({"compression": 2, "uncompressed_size": 100}, Reason.DAMAGED),
        ({"compression": 1, "uncompressed_size": 33 << 20}, Reason.TOO_LARGE),
    ],
)
def test_unconvertible_entry_becomes_an_empty_batch_with_its_offsets(fields, reason):
    entry, header = stored(build_single(message(), metadata(**fields)), base_offset=31)

    found = convert.kafka_batch(entry, header)
    converted = check_crc(found.data)

    assert (converted.base_offset, converted.last_offset_delta) == (31, 0)
    assert converted.record_count == 0
    assert found.skipped is not None
    assert (found.skipped.reason, found.skipped.messages) == (reason, 1)


def test_a_message_of_its_entrys_transaction_is_converted():
    """Readers skip it by the producer of the batch, where the transaction was aborted."""
    octets = build_single(message(), metadata(txnid_least_bits=7, txnid_most_bits=0))
    entry, header = stored(octets, base_offset=31)
    entry = memoryview(bytearray(entry))
    header = join_transaction(entry, header, 7, 0)

    converted = check_crc(convert.kafka_batch(entry, header).data)

    assert (converted.base_offset, converted.record_count) == (31, 1)
    assert (converted.is_transactional, converted.producer_id) == (True, 7)


def test_only_the_last_chunk_counts_as_a_message_that_is_missed():
    fields = {"num_chunks_from_msg": 2, "uuid": "u"}
    first = stored(build_single(message(), metadata(chunk_id=0, **fields)))

    assert convert.kafka_batch(*first).skipped is None


def test_message_above_the_limit_after_conversion_is_skipped():
    entry, header = stored(build_single(message(bytes(5000)), metadata()))

    found = convert.kafka_batch(entry, header, limit=4000)

    assert found.skipped is not None
    assert found.skipped.reason is Reason.TOO_LARGE
