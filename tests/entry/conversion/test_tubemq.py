"""Conversion between TubeMQ's messages and Kafka's and Pulsar's: the mapping of the fields."""

from __future__ import annotations

import pytest

from tests.entry.converted import (
    NOW_MS,
    back_to_kafka,
    message,
    metadata,
    one_section,
    read_section,
    records_of_entry,
    stored,
    to_pulsar,
    tube_entry,
    tube_stored,
    tubed,
)
from trilogue.entry.conversion import convert
from trilogue.entry.conversion.convert import TUBEMQ_WINDOW, Reason, SkippedRange, TubeMessage
from trilogue.entry.conversion.kafka import HEADERS_MAX
from trilogue.entry.entry import CONTROL, Codec, Format, Record
from trilogue.entry.kafka.record_batch import (
    build_batch,
    check_crc,
    iter_records,
    read_header,
    set_log_append_time,
)
from trilogue.entry.pulsar.pulsar_batch import build_batch as build_pulsar_batch
from trilogue.entry.pulsar.pulsar_batch import build_single
from trilogue.wire.pulsar.pulsar_pb2 import EncryptionKeys

MINUTE_MS = 1_600_000_020_000  # 2020-09-13 12:27 UTC


def attributes_of(found: TubeMessage) -> str:
    if not found.flag:
        return ""
    size = int.from_bytes(found.data[:4], "big")
    return found.data[4 : 4 + size].decode()


def body_of(found: TubeMessage) -> bytes:
    return found.data[4 + int.from_bytes(found.data[:4], "big") :] if found.flag else found.data


def from_kafka(
    *records: Record, limit: int = convert.TUBEMQ_MAX
) -> list[TubeMessage | SkippedRange]:
    batch = build_batch(list(records))
    return convert.tubemq_messages(batch, read_header(batch), limit=limit)


def one(record: Record) -> TubeMessage:
    (found,) = from_kafka(record)
    assert isinstance(found, TubeMessage)
    return found


# ---- to TubeMQ


@pytest.mark.parametrize("codec", list(Codec))
def test_every_record_is_a_message_at_its_offset(codec):
    records = [Record(100 + i, MINUTE_MS, None, b"value %d" % i) for i in range(9)]
    batch = build_batch(records, codec=codec)

    found = convert.tubemq_messages(batch, read_header(batch))

    assert [each.offset for each in found] == list(range(100, 109))
    assert [body_of(each) for each in found] == [b"value %d" % i for i in range(9)]
    assert {each.message_time for each in found} == {202009131227}
    assert {attributes_of(each) for each in found} == {"$msgTime$=202009131227"}


@pytest.mark.parametrize(
    ("time_ms", "attributes", "number"),
    [
        (MINUTE_MS, "$msgTime$=202009131227", 202009131227),
        (MINUTE_MS + 7, f"$msgTime$=202009131227,trilogue.timestamp={MINUTE_MS + 7}", 202009131227),
        (-1, "trilogue.timestamp=-1", -1),
        (0, "$msgTime$=197001010000", 197001010000),
        (-60_000, "$msgTime$=196912312359", 196912312359),
        (253402300800000, "trilogue.timestamp=253402300800000", -1),  # the year 10000
        (-62135596800000, "$msgTime$=000101010000", 101010000),
        (-62135596800001, "trilogue.timestamp=-62135596800001", -1),
    ],
)
def test_a_time_is_a_minute_in_utc_and_its_rest_beside_it(time_ms, attributes, number):
    found = one(Record(0, time_ms, None, b"v"))

    assert attributes_of(found) == attributes
    assert found.message_time == number


@pytest.mark.parametrize(
    ("key", "attribute"),
    [
        (b"", "trilogue.key="),
        ("schlüssel".encode(), "trilogue.key=schlüssel"),
        (b"a=b", "trilogue.key.base64=YT1i"),
        (b"a,b", "trilogue.key.base64=YSxi"),
        (b"\xff", "trilogue.key.base64=/w"),
        (b"$msgType$", "trilogue.key.base64=JG1zZ1R5cGUk"),
    ],
)
def test_key_that_an_attribute_cannot_represent_is_base64_without_padding(key, attribute):
    assert attributes_of(one(Record(0, MINUTE_MS, key, b"v"))).endswith(f",{attribute}")


