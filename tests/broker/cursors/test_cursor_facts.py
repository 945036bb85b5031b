"""The bytes of facts about durable subscriptions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilogue.broker.cursors.cursor_facts import (
    AckFact,
    decode_acked,
    decode_created,
    decode_moved,
    decode_properties,
    decode_removal,
    decode_snapshot,
    encode_acked,
    encode_created,
    encode_moved,
    encode_properties,
    encode_removal,
    encode_snapshot,
    snapshot_key,
    subscription_key,
)
from trilogue.broker.cursors.position import Cursor
from trilogue.log.errors import CorruptLog

KEY = subscription_key(5, "né")
HEAD = "01 00 00 00 00 00 00 00 05 00 03 6e c3 a9 "
TEXTS = {"a": "", "é": "1"}
CREATED = encode_created(Cursor(KEY, 6, 7, TEXTS))
ACKED = encode_acked(KEY, -1, [(1, 2), (3, 5)])
MOVED = encode_moved(KEY, 9)
PROPERTIES = encode_properties(KEY, TEXTS)
GONE = encode_removal(KEY)


def state() -> bytes:
    cursor = Cursor(KEY, 6, 7, TEXTS)
    cursor.ack(8, 9)
    return encode_snapshot(cursor, 10)


ALL: list[tuple[Callable[[bytes], object], bytes]] = [
    (decode_created, CREATED),
    (decode_acked, ACKED),
    (decode_moved, MOVED),
    (decode_properties, PROPERTIES),
    (decode_removal, GONE),
    (decode_snapshot, state()),
]


def test_facts_have_these_bytes():
    texts = "00 00 00 02 00 00 00 01 61 00 00 00 00 00 00 00 02 c3 a9 00 00 00 01 31"
    numbers = "00 00 00 00 00 00 00 06 00 00 00 00 00 00 00 07 "
    assert CREATED.hex(" ") == HEAD + numbers + texts
    assert GONE.hex(" ") == HEAD.strip()
    assert ACKED.hex(" ") == (
        HEAD + "ff ff ff ff ff ff ff ff 00 00 00 02"
        " 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 02"
        " 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 05"
    )
    assert MOVED.hex(" ") == HEAD + "00 00 00 00 00 00 00 09"
    assert PROPERTIES.hex(" ") == HEAD + texts
    assert state().hex(" ") == CREATED.hex(" ") + (
        " 00 00 00 01 00 00 00 00 00 00 00 08 00 00 00 00 00 00 00 09"
    )
    assert snapshot_key(KEY).hex(" ") == "73 00 00 00 00 00 00 00 05 6e c3 a9"


def test_facts_read_back():
    made = decode_created(CREATED)
    assert (made.key, made.mark, made.created_ms, made.properties) == (KEY, 6, 7, TEXTS)
    assert decode_acked(ACKED) == AckFact(KEY, -1, [(1, 2), (3, 5)])
    assert decode_moved(MOVED) == (KEY, 9)
    assert decode_properties(PROPERTIES) == (KEY, TEXTS)
    assert decode_removal(GONE) == KEY
    kept = decode_snapshot(state())
    assert (kept.key, kept.mark, kept.ranges()) == (KEY, 6, [(8, 9)])


@pytest.mark.parametrize(("decode", "payload"), ALL)
def test_truncated_or_overlong_cursor_fact_is_corrupt(decode, payload: bytes):
    for wrong in (
        payload + b"\0",
        b"\2" + payload[1:],
        *(payload[:at] for at in range(len(payload))),
    ):
        with pytest.raises(CorruptLog):
            decode(wrong)


def test_ranges_that_cannot_be_are_corrupt():
    with pytest.raises(CorruptLog):
        decode_snapshot(state()[:-1] + b"\1")


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(payload: bytes):
    for decode, _ in ALL:
        for content in (payload, b"\1" + payload):
            try:
                decode(content)
            except CorruptLog:
                continue
