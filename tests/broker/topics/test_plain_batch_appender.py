"""Plain batches: the compiled and the uncompiled version append and refuse the same ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.pure import load_pure
from trilogue.broker.errors import BrokerError
from trilogue.broker.topics import plain_batch_appender
from trilogue.entry.entry import TRANSACTIONAL, Record
from trilogue.entry.kafka.record_batch import build_batch
from trilogue.entry.walk import read_header
from trilogue.log.errors import DiskFull

PURE = load_pure("trilogue.broker.topics.plain_batch_appender")
RECORDS = [Record(0, 1_000, None, b"value")]
PLAIN = build_batch(RECORDS)
SEEDS = [PLAIN, build_batch(RECORDS, producer_id=7, producer_epoch=0, base_sequence=0)]


def append(modules, batch: bytes, size_max: int = 1_000) -> tuple[int, list[object]]:
    """Return the result of `append`, and what was appended to the log."""
    appended: list[object] = []

    def append_to_log(records, fields):
        appended.append((bytes(records), tuple(fields)))
        return 5

    appender = modules.PlainBatchAppender(SimpleNamespace(append=append_to_log))
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

    appender = modules.PlainBatchAppender(SimpleNamespace(append=full))
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
