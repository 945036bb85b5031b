"""Entries of Pulsar producers: stored bytes, refused sections, reading of the messages."""

from __future__ import annotations

from struct import pack, unpack_from

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pure import load_pure
from tests.wire.pulsar.messages import encoded
from trilogue.entry.checksum import crc32c
from trilogue.entry.entry import (
    CorruptEntry,
    EntryError,
    EntryHeader,
    EntryTooLarge,
    Format,
    InvalidEntry,
)
from trilogue.entry.kafka.record_batch import check_crc, set_base
from trilogue.entry.pulsar import pulsar_batch
from trilogue.entry.pulsar.compression import PulsarCodec
from trilogue.entry.pulsar.pulsar_batch import (
    ChunkedEntry,
    EncryptedEntry,
    Flag,
    PulsarMessage,
    Stamp,
    broker_time,
    build_batch,
    build_entry,
    build_section,
    build_single,
    producer_key,
    read_metadata,
    read_stamp,
    sticky_key,
    walk_messages,
)
from trilogue.wire.pulsar.frame import encode_broker_entry
from trilogue.wire.pulsar.pulsar_pb2 import MessageMetadata

_FIELDS = {"trilogue__wire__fields": load_pure("trilogue.wire.fields")}
PURE = load_pure("trilogue.entry.pulsar.pulsar_entry", **_FIELDS)
TIME, NOW = 1_700_000_000_123, 1_700_000_000_999
CODECS = tuple(PulsarCodec)
PROPERTIES = (("a", "1"), ("b", ""), ("a", "2"))


def metadata(**more: object) -> MessageMetadata:
    return MessageMetadata(
        **{"producer_name": "pr", "sequence_id": 7, "publish_time": TIME} | more  # type: ignore[arg-type]
    )


def message(index: int = 0, value: bytes | None = b"v", **more: object) -> PulsarMessage:
    plain = PulsarMessage(index, value, None, False, False, None, 0, -1, ())
    return plain._replace(**more)


def section(payload: bytes = b"payload", **more: object) -> bytes:
    return build_section(metadata(**more), payload)


def entry_of(octets: bytes, **more: object):
    """Build an entry by both versions of the module, which give the same result."""
    built = [outcome(twin, octets, **more) for twin in (build_entry, PURE.build_entry)]
    assert built[0] == built[1]
    if isinstance(built[0][0], type):
        raise built[0][0](built[0][1])
    return built[0]


def outcome(build, octets: bytes, **more: object):
    try:
        entry, header, stamp = build(memoryview(octets), broker_ms=NOW, **more)
    except EntryError as error:
        return type(error), str(error)
    return entry, EntryHeader(*header), Stamp(*stamp)


def batch(count: int = 3, codec: int = 0, **more: object) -> bytes:
    messages = [message(i, b"value %d" % i) for i in range(count)]
    return build_batch(messages, metadata(**more), codec=codec)


# ---- what is kept


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_section_is_kept_byte_for_byte(kind):
    sent = section(replicated_from="far", schema_version=b"\0" * 8, uncompressed_size=7)

    entry, header, _ = build_entry(kind(sent), broker_ms=NOW)

    assert sent == bytes(entry[101:])
    assert header == check_crc(entry)
    assert header.format is Format.PULSAR
    assert (header.span, header.record_count, header.length) == (1, 1, len(entry))
    assert (header.base_timestamp, header.max_timestamp) == (TIME, TIME)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert header.attributes == 0x100


def test_a_batch_covers_an_offset_for_each_message():
    entry, header, stamp = entry_of(batch(5))
    set_base(entry, 1000, 3)

    assert (header.span, header.record_count) == (5, 5)
    assert check_crc(entry).last_offset == 1004
    assert stamp.flags == Flag.BATCH


