"""Conversion of message sets to batches and back, checked against other clients' code.

The rules are those of Kafka's LogValidator and RecordsUtil; conformance/test_kafka_old_formats.py
checks most of them against a real broker.
"""

from __future__ import annotations

import gzip
import warnings
from struct import pack, pack_into
from zlib import crc32

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AioSet
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.raw_sets import APPEND_TIME, GZIP, Message, message, messages, wrapper
from tests.conformance.raw_sets import read_set as by_hand
from tests.entry.conftest import INSTALLED, PURE, Room
from tests.entry.samples import maybe_octets, plain_records, record_lists
from trilogue.entry.compression import compress
from trilogue.entry.control import Outcome, build_marker
from trilogue.entry.entry import (
    Codec,
    CorruptEntry,
    EntryError,
    EntryTooLarge,
    InvalidEntry,
    Record,
    UnsupportedCompression,
)
from trilogue.entry.kafka.record_batch import (
    build_batch,
    check_produced,
    iter_records,
    read_header,
    set_log_append_time,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import legacy_records as kafka_python

OLD_CODECS = (0, 1, 2, 3)
MAGICS = (0, 1)
NOW = 1_600_000_000_000
MIB = 1 << 20
# What kafka-clients 0.9.0.1 sends for (k1, value-one-value-one-value-one) and (null, value-two).
JAVA_0_9 = {
    Codec.GZIP: (
        "000000000000000100000052bfb768e00001ffffffff000000441f8b08000000000000ff63608003dda716dc"
        "75601653b62190942d4bcc294dd5cdcf4bd5c5c242e863102fe59d708581e13f1000799c102525e5f9008493"
        "fbf45c000000"
    ),
    Codec.SNAPPY: (
        "000000000000000100000061c0d376ad0002ffffffff0000005382534e415050590000000001000000010000"
        "003f5c00001901102de5380b7e050f40026b310000001d76616c75652d6f6e652d4a0a00052909015c17750d"
        "90d40000ffffffff0000000976616c75652d74776f"
    ),
    Codec.LZ4: (
        "00000000000000010000005f9d21c8b30003ffffffff0000005104224d1860401a4200000016000100512de5"
        "380b7e0f00ff02026b310000001d76616c75652d6f6e652d0a0000012900020200f00917750d90d40000ffff"
        "ffff0000000976616c75652d74776f00000000"
    ),
}


def up(room: Room, records: bytes, **how: object) -> bytes:
    """Return the batch made of a set; it must be one that a producer may send."""
    batch = room.kafka_legacy.upgrade(records, **{"size_max": MIB, **how}).batch
    check_produced(batch)
    return batch


def contents(batch: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(each.timestamp, each.key, each.value) for each in iter_records(batch)]


def down(where: Room, batch: bytes, magic: int, **how: object) -> tuple[bytes, int]:
    """Return the messages of a batch, and the offset after them."""
    found, next_offset = where.kafka_legacy.downgrade(batch, read_header(batch), magic=magic, **how)
    return bytes(found), next_offset


# ---- up


@pytest.mark.parametrize(
    ("magic", "codec"), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)]
)
def test_message_sets_of_python_clients_become_batches_in_their_codec(
    room: Room, magic: int, codec: int
):
    records = plain_records(20)
    wants = [(each.timestamp if magic else -1, each.key, each.value) for each in records]

    for builder in (
        AioSet(magic, codec, MIB),
        kafka_python.LegacyRecordBatchBuilder(magic, codec, MIB),
    ):
        for each in records:
            builder.append(each.offset, each.timestamp, each.key, each.value)
        batch = up(room, bytes(builder.build()))

        header = read_header(batch)
        assert contents(batch) == wants
        assert (header.codec, header.record_count, header.base_offset) == (codec, 20, 0)
        assert header.max_timestamp == wants[-1][0]


@pytest.mark.parametrize("codec", JAVA_0_9)
def test_message_sets_of_java_0_9_become_batches(room: Room, codec: Codec):
    batch = up(room, bytes.fromhex(JAVA_0_9[codec]))

    assert contents(batch) == [
        (-1, b"k1", b"value-one-value-one-value-one"),
        (-1, None, b"value-two"),
    ]
    assert read_header(batch).codec is codec


def test_plain_messages_become_one_batch_with_their_times(room: Room):
    sent = message(b"a", b"k", timestamp=50) + message(None, timestamp=-1, offset=1)
    sent += message(b"", b"", timestamp=40, offset=2)

    batch = up(room, sent)

    header = read_header(batch)
    assert contents(batch) == [(50, b"k", b"a"), (-1, None, None), (40, b"", b"")]
    assert (header.base_timestamp, header.max_timestamp, header.attributes) == (50, 50, 0)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)