def test_tombstone_differs_from_an_empty_body():
    null, empty = from_kafka(Record(0, MINUTE_MS, None, None), Record(1, MINUTE_MS, None, b""))

    assert attributes_of(null) == "$msgTime$=202009131227,trilogue.value=null"
    assert attributes_of(empty) == "$msgTime$=202009131227"
    assert (body_of(null), body_of(empty)) == (b"", b"")


def test_headers_that_attributes_cannot_represent_are_escaped():
    headers = (
        ("a", b"1"), ("a", b"2"), ("b", None), ("c", b"\xff"), ("d", b""), ("e,=%$", b"x"),
        ("f", b"g=h"), ("", b"y"), ("trilogue.key", b"z"), ("$msgType$", b"no"),
        ("trilogue.mine", b"kept"),
    )  # fmt: skip

    found = one(Record(0, MINUTE_MS, None, b"", headers))

    assert attributes_of(found).split(",")[1:] == [
        "a=1",
        "trilogue.header.1.text.a=2",
        "trilogue.header.0.null.b=",
        "trilogue.header.0.base64.c=/w",
        "d=",
        "trilogue.header.0.text.e%2C%3D%25%24=x",
        "trilogue.header.0.base64.f=Zz1o",
        "trilogue.header.0.text.=y",
        "trilogue.header.0.text.trilogue.key=z",
        "trilogue.header.0.text.%24msgType%24=no",
        "trilogue.mine=kept",
    ]


@pytest.mark.parametrize(
    ("kind", "attribute", "filtered"),
    [
        ("a type", "$msgType$=a type", "a type"),
        ("a,b", "trilogue.type.base64=YSxi", None),
        (" ", "trilogue.type.base64=IA", None),
    ],
)
def test_message_type_matches_filters_where_an_attribute_can_represent_it(
    kind, attribute, filtered
):
    found = one(Record(0, MINUTE_MS, None, b"", (("trilogue.type", kind.encode()),)))

    assert attributes_of(found).split(",")[0] == attribute
    assert found.message_type == filtered


def test_properties_of_pulsar_messages_become_attributes():
    section = build_single(
        message(
            ordering_key=b"order",
            partition_key="k",
            event_time=MINUTE_MS,
            properties=(("a", "b"), ("trilogue.type", "T")),
        ),
        metadata(),
    )
    entry, header = stored(section, base_offset=4)

    (found,) = convert.tubemq_messages(entry, header)

    assert found.offset == 4
    assert found.message_type == "T"
    assert attributes_of(found) == (
        "$msgType$=T,$msgTime$=202009131227,trilogue.key=k,trilogue.ordering-key=order,a=b"
    )


def test_a_message_without_an_event_time_and_attributes_is_its_body_alone():
    entry, header = stored(build_single(message(b"body"), metadata()))

    assert convert.tubemq_messages(entry, header) == [TubeMessage(0, b"body", 0, None, -1)]


# ---- windows, holes, what is missing


def test_holes_and_markers_are_passed_without_a_count():
    batch = bytearray(build_batch([Record(12, MINUTE_MS, None, b"a")], base_offset=10))
    batch[23:27] = (6).to_bytes(4, "big")  # last offset delta
    marker = build_batch([Record(5, MINUTE_MS, b"k", b"v")], control=True)

    first, found, last = convert.tubemq_messages(bytes(batch), read_header(batch))
    nothing = convert.tubemq_messages(marker, read_header(marker))

    assert (first, last) == (SkippedRange(10, 2), SkippedRange(13, 4))
    assert isinstance(found, TubeMessage)
    assert nothing == [SkippedRange(5, 1)]
    assert read_header(marker).attributes & CONTROL


def test_a_large_entry_comes_in_windows_that_join():
    count = 2 * TUBEMQ_WINDOW + 7
    batch = build_batch([Record(50 + i, MINUTE_MS, None, b"%d" % i) for i in range(count)])
    header = read_header(batch)

    windows, offset = [], 50
    while offset <= header.last_offset:
        windows.append(convert.tubemq_messages(batch, header, offset=offset))
        offset = windows[-1][-1].offset + 1
    amid = convert.tubemq_messages(batch, header, offset=50 + TUBEMQ_WINDOW + 3)

    assert [len(each) for each in windows] == [TUBEMQ_WINDOW, TUBEMQ_WINDOW, 7]
    assert [body_of(each) for window in windows for each in window] == [
        b"%d" % each for each in range(count)
    ]
    assert amid == windows[1]


