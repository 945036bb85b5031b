"""The view that has of each key the last message only, of stored Kafka batches."""

from __future__ import annotations

import pytest

from trilogue.broker.errors import TooManyPositions
from trilogue.broker.topics import compacted_view as compacted
from trilogue.broker.topics.compacted_view import (
    CompactedView,
    CompactedViewBuilder,
    compacted_horizons,
)
from trilogue.entry.kafka.record_batch import BatchBuilder


def entry(base: int, *records: tuple[bytes | None, bytes | None]) -> memoryview:
    builder = BatchBuilder(base_offset=base)
    for key, value in records:
        builder.append(key, value, timestamp=5)
    return memoryview(builder.build())


def removed(*entries: memoryview, start: int = 0, horizon: int = 100) -> list[tuple[int, int]]:
    builder = CompactedViewBuilder(start, horizon)
    for each in entries:
        builder.add(each)
    return list(builder.view().removed())


def test_earlier_messages_of_a_key_are_passed_over():
    first = entry(0, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))

    assert removed(first, entry(3, (b"a", b"3")), horizon=4) == [(0, 1), (2, 3)]


def test_tombstones_and_keyless_messages_are_passed_over_but_the_very_last():
    entries = entry(0, (b"a", b"1"), (None, b"x"), (b"a", None)), entry(3, (b"b", b"1"))

    assert removed(*entries, horizon=4) == [(0, 3)]
    assert removed(entries[0], horizon=3) == [(0, 2)]


def test_entries_above_the_horizon_are_not_compacted():
    assert removed(entry(0, (b"a", b"1")), entry(1, (b"a", b"2")), horizon=1) == []


def test_a_view_without_messages_is_empty():
    assert removed(horizon=0) == []
    assert list(CompactedView(5, iter([]), 3).removed()) == [(3, 5)]


def test_entries_with_an_unknown_codec_stay_whole():
    foreign = bytearray(entry(0, (b"a", b"1"), (b"a", b"2")))
    foreign[21:23] = (3 << 8).to_bytes(2, "big")

    assert removed(memoryview(bytes(foreign)), entry(2, (b"b", b"1")), horizon=3) == []


def test_keys_are_bounded(monkeypatch):
    monkeypatch.setattr(compacted, "KEYS_MAX", 2)

    with pytest.raises(TooManyPositions):
        removed(entry(0, (b"a", b"1"), (b"b", b"1"), (b"c", b"1")))
    monkeypatch.setattr(compacted, "KEY_BYTES_MAX", 3)
    with pytest.raises(TooManyPositions):
        removed(entry(0, (b"aa", b"1"), (b"bb", b"1")))


def test_horizons_stand_at_the_topic():
    assert compacted_horizons({}) == {}
    assert compacted_horizons({compacted.COMPACTED: '{"0": 5, "12": 7}'}) == {0: 5, 12: 7}