def test_messages_of_magic_0_have_no_time(room: Room):
    header = read_header(up(room, message(b"v", magic=0)))

    assert (header.base_timestamp, header.max_timestamp) == (-1, -1)


def test_a_batch_is_made_in_the_codec_that_is_wanted(room: Room):
    plain, wrapped = message(b"v" * 500), wrapper(message(b"v" * 500))

    for sent in (plain, wrapped):
        for codec in Codec:
            batch = up(room, sent, codec=codec)
            assert read_header(batch).codec is codec
            assert contents(batch) == [(NOW, None, b"v" * 500)]


@pytest.mark.parametrize("offsets", [(0, 1, 2), (10, 12, 14), (5, 3, 2)])
def test_offsets_within_a_wrapper_are_counted_again(room: Room, offsets: tuple[int, ...]):
    """LogValidator: some clients write other inner offsets than 0, 1, 2; they are accepted."""
    inner = b"".join(message(b"%d" % at, offset=at) for at in offsets)

    batch = up(room, wrapper(inner, offset=offsets[-1]))

    assert [each.offset for each in iter_records(batch)] == [0, 1, 2]


def test_wrapper_offset_is_0_or_at_least_that_of_its_last_message(room: Room):
    inner = message(b"a") + message(b"b", offset=1) + message(b"c", offset=2)

    up(room, wrapper(inner, offset=0))
    up(room, wrapper(inner, offset=99))
    with pytest.raises(InvalidEntry, match="wrapper at 1"):
        up(room, wrapper(inner, offset=1))


def test_the_brokers_kind_of_time_is_reported_and_a_wrapper_gives_its_own(room: Room):
    upgrade = room.kafka_legacy.upgrade
    plain = upgrade(message(b"a") + message(b"b", attributes=APPEND_TIME), size_max=MIB)
    untimed = upgrade(message(b"a", attributes=APPEND_TIME, timestamp=-1), size_max=MIB)
    wrapped = upgrade(
        wrapper(message(b"a", timestamp=5), attributes=GZIP | APPEND_TIME, timestamp=7),
        size_max=MIB,
    )
    in_magic_0 = upgrade(message(b"a", magic=0, attributes=APPEND_TIME), size_max=MIB)

    assert (plain.claims_append_time, plain.claims_for_untimed) == (True, False)
    assert (untimed.claims_append_time, untimed.claims_for_untimed) == (True, True)
    assert (wrapped.claims_append_time, contents(wrapped.batch)) == (True, [(7, None, b"a")])
    assert not in_magic_0.claims_append_time


GOOD = message(b"v")
BAD: dict[str, tuple[bytes, type[EntryError]]] = {
    "nothing": (b"", InvalidEntry),
    "a wrong checksum": (message(b"v", crc=1), CorruptEntry),
    "a wrong checksum later": (GOOD + message(b"v", crc=1), CorruptEntry),
    "a wrong checksum within": (wrapper(message(b"v", crc=1)), CorruptEntry),
    "cut": (GOOD + GOOD[:-1], InvalidEntry),
    "a cut header": (GOOD + GOOD[:11], InvalidEntry),
    "cut within": (wrapper((GOOD + GOOD)[:-1]), InvalidEntry),
    "a size that is too small": (pack(">qi", 0, 13) + bytes(13), CorruptEntry),
    "a negative size": (pack(">qi", 0, -1) + bytes(40), CorruptEntry),
    "magic 2": (message(b"v", magic=2), CorruptEntry),
    "magic -1": (message(b"v", magic=-1), CorruptEntry),
    "two magics": (GOOD + message(b"v", magic=0), InvalidEntry),
    "another magic within": (wrapper(message(b"v", magic=0)), InvalidEntry),
    "another magic in magic 0": (wrapper(GOOD, magic=0), InvalidEntry),
    "a wrapper in a wrapper": (wrapper(wrapper(GOOD)), InvalidEntry),
    "a wrapper behind a message": (GOOD + wrapper(GOOD), InvalidEntry),
    "a message behind a wrapper": (wrapper(GOOD) + GOOD, InvalidEntry),
    "a wrapper with nothing in it": (wrapper(b""), InvalidEntry),
    "a wrapper without a value": (message(None, attributes=GZIP), InvalidEntry),
    "a wrapper of nonsense": (message(b"nonsense", attributes=GZIP), InvalidEntry),
    "a wrapper of nonsense in LZ4": (message(b"nonsense", attributes=3, magic=0), InvalidEntry),
    "a wrapper of little in LZ4": (message(b"12", attributes=3, magic=0), InvalidEntry),
    "zstd": (message(compress(4, GOOD), attributes=4), InvalidEntry),
    "codec 7": (message(b"v", attributes=7), InvalidEntry),
    "a time before all": (message(b"v", timestamp=-2), InvalidEntry),
}