def test_presence_of_num_messages_marks_a_batch():
    """An entry of one message may be a batch."""
    one = batch(1)
    entry, header, stamp = entry_of(one)

    assert stamp.flags == Flag.BATCH
    assert [each.value for each in walk_messages(entry, header)] == [b"value 0"]
    entry, header, stamp = entry_of(section(b"value 0"))
    assert stamp.flags == 0
    assert [each.value for each in walk_messages(entry, header)] == [b"value 0"]


def test_times_are_publish_times_and_the_brokers():
    entry, header, _ = entry_of(section(event_time=5))

    assert (header.base_timestamp, header.max_timestamp, broker_time(entry)) == (TIME, TIME, NOW)


def test_the_fixed_block_is_read_without_protobuf():
    entry, _, stamp = entry_of(section(sequence_id=2**64 - 1, partition_key="k"))

    assert stamp == Stamp(-1, -1, producer_key("pr"), Flag.KEYED) == read_stamp(entry)
    assert bytes(entry[61:65]) == bytes((1, Flag.KEYED, 0, 0))
    assert unpack_from(">I", entry, 65) == unpack_from(">I", entry, 107)


def test_a_producers_key_never_changes():
    """It is stored on disk: deduplication finds a producer by it after any upgrade."""
    assert producer_key("standalone-0-1") == 0x6A14D5CE679F1900
    assert producer_key("a") != producer_key("b")


@pytest.mark.parametrize(
    ("sequence", "highest", "expected"),
    [(5, None, (5, 5)), (5, 0, (5, 5)), (5, 9, (5, 9)), (5, 5, (5, 5)), (0, None, (0, 0))],
)
def test_highest_sequence_id_defaults_to_the_sequence_id(sequence, highest, expected):
    more = {} if highest is None else {"highest_sequence_id": highest}

    assert expected == entry_of(section(sequence_id=sequence, **more))[2][:2]


def test_a_sequence_id_above_the_highest_is_refused():
    with pytest.raises(InvalidEntry, match="sequence"):
        entry_of(section(sequence_id=6, highest_sequence_id=5))


def test_a_chunk_counts_as_a_message_only_with_its_last():
    chunked = {"uuid": "pr-7", "num_chunks_from_msg": 3, "total_chunk_msg_size": 21}
    counts = []
    for chunk_id in range(3):
        entry, header, stamp = entry_of(section(chunk_id=chunk_id, **chunked))
        counts.append((header.span, header.record_count))
        assert stamp.flags == Flag.CHUNK
        with pytest.raises(ChunkedEntry, match=f"chunk {chunk_id} of 3"):
            next(walk_messages(entry, header))

    assert counts == [(1, 0), (1, 0), (1, 1)]


def test_an_encrypted_payload_is_kept_and_never_opened():
    keys = [{"key": "k", "value": b"wrapped"}]
    sent = section(encryption_keys=keys, encryption_algo="AES", encryption_param=b"iv")
    entry, header, stamp = entry_of(sent)

    assert sent == bytes(entry[101:])
    assert stamp.flags == Flag.ENCRYPTED
    with pytest.raises(EncryptedEntry):
        next(walk_messages(entry, header))


def test_header_of_a_transactional_message_is_transactional():
    entry, header, _ = entry_of(section(txnid_least_bits=0, txnid_most_bits=0))

    assert header.is_transactional
    for one in ("txnid_least_bits", "txnid_most_bits"):
        assert entry_of(section(**{one: 0}))[1].is_transactional
    assert (read_metadata(entry).txn_least, read_metadata(entry).txn_most) == (0, 0)


def test_delivery_later_is_seen_in_the_flags():
    assert entry_of(section(deliver_at_time=TIME))[2].flags == Flag.DELAYED
    assert entry_of(section(deliver_at_time=0))[2].flags == 0


@pytest.mark.parametrize("size", [0, 100, 40_000])
def test_entry_checksums_are_right_at_any_size(size: int):
    for sent in (section(bytes(size)), section(bytes(size))[6:]):
        entry, header, _ = entry_of(sent)
        assert check_crc(entry) == header


# ---- clients older than the checksum, and what may stand in front