def test_windows_of_holes_join_too():
    batch = bytearray(build_batch([Record(0, 0, None, b"a"), Record(2500, 0, None, b"b")]))
    batch[23:27] = (5000).to_bytes(4, "big")  # last offset delta
    header = read_header(batch)

    found, offset = [], 0
    while offset <= header.last_offset:
        found += convert.tubemq_messages(bytes(batch), header, offset=offset)
        last = found[-1]
        offset = last.offset + (last.span if isinstance(last, SkippedRange) else 1)

    assert [each.offset for each in found if isinstance(each, TubeMessage)] == [0, 2500]
    assert offset == 5001


def test_a_message_that_no_frame_holds_is_skipped_alone():
    values = [b"a", b"b" * 20_000, b"c"]

    first, missing, last = from_kafka(
        *(Record(i, MINUTE_MS, None, value) for i, value in enumerate(values)), limit=10_000
    )

    assert (first.offset, last.offset) == (0, 2)
    assert (missing.offset, missing.span, missing.messages) == (1, 1, 1)
    assert missing.reason is Reason.TOO_LARGE


def test_a_window_does_not_grow_beyond_its_bound():
    record = Record(0, MINUTE_MS, None, b"", (("=" * 1_000_000, b""),))  # each is three there
    batch = build_batch([record._replace(offset=each) for each in range(30)], codec=Codec.ZSTD)

    found = convert.tubemq_messages(batch, read_header(batch))

    there = [each for each in found if isinstance(each, TubeMessage)]
    assert len(there) == 22
    assert sum(len(each.data) for each in there) <= 64 << 20
    assert [each.offset for each in found] == list(range(30))
    assert {each.reason for each in found if isinstance(each, SkippedRange)} == {Reason.TOO_LARGE}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"encryption_keys": [EncryptionKeys(key="k", value=b"x")]}, Reason.ENCRYPTED),
        ({"num_chunks_from_msg": 2, "chunk_id": 1, "uuid": "u"}, Reason.CHUNKED),
        ({"compression": 1, "uncompressed_size": 33 << 20}, Reason.TOO_LARGE),
    ],
)
def test_unconvertible_message_is_skipped_with_its_reason(fields, reason):
    entry, header = stored(build_single(message(), metadata(**fields)), base_offset=31)

    (found,) = convert.tubemq_messages(entry, header)

    assert isinstance(found, SkippedRange)
    assert (found.offset, found.span, found.reason, found.messages) == (31, 1, reason, 1)


def test_a_bomb_is_skipped_and_not_unpacked():
    batch = build_batch([Record(0, NOW_MS, None, bytes(33 << 20))], codec=Codec.ZSTD)

    (missing,) = convert.tubemq_messages(batch, read_header(batch))

    assert isinstance(missing, SkippedRange)
    assert missing.reason is Reason.TOO_LARGE


# ---- from TubeMQ


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("", Record(7, NOW_MS, None, b"body")),
        ("$msgTime$=202009131227", Record(7, MINUTE_MS, None, b"body")),
        (
            f"$msgTime$=202009131227,trilogue.timestamp={MINUTE_MS + 59_999}",
            Record(7, MINUTE_MS + 59_999, None, b"body"),
        ),
        (  # another minute: an application's own
            f"$msgTime$=202009131227,trilogue.timestamp={MINUTE_MS + 60_000}",
            Record(7, MINUTE_MS, None, b"body", (
                ("trilogue.timestamp", f"{MINUTE_MS + 60_000}".encode()),
            )),
        ),
        (
            "$msgTime$=202013131227",
            Record(7, NOW_MS, None, b"body",
                   (("trilogue.tubemq.attribute", b"$msgTime$=202013131227"),)),
        ),
        (
            "$msgType$=T,a=1,b",
            Record(7, NOW_MS, None, b"body", (
                ("a", b"1"), ("trilogue.tubemq.attribute", b"b"), ("trilogue.type", b"T"),
            )),
        ),
        ("trilogue.key=k", Record(7, NOW_MS, b"k", b"body")),
        ("trilogue.key.base64=YT1i", Record(7, NOW_MS, b"a=b", b"body")),
        (  # no base64
            "trilogue.key.base64=YT1",
            Record(7, NOW_MS, None, b"body", (("trilogue.key.base64", b"YT1"),)),
        ),
        (
            "a=1,,c=,d=e=f, ",
            Record(7, NOW_MS, None, b"body", (
                ("a", b"1"), ("c", b""), ("trilogue.tubemq.attribute", b"d=e=f"),
            )),
        ),
        (  # the body is there
            "trilogue.value=null",
            Record(7, NOW_MS, None, b"body", (("trilogue.value", b"null"),)),
        ),
    ],
)  # fmt: skip
def test_attributes_are_headers_and_what_they_stand_for(attributes, expected):
    entry, header = tube_entry(b"body", attributes, base_offset=7)

    assert records_of_entry(entry, header) == [expected]


