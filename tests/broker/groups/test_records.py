"""What is remembered of groups, byte for byte and through restarts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.fakes import FakeLog
from trilogue.broker.facts import FactKind, SnapshotRow
from trilogue.broker.groups.group import CLASSIC, CONSUMER
from trilogue.broker.groups.records import (
    OCCUPIED,
    PROTOCOL_TYPE_BYTES_MAX,
    GroupRecord,
    GroupRecords,
    decode_kept,
    decode_removal,
    encode_kept,
    encode_removal,
)
from trilogue.log import errors as log_errors
from trilogue.log.errors import CorruptLog

RECORD = GroupRecord(CONSUMER, "né", 5)

records = st.builds(
    GroupRecord,
    st.sampled_from([CLASSIC, CONSUMER]),
    st.text(max_size=40),
    st.integers(-1, 2**63 - 1),
)


class Room:
    def __init__(self) -> None:
        self.now_ms = 100
        self.log = FakeLog()
        self.records = GroupRecords(lambda: self.now_ms)
        self.records.attach(self.log)

    def after(self, rows: list[SnapshotRow], facts: list[tuple[int, bytes]]) -> GroupRecords:
        """What a start makes of them; not yet attached to a journal."""
        found = GroupRecords(lambda: self.now_ms)
        for row in rows:
            assert row.value is not None
            found.load(row.value)
        for kind, payload in facts:
            found.replay(kind, payload)
        return found


def test_group_record_has_these_bytes():
    assert encode_kept("g", RECORD).hex(" ") == (
        "01 01 00 00 00 00 00 00 00 05 00 01 67 00 03 6e c3 a9"
    )
    assert encode_removal("g").hex(" ") == "01 00 01 67"


@given(st.text(max_size=40), records)
def test_records_read_back(name: str, record: GroupRecord):
    assert decode_kept(encode_kept(name, record)) == (name, record)
    assert decode_removal(encode_removal(name)) == name


@pytest.mark.parametrize(
    ("decode", "payload"),
    [(decode_kept, encode_kept("g", RECORD)), (decode_removal, encode_removal("g"))],
)
def test_truncated_or_overlong_group_record_is_corrupt(decode, payload: bytes):
    for cut in (payload + b"\0", b"\2" + payload[1:], *(payload[:n] for n in range(len(payload)))):
        with pytest.raises(CorruptLog):
            decode(cut)


def test_a_kind_that_is_unknown_is_corrupt():
    payload = bytearray(encode_kept("g", RECORD))
    payload[1] = 9

    with pytest.raises(CorruptLog):
        decode_kept(bytes(payload))


def test_occupied_and_empty_groups_are_journaled_once_each():
    room = Room()
    for _ in range(3):
        room.records.mark_occupied("g", CLASSIC, "consumer")
    room.records.mark_empty("g", CLASSIC, "consumer")

    assert [kind for kind, _ in room.log.facts] == [FactKind.GROUP_SAVED] * 2
    assert [decode_kept(payload)[1].empty_since_ms for _, payload in room.log.facts] == [
        OCCUPIED,
        100,
    ]


def test_facts_and_snapshots_end_where_memory_did():
    room = Room()
    room.records.mark_occupied("a", CLASSIC, "consumer")
    room.records.mark_occupied("b", CONSUMER, "consumer")
    rows = room.records.snapshot()
    reported = len(room.log.facts)
    room.records.mark_empty("a", CLASSIC, "consumer")
    room.records.forget("b")
    room.records.forget("never there")

    found = room.after(rows, room.log.facts[reported:])

    assert (found.get("a"), found.get("b")) == (GroupRecord(CLASSIC, "consumer", 100), None)
    assert sorted(found.snapshot()) == sorted(room.records.snapshot())
    assert (found.names(), len(found)) == (["a"], 1)
    assert room.records.snapshot() == []


def test_occupied_group_is_empty_since_the_start_after_a_restart():
    room = Room()
    room.records.mark_occupied("g", CLASSIC, "consumer")
    room.records.mark_empty("h", CLASSIC, "consumer")
    room.now_ms = 900

    found = room.after([], room.log.facts)
    found.attach(room.log)

    assert found.get("g") == GroupRecord(CLASSIC, "consumer", 900)
    assert found.get("h") == GroupRecord(CLASSIC, "consumer", 100)


def test_a_journal_that_takes_nothing_is_no_reason_to_refuse_a_member():
    room = Room()
    room.log.refusal = log_errors.TailFull("full")

    room.records.mark_occupied("g", CLASSIC, "consumer")

    (row,) = room.records.snapshot()
    assert row.key == b"gg"


def test_a_long_protocol_type_is_cut_at_a_character():
    room = Room()

    room.records.mark_occupied("g", CLASSIC, "x" + "é" * PROTOCOL_TYPE_BYTES_MAX)

    record = room.records.get("g")
    assert record is not None
    assert len(record.protocol_type.encode()) == PROTOCOL_TYPE_BYTES_MAX - 1