@pytest.mark.parametrize("case", BAD)
def test_invalid_message_set_raises_its_error(room: Room, case: str):
    sent, error = BAD[case]

    with pytest.raises(error):
        room.kafka_legacy.upgrade(sent, size_max=MIB)


@pytest.mark.parametrize("tail", [pack(">i", 100) + b"v", pack(">i", -2), bytes(5)])
def test_a_length_that_leads_nowhere_is_refused(room: Room, tail: bytes):
    body = pack(">bbqi", 1, 0, NOW, -1) + tail
    sent = pack(">qiI", 0, 4 + len(body), crc32(body)) + body

    with pytest.raises(InvalidEntry):
        room.kafka_legacy.upgrade(sent, size_max=MIB)


def test_a_message_that_is_too_large_is_refused_before_it_is_opened(room: Room):
    for sent in (message(b"x" * 1000), GOOD + message(b"x" * 1000)):
        with pytest.raises(EntryTooLarge, match="at most 1000"):
            room.kafka_legacy.upgrade(sent, size_max=1000)
    with pytest.raises(EntryTooLarge, match="at most 50"):
        room.kafka_legacy.upgrade(wrapper(GOOD), size_max=50)


@pytest.mark.parametrize("codec", OLD_CODECS[1:])
@pytest.mark.parametrize("magic", MAGICS)
def test_a_bomb_stops_at_the_limit(room: Room, codec: int, magic: int):
    """A decompression bomb raises at the limit."""
    inner = message(bytes(MIB), magic=magic)
    packed = room.kafka_legacy._compress(Codec(codec), inner, magic)

    with pytest.raises(EntryTooLarge):
        room.kafka_legacy.upgrade(
            message(packed, attributes=codec, magic=magic), size_max=MIB, limit=100_000
        )


def test_many_plain_messages_stop_at_the_limit(room: Room):
    with pytest.raises(EntryTooLarge):
        room.kafka_legacy.upgrade(message(b"x" * 500) * 300, size_max=MIB, limit=100_000)


# ---- down


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_other_clients_read_what_a_batch_becomes(room: Room, magic: int, codec: int):
    records = [Record(7 + 3 * at, NOW + at, b"k" * at or None, b"v" * at) for at in range(12)]
    batch = build_batch(records, codec=codec)

    found, next_offset = down(room, batch, magic)

    wants = [
        Message(each.offset, magic, 0, each.timestamp if magic else -1, each.key, each.value)
        for each in records
    ]
    assert messages(found) == wants
    assert next_offset == read_header(batch).last_offset + 1
    if codec and (magic, codec) != (0, 3):
        theirs = kafka_python.LegacyRecordBatch(bytearray(found), magic)
        assert theirs.validate_crc()
        read = [(each.offset, each.timestamp or -1, each.key, each.value) for each in theirs]
        assert read == [(each.offset, each.timestamp, each.key, each.value) for each in wants]


@pytest.mark.parametrize("magic", MAGICS)
def test_a_wrapper_has_the_last_offset_the_latest_time_and_the_codec(room: Room, magic: int):
    times = (50, 90, 70)
    batch = build_batch(
        [Record(10 + 2 * at, time, None, b"v") for at, time in enumerate(times)], codec=1
    )

    (found,) = by_hand(down(room, batch, magic)[0])

    inner = list(by_hand(gzip.decompress(found.value or b"")))
    assert (found.offset, found.attributes, found.key) == (14, GZIP, None)
    assert found.timestamp == (90 if magic else -1)
    assert [each.offset for each in inner] == ([0, 2, 4] if magic else [10, 12, 14])


def test_log_append_time_is_marked_in_magic_1(room: Room):
    for codec in (0, 1):
        batch = bytearray(
            build_batch([Record(0, 5, None, b"a"), Record(1, 6, None, b"b")], codec=codec)
        )
        set_log_append_time(batch, NOW)

        found = list(by_hand(down(room, bytes(batch), 1)[0]))

        assert {each.attributes for each in found} == {APPEND_TIME | codec}
        assert {each.timestamp for each in found} == {NOW}
        assert {each.attributes for each in by_hand(down(room, bytes(batch), 0)[0])} == {codec}


