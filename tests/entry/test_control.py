"""Transaction markers, byte for byte as real brokers write them.

The vectors are the log files of Kafka 3.9.1 and 4.3.1 after the transactions of one producer.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from hypothesis import given
from hypothesis import strategies as st

from trilogue.entry.control import MARKER, Marker, Outcome, build_marker, read_marker
from trilogue.entry.entry import (
    CONTROL,
    TRANSACTIONAL,
    CorruptEntry,
    EntryError,
    InvalidEntry,
    Record,
)
from trilogue.entry.header import HEADER_SIZE
from trilogue.entry.kafka.record_batch import build_batch, check_crc, iter_records, read_header
from trilogue.entry.walk import walk_headers

VECTORS = Path(__file__).parents[1] / "vectors" / "entry"
KAFKAS = ("3.9.1", "4.3.1")


def vector(name: str) -> bytes:
    """The bytes of a hex file without its comments."""
    lines = (VECTORS / name).read_text().splitlines()
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines))


def kafkas_log(version: str) -> list[bytes]:
    """The batches of a real log, in order."""
    data = vector(f"transactions-kafka-{version}.hex")
    return [data[at : at + length] for at, length, *_ in walk_headers(data)]


def control(key: bytes | None, value: bytes | None, **flags: bool) -> bytes:
    flags = {"transactional": True, "control": True, **flags}
    return build_batch([Record(0, 5, key, value)], producer_id=1, producer_epoch=0, **flags)


@pytest.mark.parametrize("version", KAFKAS)
def test_a_real_brokers_markers_are_read(version: str):
    found = []
    for entry in kafkas_log(version):
        header = check_crc(entry)
        assert header.is_transactional
        if header.is_control:
            found.append((header.base_offset, header.producer_epoch, read_marker(entry)))

    assert found == [
        (2, 0, Marker(Outcome.COMMIT, 0)),
        (5, 0, Marker(Outcome.ABORT, 0)),
        (8, 0, Marker(Outcome.COMMIT, 0)),
        (10, 1, Marker(Outcome.ABORT, 0)),  # the broker raised the epoch to fence the producer
    ]


@pytest.mark.parametrize("version", KAFKAS)
def test_built_marker_equals_that_of_kafka_byte_for_byte(version: str):
    markers = [entry for entry in kafkas_log(version) if read_header(entry).is_control]
    assert len(markers) == 4
    for theirs in markers:
        header = read_header(theirs)
        marker = read_marker(theirs)
        assert marker is not None

        ours = build_marker(
            marker.outcome,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=header.max_timestamp,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
        )

        assert ours == theirs


@given(
    outcome=st.sampled_from(Outcome),
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
    coordinator_epoch=st.integers(0, 2**31 - 1),
    timestamp_ms=st.integers(0, 2**42),
)
def test_marker_contains_producer_and_outcome_of_its_transaction(
    outcome: Outcome,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
):
    entry = build_marker(
        outcome,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=timestamp_ms,
    )

    header = check_crc(entry)
    assert header.attributes == MARKER
    assert (header.producer_id, header.producer_epoch) == (producer_id, producer_epoch)
    assert (header.span, header.record_count, header.base_sequence) == (1, 1, -1)
    assert header.base_timestamp == header.max_timestamp == timestamp_ms
    assert read_marker(entry) == Marker(outcome, coordinator_epoch)
    (record,) = iter_records(entry)
    assert record.key is not None
    assert ControlRecord.parse(record.key) == (ABORT_MARKER, COMMIT_MARKER)[outcome]


def test_a_control_batch_of_another_type_ends_nothing():
    assert read_marker(control(b"\x00\x00\x00\x02", b"\x00\x00\x00\x00\x00\x00")) is None
    assert read_marker(control(b"\x00\x01\x7f\xff", None)) is None


def test_later_marker_versions_may_have_more_fields():
    entry = control(b"\x00\x01\x00\x01more", b"\x00\x07\x00\x00\x00\x09more")

    assert read_marker(entry) == Marker(Outcome.COMMIT, 9)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"\x00\x00\x00", b"\x00\x00\x00\x00\x00\x00"),
        (b"\xff\xff\x00\x00", b"\x00\x00\x00\x00\x00\x00"),
        (b"\x00\x00\x00\x00", None),
        (b"\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00"),
        (b"\x00\x00\x00\x00", b"\xff\xff\x00\x00\x00\x00"),
    ],
)
def test_a_marker_that_is_not_whole_is_corrupt(key: bytes | None, value: bytes | None):
    with pytest.raises(CorruptEntry):
        read_marker(control(key, value))


@pytest.mark.parametrize("flags", [{"control": False}, {"transactional": False}])
def test_invalid_marker_raises_invalid_entry(flags: dict[str, bool]):
    with pytest.raises(InvalidEntry):
        read_marker(control(b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00", **flags))


@given(body=st.binary(max_size=40), count=st.integers(0, 3))
def test_nonsense_is_an_entry_error_or_none(body: bytes, count: int):
    entry = bytearray(control(b"\x00\x00\x00\x01", b"\x00" * 6)[:HEADER_SIZE] + body)
    entry[8:12] = (HEADER_SIZE - 12 + len(body)).to_bytes(4, "big")
    entry[57:61] = count.to_bytes(4, "big")
    assert read_header(entry).attributes & (CONTROL | TRANSACTIONAL) == MARKER

    try:
        found = read_marker(entry)
    except EntryError:
        return
    assert found is None or isinstance(found, Marker)