def test_a_section_without_a_checksum_gets_one_of_ours():
    """The magic number and the checksum are optional, and left out together."""
    sent = section()

    entry, _, stamp = entry_of(sent[6:])

    assert sent == bytes(entry[101:])
    assert stamp.flags == Flag.OUR_CHECKSUM == read_stamp(entry).flags


def test_broker_entry_metadata_in_front_is_not_kept():
    """Only brokers write it, and the checksum does not cover it."""
    sent = section()

    for rest in (sent, sent[6:]):
        entry, _, _ = entry_of(encode_broker_entry(1, 2) + rest)
        assert sent == bytes(entry[101:])


# ---- what is refused


def test_a_wrong_checksum_is_corrupt():
    sent = bytearray(section())
    for position in range(2, len(sent)):
        damaged = bytearray(sent)
        damaged[position] ^= 1
        with pytest.raises(CorruptEntry):
            entry_of(bytes(damaged))


def test_every_cut_is_refused():
    whole = encode_broker_entry(1, 2) + section()
    for octets in (whole, section(), section()[6:]):
        for size in range(len(octets)):
            if octets[:size] == b"" or size < len(octets) - len(b"payload"):
                with pytest.raises(EntryError):
                    entry_of(octets[:size])


REFUSED = {
    "publish time": {"publish_time": 2**63},
    "a marker": {"marker_type": 21},
    "chunk beyond": {"num_chunks_from_msg": 2, "chunk_id": 2},
    "chunk before": {"num_chunks_from_msg": 2, "chunk_id": -1},
    "chunk without number": {"num_chunks_from_msg": 2},
    "chunk of a batch": {"num_chunks_from_msg": 2, "chunk_id": 0, "num_messages_in_batch": 2},
    "no messages": {"num_messages_in_batch": 0},
    "negative messages": {"num_messages_in_batch": -1},
    "more than fit": {"num_messages_in_batch": 4},
    "too many": {"num_messages_in_batch": 2**31 - 1},
    "too many compressed": {
        "num_messages_in_batch": 1_000_001, "compression": 1, "uncompressed_size": 2**32 - 1},
    "more than fit, compressed": {
        "num_messages_in_batch": 9, "compression": 1, "uncompressed_size": 20},
    "compressed to nothing": {"num_messages_in_batch": 2, "compression": 1},
}  # fmt: skip


@pytest.mark.parametrize("fields", REFUSED.values(), ids=REFUSED)
def test_invalid_metadata_is_refused(fields):
    with pytest.raises(InvalidEntry):
        entry_of(section(b"fourteen bytes", **fields))


def test_the_number_of_messages_has_a_limit():
    assert entry_of(batch(4), message_count_limit=4)[1].span == 4
    with pytest.raises(InvalidEntry):
        entry_of(batch(5), message_count_limit=4)


def test_metadata_that_is_no_protobuf_is_refused():
    for octets in (
        b"\xff" * 20,
        b"",
        MessageMetadata(producer_name="p").SerializePartialToString(),
    ):
        with pytest.raises(InvalidEntry):
            entry_of(pack(">I", len(octets)) + octets)


# ---- reading messages


@pytest.mark.parametrize("codec", CODECS)
def test_messages_of_a_batch_are_read_with_all_they_have(codec: int):
    messages = [
        message(0, b"plain", sequence_id=3),
        message(1, None, partition_key="tombstone", event_time=5),
        message(3, b"", partition_key="AP8=", key_is_b64=True, ordering_key=b"\0o"),
        message(4, b"x" * 5000, properties=PROPERTIES, null_key=True, event_time=2**40),
    ]
    built = build_batch([*messages[:2], None, *messages[2:]], metadata(), codec=codec)

    entry, header, _ = entry_of(built)

    assert messages == list(walk_messages(entry, header))
    assert [each.key for each in messages] == [None, b"tombstone", b"\0\xff", None]
    assert header.span == 5


