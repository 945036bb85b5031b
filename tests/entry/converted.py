"""Builds, stores, converts and reads entries for the tests of conversion."""

from __future__ import annotations

from base64 import b64encode

from hypothesis import strategies as st

from trilogue.entry.conversion import convert
from trilogue.entry.conversion.convert import Section, SkippedRange, TubeMessage
from trilogue.entry.entry import Codec, EntryHeader, Record
from trilogue.entry.kafka.record_batch import build_batch, iter_records, read_header, set_base
from trilogue.entry.pulsar.pulsar_batch import PulsarMessage, build_entry, walk_messages
from trilogue.entry.tubemq.tubemq_blob import COMPUTE, join_data
from trilogue.entry.tubemq.tubemq_blob import build_entry as build_tube_entry
from trilogue.wire.pulsar.pulsar_pb2 import MessageMetadata

NOW_MS = 1_700_000_000_000
LIMIT = 5 << 20
CODECS = list(zip(Codec, (0, 2, 4, 1, 3), strict=True))  # Kafka's, and Pulsar's number for it


def stored(section: bytes, base_offset: int = 0, epoch: int = 7) -> tuple[bytes, EntryHeader]:
    """Return the stored entry of a section that a producer sent."""
    entry, _, _ = build_entry(memoryview(section), broker_ms=NOW_MS)
    placed = bytearray(entry)
    set_base(placed, base_offset, epoch)
    return bytes(placed), read_header(placed)


def to_pulsar(batch: bytes, limit: int = LIMIT) -> list[Section | SkippedRange]:
    return convert.pulsar_sections(batch, read_header(batch), limit=limit)


def one_section(batch: bytes) -> Section:
    (section,) = to_pulsar(batch)
    assert isinstance(section, Section)
    return section


def read_section(section: Section) -> tuple[MessageMetadata, list[PulsarMessage]]:
    """Read a section as a client does, its metadata by the protobuf runtime."""
    entry, header = stored(section.data, section.offset)
    size = int.from_bytes(section.data[6:10], "big")
    metadata = MessageMetadata.FromString(section.data[10 : 10 + size])
    return metadata, list(walk_messages(entry, header))


def back_to_kafka(sections: list[Section | SkippedRange]) -> list[Record]:
    found: list[Record] = []
    for section in sections:
        assert isinstance(section, Section), section
        found += iter_records(convert.kafka_batch(*stored(section.data, section.offset)).data)
    return found


def metadata(**fields: object) -> MessageMetadata:
    return MessageMetadata(
        **{"producer_name": "p", "sequence_id": 3, "publish_time": NOW_MS, **fields}
    )


def message(value: bytes | None = b"v", **fields: object) -> PulsarMessage:
    blank = PulsarMessage(0, value, None, False, False, None, 0, -1, ())
    return blank._replace(**fields)


def tube_entry(
    body: bytes,
    attributes: str = "",
    *,
    message_type: str | None = None,
    message_time: str | None = None,
    base_offset: int = 0,
) -> tuple[bytes, EntryHeader]:
    """Return the stored entry of a message that a TubeMQ producer sent."""
    data, flag = join_data(attributes, body)
    return tube_stored(data, flag, message_type, message_time, base_offset=base_offset)


def tube_stored(
    data: bytes,
    flag: int,
    message_type: str | None = None,
    message_time: str | None = None,
    *,
    base_offset: int = 0,
) -> tuple[bytes, EntryHeader]:
    entry, _ = build_tube_entry(data, flag, COMPUTE, 0, message_type, message_time, NOW_MS)
    placed = bytearray(entry)
    set_base(placed, base_offset, 7)
    return bytes(placed), read_header(placed)


def tubed(entry: bytes) -> list[TubeMessage]:
    """Return all results that a TubeMQ client gets for an entry."""
    header = read_header(entry)
    found: list[TubeMessage] = []
    offset = header.base_offset
    while offset <= header.last_offset:
        for each in convert.tubemq_messages(entry, header, offset=offset):
            if isinstance(each, TubeMessage):
                found.append(each)
                offset = each.offset + 1
            else:
                assert each.reason is None, each
                offset = each.offset + each.span
    return found


def sent_again(found: list[TubeMessage]) -> list[tuple[bytes, EntryHeader]]:
    """Store messages as a TubeMQ client has them, each as one that it sends."""
    return [
        tube_stored(
            each.data,
            each.flag,
            each.message_type,
            None if each.message_time < 0 else f"{each.message_time:012d}",
            base_offset=each.offset,
        )
        for each in found
    ]


def records_of_entry(entry: bytes, header: EntryHeader) -> list[Record]:
    found = convert.kafka_batch(entry, header)
    assert found.skipped is None, found.skipped
    return list(iter_records(found.data))


def records_of(section: bytes, base_offset: int = 0) -> list[Record]:
    return records_of_entry(*stored(section, base_offset))


names = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(
    ["trilogue.header.0.text.a", "trilogue.header.0.null.", "trilogue.timestamp", "trilogue.x"]
)
octets = st.binary(max_size=20) | st.text(st.characters(codec="utf-8"), max_size=8).map(str.encode)
times = st.integers(-3, 3) | st.integers(-(2**61), 2**61) | st.just(NOW_MS)


@st.composite
def kafka_batches(draw: st.DrawFn) -> tuple[bytes, list[Record]]:
    offset = draw(st.integers(0, 2**40))
    base_offset = offset
    records = []
    for _ in range(draw(st.integers(1, 6))):
        headers = draw(st.lists(st.tuples(names, st.none() | octets), max_size=4))
        fields = (draw(times), draw(st.none() | octets), draw(st.none() | octets))
        records.append(Record(offset, *fields, tuple(headers)))
        offset += draw(st.integers(1, 3))
    codec = draw(st.sampled_from(list(Codec)))
    base_offset = max(0, base_offset - draw(st.integers(0, 2)))
    return build_batch(records, codec=codec, base_offset=base_offset), records


keys = st.none() | st.tuples(st.text(st.characters(codec="utf-8"), max_size=8), st.booleans())


@st.composite
def pulsar_messages(draw: st.DrawFn) -> PulsarMessage:
    key = draw(keys | st.binary(max_size=9).map(lambda raw: (b64encode(raw).decode(), True)))
    properties = st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=8).filter(
            lambda name: not name.startswith("trilogue.")
        ),
        st.text(st.characters(codec="utf-8"), max_size=8),
        max_size=3,
    )
    return message(
        draw(st.none() | octets),
        partition_key=None if key is None else key[0],
        key_is_b64=key is not None and key[1],
        null_key=draw(st.booleans()),
        ordering_key=draw(st.none() | octets),
        event_time=draw(st.just(0) | st.integers(0, 2**63 - 1)),
        properties=tuple(draw(properties).items()),
    )
