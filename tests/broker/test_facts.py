from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilogue.broker.facts import (
    CursorMove,
    CursorMoves,
    CursorRemoval,
    FactKind,
    ProducerMark,
    Protocol,
    WrittenBatch,
    cursor_key,
    decode_mark,
    decode_moves,
    decode_removal,
    encode_mark,
    encode_moves,
    encode_removal,
    producer_key,
)
from trilogue.log.errors import CorruptLog

int16, int32, int64 = (st.integers(-(2 ** (n - 1)), 2 ** (n - 1) - 1) for n in (16, 32, 64))
uint64 = st.integers(0, 2**64 - 1)
text = st.text(max_size=40)

moves = st.builds(
    CursorMoves,
    protocol=st.sampled_from(Protocol),
    name=text,
    committed_ms=int64,
    moves=st.lists(st.builds(CursorMove, uint64, int64, int32, text), max_size=5),
    retention_ms=int64,
)
removals = st.builds(
    CursorRemoval,
    protocol=st.sampled_from(Protocol),
    name=text,
    partition_ids=st.none() | st.lists(uint64, max_size=5),
)
marks = st.builds(
    ProducerMark,
    partition_id=uint64,
    producer_id=int64,
    epoch=int16,
    active_ms=int64,
    written=uint64,
    batches=st.lists(st.builds(WrittenBatch, int32, int32, int64, int64), max_size=5).map(tuple),
)

MOVES = CursorMoves(Protocol.PULSAR, "né", 5, [CursorMove(1, 2, 3, "m"), CursorMove(4, 5)])
KEPT_MOVES = MOVES._replace(retention_ms=7)
GONE = CursorRemoval(Protocol.KAFKA, "né", [1, 4])
ALL_GONE = CursorRemoval(Protocol.KAFKA, "né", None)
MARK = ProducerMark(1, 2, 3, 4, 5, (WrittenBatch(6, 7, 8, 9),))


def test_a_cursor_move_has_these_bytes():
    payload = encode_moves(MOVES)

    assert payload.hex(" ") == (
        "01 01 00 00 00 00 00 00 00 05 00 03 6e c3 a9 00 00 00 02"  # version, protocol, time, name
        " 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 02 00 00 00 03 00 01 6d"
        " 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 05 ff ff ff ff 00 00"
    )


def test_cursor_move_with_retention_has_these_bytes():
    assert (
        encode_moves(KEPT_MOVES)
        .hex(" ")
        .startswith(
            "02 01 00 00 00 00 00 00 00 05 00 00 00 00 00 00 00 07 00 03 6e c3 a9 00 00 00 02 00"
        )
    )


def test_a_removal_of_positions_has_these_bytes():
    assert encode_removal(GONE).hex(" ") == (
        "01 00 00 03 6e c3 a9 00 00 00 00 02"  # version, protocol, name, some, count
        " 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 04"
    )
    assert encode_removal(ALL_GONE).hex(" ") == "01 00 00 03 6e c3 a9 01 00 00 00 00"


def test_a_producer_mark_has_these_bytes():
    payload = encode_mark(MARK)

    assert payload.hex(" ") == (
        "01 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 02 00 03"  # version, partition, id, epoch
        " 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 05 01"  # active, written, count
        " 00 00 00 06 00 00 00 07 00 00 00 00 00 00 00 08 00 00 00 00 00 00 00 09"
    )


def test_numbers_on_disk_stay():
    assert {kind.name: kind.value for kind in FactKind} == {
        "CURSOR_MOVE": 1,
        "PRODUCER_MARK": 2,
        "SUBSCRIPTION_CREATED": 3,
        "SUBSCRIPTION_DELETED": 4,
        "SUBSCRIPTION_ACKED": 5,
        "SUBSCRIPTION_MOVED": 6,
        "SUBSCRIPTION_PROPERTIES": 7,
        "CURSORS_REMOVED": 8,
        "GROUP_SAVED": 9,
        "GROUP_DELETED": 10,
        "TRANSACTION_SAVED": 11,
        "TRANSACTION_GREW": 12,
        "TRANSACTION_OFFSETS": 13,
        "TRANSACTION_FORGOTTEN": 14,
        "TRANSACTION_ACKED": 15,
        "BATCH_COMMITTED": 16,
        "GROUP_MEMBERS": 17,
        "PENDING_OFFSETS": 18,
        "PENDING_OFFSETS_ENDED": 19,
        "PENDING_ACKS": 20,
        "PENDING_ACKS_ENDED": 21,
        "SHARE_STARTED": 24,
        "SHARE_ACKED": 25,
        "SHARE_DELETED": 26,
    }
    assert {each.name: each.value for each in Protocol} == {"KAFKA": 0, "PULSAR": 1, "TUBEMQ": 2}


def test_snapshot_keys_differ_by_everything_that_names_a_row():
    assert cursor_key(Protocol.TUBEMQ, "né", 5).hex(" ") == "63 02 00 00 00 00 00 00 00 05 6e c3 a9"
    assert producer_key(1, 2).hex(" ") == "70 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 02"


@given(moves)
def test_moves_read_back(batch: CursorMoves):
    assert decode_moves(encode_moves(batch)) == batch


@given(removals)
def test_removals_read_back(gone: CursorRemoval):
    assert decode_removal(encode_removal(gone)) == gone


@given(marks)
def test_marks_read_back(mark: ProducerMark):
    assert decode_mark(encode_mark(mark)) == mark


PAYLOADS = [
    pytest.param(decode_moves, encode_moves(MOVES), id="moves"),
    pytest.param(decode_moves, encode_moves(KEPT_MOVES), id="kept-moves"),
    pytest.param(decode_removal, encode_removal(GONE), id="gone"),
    pytest.param(decode_mark, encode_mark(MARK), id="mark"),
]


@pytest.mark.parametrize(("decode", "payload"), PAYLOADS)
def test_truncated_or_overlong_fact_is_corrupt(decode, payload: bytes):
    for cut in (payload + b"\0", *(payload[:size] for size in range(len(payload)))):
        with pytest.raises(CorruptLog):
            decode(cut)


@pytest.mark.parametrize(("decode", "payload"), PAYLOADS)
def test_a_version_that_is_unknown_is_corrupt(decode, payload: bytes):
    with pytest.raises(CorruptLog, match="version 3"):
        decode(b"\3" + payload[1:])


def test_more_batches_than_are_kept_are_corrupt():
    payload = bytearray(encode_mark(MARK)) + bytes(5 * 24)
    payload[35] = 6

    with pytest.raises(CorruptLog):
        decode_mark(bytes(payload))


def test_an_unknown_protocol_and_a_broken_text_are_corrupt():
    payload = bytearray(encode_moves(MOVES))
    payload[1] = 9
    with pytest.raises(CorruptLog):
        decode_moves(bytes(payload))
    payload[1] = 1
    payload[13] = 0xFF
    with pytest.raises(CorruptLog):
        decode_moves(bytes(payload))


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(payload: bytes):
    for decode in (decode_moves, decode_removal, decode_mark):
        try:
            decode(payload)
        except CorruptLog:
            continue
