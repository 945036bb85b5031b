"""The compiled modules and their uncompiled versions give the same results for any bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.entry.conftest import INSTALLED, PURE, Room
from tests.entry.samples import CODECS, patched, plain_records, record_lists
from trilogue.entry.entry import EntryError
from trilogue.entry.kafka.record_batch import build_batch

SEED = build_batch(plain_records(3), producer_id=1, producer_epoch=0, base_sequence=0)
COLUMNS = ("key", "value", "offset", "timestampType", "headers")


def outcome_of(verdict: Callable[[Room, bytes], object], room: Room, data: bytes) -> object:
    try:
        return verdict(room, data)
    except EntryError as error:
        return type(error), str(error)


def rows(room: Room, entries: bytes) -> object:
    reader = room.arrow.ArrowReader("t", 0, 1, 2**40, columns=COLUMNS)
    batches = [*reader.feed(entries), *reader.flush()]
    found = [column.to_pylist() for batch in batches for column in batch.columns]
    return found, reader.next_offset


def few_headers(room: Room, data: bytes) -> object:
    walker = room.kafka_batch.walk_records(data)
    walker.headers_max = 2
    return [walker.read_records(9) for _ in range(9)]


VERDICTS: dict[str, Callable[[Room, bytes], object]] = {
    "check": lambda room, data: room.walk.check_produced(data),
    "header": lambda room, data: room.walk.read_header(data, 0),
    "headers": lambda room, data: room.walk.walk_headers(data),
    "cut headers": lambda room, data: room.walk.walk_headers(data, cut_is_end=True),
    "records": lambda room, data: list(room.kafka_batch.iter_records(data)),
    "few headers": few_headers,
    "keys": lambda room, data: room.kafka_batch.walk_records(data).read_keys(99),
    "time": lambda room, data: room.kafka_batch.first_record_at_or_after(data, 1_700_000_000_001),
    "rows": rows,
}


def compare(data: bytes) -> None:
    for verdict in VERDICTS.values():
        assert outcome_of(verdict, INSTALLED, data) == outcome_of(verdict, PURE, data)


@given(data=st.data(), fix_crc=st.booleans())
@settings(max_examples=200)
def test_twins_agree_on_damaged_batches(data: st.DataObject, fix_crc: bool):
    damaged = bytearray(SEED)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(damaged) - 1))
        damaged[position] = data.draw(st.sampled_from((0, 1, 2, 127, 128, 254, 255)))
    compare(patched(bytes(damaged)) if fix_crc else bytes(damaged))


@given(tail=st.binary(max_size=60), count=st.integers(0, 5), last=st.integers(0, 9))
@settings(max_examples=200)
def test_twins_agree_on_any_records(tail: bytes, count: int, last: int):
    entry = SEED[:61] + tail
    compare(
        patched(entry, batch_length=len(entry) - 12, record_count=count, last_offset_delta=last)
    )


@given(records=record_lists(holes=True), codec=st.sampled_from(CODECS))
def test_twins_build_the_same_bytes(records, codec: int):
    built = [room.kafka_batch.build_batch(records, codec=codec) for room in (INSTALLED, PURE)]

    assert built[0] == built[1]


def test_pure_twin_is_pure():
    assert PURE.walk.__file__.endswith(".py")
    assert PURE.columns.__file__.endswith(".py")
    assert PURE.pack.__file__.endswith(".py")
    assert PURE.kafka_batch.RecordWalker is PURE.walk.RecordWalker
    assert PURE.arrow.Columns is PURE.columns.Columns


def test_compiled_modules_are_those_of_the_present_source():
    for module in (INSTALLED.walk, INSTALLED.columns, INSTALLED.pack):
        built = Path(module.__file__)
        sources = [built.parent / f"{built.name.split('.')[0]}{kind}" for kind in (".py", ".pxd")]
        newest = max(path.stat().st_mtime for path in sources)

        assert built.suffix == ".py" or built.stat().st_mtime >= newest, "run `make native`"