@pytest.mark.parametrize("codec", CODECS)
def test_a_single_message_is_read_with_all_it_has(codec: int):
    whole = message(
        value=b"x" * 5000, partition_key="AP8=", key_is_b64=True, ordering_key=b"\0o",
        event_time=5, properties=PROPERTIES, sequence_id=7,
    )  # fmt: skip

    for each in (whole, whole._replace(value=None), whole._replace(value=b"")):
        entry, header, _ = entry_of(build_single(each, metadata(), codec=codec))
        assert [each] == list(walk_messages(entry, header))


def test_uncompressed_size_without_compression_is_ignored():
    """Java sets the uncompressed size also without compression."""
    entry, header, _ = entry_of(section(uncompressed_size=99))

    assert [each.value for each in walk_messages(entry, header)] == [b"payload"]


@pytest.mark.parametrize("codec", CODECS)
def test_no_more_is_decompressed_than_the_reader_allows(codec: int):
    entry, header, _ = entry_of(batch(100, codec))

    with pytest.raises(EntryTooLarge):
        next(walk_messages(entry, header, 100))


def test_a_batch_that_does_not_end_with_its_payload_is_corrupt():
    sent = section(b"\0\0\0\2\x18\1v" * 3, num_messages_in_batch=2)
    entry, header, _ = entry_of(sent)

    with pytest.raises(CorruptEntry):
        list(walk_messages(entry, header))


def test_a_key_flagged_as_base64_that_is_none_stays_its_text():
    assert message(partition_key="no base64!", key_is_b64=True).key == b"no base64!"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"ordering_key": b"o", "partition_key": "k"}, b"o"),
        ({"partition_key": "k"}, b"k"),
        ({"partition_key": "AP8=", "partition_key_b64_encoded": True}, b"\0\xff"),
        ({}, b"pr-7"),
    ],
)
def test_sticky_keys(fields, expected: bytes):
    """The ordering key, else the partition key, else producer name and sequence id."""
    assert expected == sticky_key(entry_of(section(**fields))[0])


def test_a_batch_sticks_by_its_first_key():
    built = build_batch(
        [message(0, partition_key="k1"), message(1, partition_key="k2")], metadata()
    )

    assert sticky_key(entry_of(built)[0]) == b"k1"


# ---- any bytes


@given(octets=encoded(MessageMetadata.DESCRIPTOR), payload=st.binary(max_size=40))
@settings(max_examples=25)
def test_any_metadata_becomes_an_entry_or_is_refused(octets: bytes, payload: bytes):
    body = pack(">I", len(octets)) + octets + payload
    try:
        entry, header, stamp = entry_of(body)
    except InvalidEntry:
        return

    assert check_crc(entry) == header
    assert bytes(entry[101:]) == b"\x0e\x01" + pack(">I", crc32c(body)) + body
    assert read_stamp(entry) == stamp
    try:
        found = list(walk_messages(entry, header, 1 << 20))
    except EntryError:
        return
    assert len(found) <= header.span


@given(octets=st.binary(max_size=200))
def test_any_bytes_are_an_entry_or_an_entry_error(octets: bytes):
    for use in (
        entry_of, read_stamp, read_metadata, broker_time, sticky_key, pulsar_batch.read_properties
    ):  # fmt: skip
        try:
            use(octets)
        except EntryError:
            continue


@given(st.data())
@settings(max_examples=25)
def test_damaged_entries_are_read_or_refused(data: st.DataObject):
    entry, header, _ = entry_of(batch(3, data.draw(st.sampled_from(CODECS))))
    damaged = bytearray(entry)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(61, len(damaged) - 1))] = data.draw(st.integers(0, 255))

    try:
        found = list(walk_messages(damaged, header, 1 << 20))
    except EntryError:
        return
    assert len(found) <= 3


def test_pure_twin_is_pure():
    assert PURE.__file__.endswith(".py")
    assert PURE.Fields is _FIELDS["trilogue__wire__fields"].Fields