def test_type_and_time_of_the_request_apply_where_attributes_lack_them():
    """Clients repeat them in the attributes; the protocol does not require it."""
    entry, header = tube_entry(b"body", "a=1", message_type="T", message_time="202009131227")

    (record,) = records_of_entry(entry, header)

    assert record.timestamp == MINUTE_MS
    assert record.headers == (("a", b"1"), ("trilogue.type", b"T"))


def test_an_entry_of_tubemqs_is_a_batch_of_one_with_its_place_and_time():
    entry, header = tube_entry(b"body", "", base_offset=1000)

    converted = check_crc(convert.kafka_batch(entry, header).data)

    assert converted.format is Format.KAFKA
    assert (converted.base_offset, converted.span, converted.leader_epoch) == (1000, 1, 7)
    assert (converted.record_count, converted.max_timestamp) == (1, NOW_MS)


def test_where_time_is_that_of_the_append_a_message_has_it():
    entry, _ = tube_entry(b"body", "$msgTime$=202009131227")
    stamped = bytearray(entry)
    set_log_append_time(stamped, NOW_MS + 9)

    found = convert.kafka_batch(bytes(stamped), read_header(stamped))

    assert [each.timestamp for each in iter_records(found.data)] == [NOW_MS + 9]


def test_pulsars_clients_see_a_message_with_the_time_of_its_append():
    entry, _ = tube_entry(b"body", "$msgType$=T,a=1,trilogue.key=k", base_offset=9)

    section = one_section(entry)
    described, (only,) = read_section(section)

    assert (section.offset, section.span, section.is_batch) == (9, 1, False)
    assert described.producer_name == "trilogue.tubemq"
    assert described.publish_time == NOW_MS
    assert not described.HasField("event_time")
    assert (only.value, only.partition_key) == (b"body", "k")
    assert only.properties == (("a", "1"), ("trilogue.type", "T"))


def test_message_with_too_many_attributes_is_skipped():
    entry, header = tube_entry(b"body", "a," * HEADERS_MAX)

    found = convert.kafka_batch(entry, header)

    assert found.skipped is not None
    assert found.skipped.reason is Reason.TOO_LARGE


def test_a_damaged_entry_of_tubemqs_is_skipped():
    entry, header = tube_entry(b"body", "a=1")
    damaged = bytearray(entry)
    at = entry.index(b"\0\0\0\3a=1")
    damaged[at : at + 4] = b"\x7f\xff\xff\xff"

    found = convert.kafka_batch(bytes(damaged), header)

    assert found.skipped is not None
    assert found.skipped.reason is Reason.DAMAGED
    assert convert.pulsar_sections(bytes(damaged), header)[0] == found.skipped


def test_remaining_messages_of_a_pulsar_batch_keep_their_offsets():
    section = build_pulsar_batch([message(b"a"), None, message(b"c")], metadata())
    entry, header = stored(section, base_offset=20)

    found = convert.tubemq_messages(entry, header)

    assert [each.offset for each in found] == [20, 21, 22]
    assert found[1] == SkippedRange(21, 1)


def test_attributes_that_are_no_text_are_kept_as_they_stand():
    data = b"\0\0\0\x09a=1,\xff=\xfe,b" + b"body"

    (record,) = records_of_entry(*tube_stored(data, 1))

    assert record.value == b"body"
    assert record.headers == (
        ("a", b"1"),
        ("trilogue.tubemq.attribute", b"\xff=\xfe"),
        ("trilogue.tubemq.attribute", b"b"),
    )


def test_a_type_comes_through_all_three():
    entry, header = tube_entry(b"body", "$msgType$=T")

    batch = bytes(convert.kafka_batch(entry, header).data)
    (again,) = tubed(batch)
    (record,) = back_to_kafka(to_pulsar(batch))

    assert again.message_type == "T"
    assert record.headers == (("trilogue.type", b"T"),)
