"""The cache of conversions, and the report of messages that cannot be converted."""

from __future__ import annotations

import logging

from tests.entry.converted import NOW_MS, message, metadata, stored
from trilogue.entry.conversion.convert import Section
from trilogue.entry.entry import Record
from trilogue.entry.kafka.record_batch import build_batch, read_header
from trilogue.entry.pulsar.pulsar_batch import build_single
from trilogue.gateway.conversion_cache import ConversionCache


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def kafka(offset: int, size: int = 1000) -> tuple[bytes, object]:
    batch = build_batch([Record(offset, NOW_MS, None, bytes(size))])
    return batch, read_header(batch)


def test_it_keeps_no_more_than_its_room():
    conversions = ConversionCache(cache_bytes=5_000)

    for offset in range(10):
        conversions.for_pulsar(1, *kafka(offset), 1 << 20, keep=True)

    assert 0 < conversions.cached_bytes <= 5_000
    conversions.for_pulsar(1, *kafka(9), 1 << 20, keep=True)
    conversions.for_pulsar(1, *kafka(0), 1 << 20, keep=True)
    assert conversions.hits == 1  # the newest is there, the oldest is not
    assert conversions.converted == {"pulsar": 11}


def test_conversion_larger_than_the_cache_evicts_nothing():
    conversions = ConversionCache(cache_bytes=2_000)
    conversions.for_pulsar(1, *kafka(0, 100), 1 << 20, keep=True)
    before = conversions.cached_bytes

    conversions.for_pulsar(1, *kafka(1, 9_000), 1 << 20, keep=True)

    assert conversions.cached_bytes == before


def test_windows_for_tubemq_are_kept_each_by_itself():
    conversions = ConversionCache()
    batch = build_batch([Record(40 + each, NOW_MS, None, b"v") for each in range(1500)])
    header = read_header(batch)

    first = conversions.for_tubemq(1, batch, header, 40, keep=True)
    last = conversions.for_tubemq(1, batch, header, 1539, keep=True)
    amid = conversions.for_tubemq(1, batch, header, 1039, keep=True)
    conversions.for_tubemq(1, batch, header, 40, keep=False)

    assert [each.offset for each in (first[0], first[-1], last[0], last[-1])] == [
        40, 1039, 1040, 1539
    ]  # fmt: skip
    assert amid is first
    assert conversions.hits == 1
    assert conversions.converted == {"tubemq": 3}
    assert conversions.cached_bytes > 1500 * 100


def test_messages_skipped_for_tubemq_are_counted_each_time(caplog):
    conversions = ConversionCache()

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            conversions.for_tubemq(1, *kafka(7, 600), 7, keep=True, limit=100)

    assert conversions.skipped == {("tubemq", "too_large"): 3}
    assert [each.reader for each in caplog.records] == ["tubemq"]


def test_partitions_limits_and_readers_are_distinguished():
    conversions = ConversionCache()
    entry, header = stored(build_single(message(b"pulsar"), metadata()))
    batch = kafka(0, 600)

    first = conversions.for_pulsar(1, *batch, 1 << 20, keep=True)
    other = conversions.for_pulsar(2, *batch, 1 << 20, keep=True)
    small = conversions.for_pulsar(1, *batch, 100, keep=True)
    conversions.for_kafka(1, [entry], 1 << 20, keep=True)

    assert first == other
    assert isinstance(first[0], Section)
    assert not isinstance(small[0], Section)
    assert conversions.hits == 0
    assert conversions.converted == {"pulsar": 3, "kafka": 1}
    assert header.base_offset == 0


def test_skipped_conversions_are_logged_once_per_second(caplog):
    clock = Clock()
    conversions = ConversionCache(monotonic=clock)
    batch = kafka(7, 600)

    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            conversions.for_pulsar(3, *batch, 100, keep=True)
        clock.now += 1.5
        conversions.for_pulsar(3, *batch, 100, keep=True)

    assert conversions.skipped == {("pulsar", "too_large"): 6}
    first, second = caplog.records
    assert (first.partition, first.offset, first.end_offset, first.reason) == (3, 7, 8, "too_large")
    assert (first.messages_since_the_last_line, second.messages_since_the_last_line) == (0, 4)
