"""Plain batches: the compiled and the uncompiled version append and refuse the same ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.pure import load_pure
from trilogue.broker.errors import BrokerError
from trilogue.broker.topics import plain_batch_appender
from trilogue.entry.checksum import crc32c
from trilogue.entry.entry import TRANSACTIONAL, EntryError, Record
from trilogue.entry.header import (
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    CHECKED_FROM,
    CHECKSUM_AT,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
)
from trilogue.entry.kafka.record_batch import build_batch
from trilogue.entry.walk import check_produced, read_header
from trilogue.log.errors import DiskFull

PURE = load_pure("trilogue.broker.topics.plain_batch_appender")
RECORDS = [Record(0, 1_000, None, b"value")]
PLAIN = build_batch(RECORDS)
SEEDS = [PLAIN, build_batch(RECORDS, producer_id=7, producer_epoch=0, base_sequence=0)]


def append(modules, batch: bytes, size_max: int = 1_000) -> tuple[int, list[object]]:
    """Return the result of `append`, and what was appended to the log."""
    appended: list[object] = []

    def append_to_log(records, *fields: int):
        appended.append((bytes(records), *fields))
        return 5

    appender = modules.PlainBatchAppender(SimpleNamespace(append_plain=append_to_log))
    appender.size_max = size_max
    return appender.append(memoryview(batch)), appended


@given(
    seed=some.sampled_from(SEEDS),
    at=some.integers(0, len(PLAIN) - 1),
    octet=some.integers(0, 255),
    cut=some.integers(0, 3),
)
def test_twins_judge_damaged_batches_the_same(seed: bytes, at: int, octet: int, cut: int):
    batch = bytearray(seed)
    batch[at] = octet
    batch = batch[: len(batch) - cut]

    assert append(plain_batch_appender, bytes(batch)) == append(PURE, bytes(batch))


FIELDS = some.sampled_from(
    [
        (BASE_TIMESTAMP_AT, 8),
        (MAX_TIMESTAMP_AT, 8),
        (LAST_OFFSET_DELTA_AT, 4),
        (RECORD_COUNT_AT, 4),
        (ATTRIBUTES_AT, 2),
        (LENGTH_AT, 4),
        (MAGIC_AT, 1),
        (CHECKSUM_AT, 4),
        (PRODUCER_ID_AT, 8),
    ]
)
NUMBERS = some.integers(-3, 9) | some.sampled_from([1 << 31, (1 << 31) - 1, -(1 << 31), 1 << 62])


@pytest.mark.parametrize("modules", [plain_batch_appender, PURE], ids=["installed", "pure"])
@given(changes=some.lists(some.tuples(FIELDS, NUMBERS), max_size=2), signs=some.booleans())
def test_plain_batches_are_those_that_every_check_accepts(modules, changes, signs: bool):
    batch = bytearray(PLAIN)
    for (at, size), number in changes:
        batch[at : at + size] = (number % (1 << 8 * size)).to_bytes(size, "big")
    if signs:
        batch[CHECKSUM_AT : CHECKSUM_AT + 4] = crc32c(batch[CHECKED_FROM:]).to_bytes(4, "big")
    expected: tuple[int, list[object]] = (-1, [])
    try:
        header = check_produced(bytes(batch))
    except EntryError:
        pass
    else:
        if header.producer_id < 0:
            kept = header.attributes, header.last_offset_delta, header.max_timestamp
            expected = (5, [(bytes(batch), *kept)])

    assert append(modules, bytes(batch)) == expected


@pytest.mark.parametrize("modules", [plain_batch_appender, PURE], ids=["installed", "pure"])
def test_batch_that_is_not_plain_is_not_appended(modules):
    assert append(modules, PLAIN)[0] == 5
    assert append(modules, PLAIN, size_max=len(PLAIN) - 1) == (-1, [])
    assert append(modules, PLAIN, size_max=-1) == (-1, [])
    assert append(modules, SEEDS[1]) == (-1, [])
    assert append(modules, PLAIN[:50]) == append(modules, b"") == (-1, [])


@pytest.mark.parametrize("modules", [plain_batch_appender, PURE], ids=["installed", "pure"])
def test_a_log_that_takes_nothing_is_an_error_of_the_broker(modules):
    def full(*_: object) -> int:
        raise DiskFull("no room")

    appender = modules.PlainBatchAppender(SimpleNamespace(append_plain=full))
    appender.size_max = 1_000

    with pytest.raises(BrokerError):
        appender.append(memoryview(PLAIN))


def append_entry(modules, header: object, entry_size_max: int = 1_000) -> tuple[int, list[object]]:
    """Return the result of `append_entry` for 100 bytes, and what was appended to the log."""
    appended: list[object] = []

    def append_to_log(entry, header):
        appended.append((bytes(entry), header))
        return 5

    appender = modules.PlainBatchAppender(SimpleNamespace(append=append_to_log))
    appender.entry_size_max = entry_size_max
    return appender.append_entry(memoryview(b"entry"), header, 100), appended


@pytest.mark.parametrize("modules", [plain_batch_appender, PURE], ids=["installed", "pure"])
def test_entry_of_another_format_is_appended_as_it_is(modules):
    header = read_header(PLAIN)

    assert append_entry(modules, header) == (5, [(b"entry", header)])
    assert append_entry(modules, header, entry_size_max=100)[0] == 5


@pytest.mark.parametrize("modules", [plain_batch_appender, PURE], ids=["installed", "pure"])
def test_entry_that_memory_acknowledges_has_a_limit_of_its_own(modules):
    header = read_header(PLAIN)
    appender = modules.PlainBatchAppender(SimpleNamespace(append=lambda *_: 5))
    appender.entry_size_max = 1_000
    assert appender.append_to_memory(memoryview(b"entry"), header, 100) == -1

    appender.entry_size_max, appender.memory_size_max = -1, 100

    assert appender.append_to_memory(memoryview(b"entry"), header, 100) == 5
    assert appender.append_to_memory(memoryview(b"entry"), header, 101) == -1
    assert appender.append_entry(memoryview(b"entry"), header, 100) == -1


@pytest.mark.parametrize("modules", [plain_batch_appender, PURE], ids=["installed", "pure"])
def test_entry_with_extras_is_left_to_the_partition(modules):
    header = read_header(PLAIN)
    in_transaction = header._replace(attributes=header.attributes | TRANSACTIONAL)

    assert append_entry(modules, header, entry_size_max=99) == (-1, [])
    assert append_entry(modules, header, entry_size_max=-1) == (-1, [])
    assert append_entry(modules, in_transaction) == (-1, [])
    assert append_entry(modules, list(header)) == (-1, [])


@pytest.mark.parametrize("modules", [plain_batch_appender, PURE], ids=["installed", "pure"])
def test_entry_that_the_log_does_not_take_is_an_error_of_the_broker(modules):
    def full(*_: object) -> int:
        raise DiskFull("no room")

    appender = modules.PlainBatchAppender(SimpleNamespace(append=full))
    appender.entry_size_max = 1_000

    with pytest.raises(BrokerError):
        appender.append_entry(memoryview(b"entry"), read_header(PLAIN), 100)