def test_headers_are_left_behind(room: Room):
    batch = build_batch([Record(0, NOW, b"k", b"v", (("name", b"content"),))])

    assert down(room, batch, 1)[0] == message(b"v", b"k", timestamp=NOW)


def test_plain_messages_begin_at_the_offset_and_end_in_the_room(room: Room):
    """RecordsUtil: records below the fetch offset are not converted; wrappers stay whole."""
    records = [Record(at, NOW, None, b"%03d" % at) for at in range(100)]
    size = len(message(b"000"))
    batch = build_batch(records, base_offset=0)

    found, next_offset = down(room, batch, 1, from_offset=40, room=10 * size + 5)

    assert [each.offset for each in by_hand(found)] == list(range(40, 50))
    assert next_offset == 50
    one, next_offset = down(room, batch, 1, from_offset=40, room=1)
    assert ([each.offset for each in by_hand(one)], next_offset) == ([40], 41)
    whole, next_offset = down(room, build_batch(records, codec=2), 1, from_offset=40, room=1)
    assert ([each.offset for each in messages(whole)], next_offset) == (list(range(100)), 100)


def test_nothing_comes_of_markers_and_of_empty_batches(room: Room):
    marker = build_marker(
        Outcome.COMMIT,
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=NOW,
        base_offset=9,
    )
    empty = bytearray(build_batch([Record(0, NOW, b"k", b"v")], codec=4)[:61])
    pack_into(">i", empty, 8, 49)
    pack_into(">i", empty, 57, 0)

    assert down(room, marker, 1) == (b"", 10)
    assert down(room, bytes(empty), 0) == (b"", 1)


def test_zstd_cannot_be_expressed_but_may_be_replaced(room: Room):
    """KIP-110: UNSUPPORTED_COMPRESSION_TYPE; entries of other protocols get another codec."""
    batch = build_batch(plain_records(3), codec=4)

    with pytest.raises(UnsupportedCompression):
        down(room, batch, 1)
    found, _ = down(room, batch, 1, zstd_as=Codec.GZIP)

    assert [each.value for each in messages(found)] == [each.value for each in plain_records(3)]


# ---- there and back


@given(records=record_lists(), codec=st.sampled_from(OLD_CODECS), magic=st.sampled_from(MAGICS))
def test_down_and_up_again_keeps_keys_values_and_times(
    records: list[Record], codec: int, magic: int
):
    batch = build_batch(records, codec=codec)

    for room in (INSTALLED, PURE):
        again = up(room, down(room, batch, magic)[0])
        assert contents(again) == [
            (each.timestamp if magic else -1, each.key, each.value) for each in records
        ]
        assert read_header(again).codec == codec


@given(data=st.data(), fix=st.booleans(), codec=st.sampled_from((0, 1, 3)))
def test_nothing_but_entry_errors_comes_of_any_bytes_and_twins_agree(
    data: st.DataObject, fix: bool, codec: int
):
    """Random bytes raise `EntryError` or convert; both versions give the same result."""
    magic = data.draw(st.sampled_from(MAGICS))
    seed = bytearray(down(INSTALLED, build_batch(plain_records(3), codec=codec), magic)[0])
    for at, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(seed) - 1), st.integers(0, 255)), max_size=4)
    ):
        seed[at] = value
    cut = data.draw(st.integers(0, len(seed)))
    sent = bytes(seed[: len(seed) - cut if cut % 3 == 0 else None])
    if fix:
        sent = with_checksums(sent)

    assert verdict(INSTALLED, sent) == verdict(PURE, sent)


@given(sent=st.binary(max_size=100), key=maybe_octets)
def test_twins_agree_on_any_bytes(sent: bytes, key: bytes | None):
    for each in (sent, with_checksums(bytes(8) + pack(">i", len(sent)) + sent), message(sent, key)):
        assert verdict(INSTALLED, each) == verdict(PURE, each)


def verdict(room: Room, sent: bytes) -> object:
    try:
        return room.kafka_legacy.upgrade(sent, size_max=10_000, limit=100_000)
    except EntryError as error:
        return type(error), str(error)


def with_checksums(sent: bytes) -> bytes:
    """Return a set with right checksums over any content, as far as its sizes are valid."""
    fixed, at = bytearray(sent), 0
    while at + 16 <= len(fixed):
        size = int.from_bytes(fixed[at + 8 : at + 12], "big")
        pack_into(">I", fixed, at + 12, crc32(fixed[at + 16 : at + 12 + size]))
        at += 12 + size
    return bytes(fixed)
