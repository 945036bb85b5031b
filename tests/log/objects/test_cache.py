"""Segments in objects give back what segments in files do; what is cached has a bound."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from tests.log.samples import Sample, samples, write_segment
from tests.s3 import S3, Hands, MemoryObjects, Proxy, make_objects, options
from trilogue.log.errors import CorruptLog, ObjectMissing, StorageUnavailable
from trilogue.log.files import OsFileSystem
from trilogue.log.objects.cache import AHEAD, CHUNK, IDLE_S, ObjectCache
from trilogue.log.objects.objects import STORE
from trilogue.log.objects.obstore_store import S3ObjectStore
from trilogue.log.segments.segment_reader import SegmentReaders

FILES = OsFileSystem()
MANY = 1 << 30
LARGE = 100_000


class Rig:
    """A segment in objects, its bytes, and everything that reads it. The file is gone."""

    def __init__(self, directory: Path, entries: list[Sample], budget: int = 64 << 20) -> None:
        info = write_segment(FILES, directory, entries, entries_per_block=2)
        self.path = directory / info.name
        self.info = replace(info, store=STORE)
        self.data = self.path.read_bytes()
        self.path.unlink()
        self.hands = Hands()
        self.store = MemoryObjects()
        self.objects = make_objects(self.store, self.hands)
        self.objects.put(self.info, memoryview(self.data))
        self.cache = ObjectCache(self.objects, self.hands.monotonic, budget)
        self.directory = directory
        self.store.calls.clear()
        self.readers = SegmentReaders(FILES, directory, objects=self.cache)

    def read(self, offset: int = 0, size: int = MANY, partition_id: int = 1) -> bytes:
        return bytes(self.readers.read(self.info, partition_id, offset, size))

    def ranges(self) -> int:
        return self.store.count("read")


@pytest.fixture
def small(tmp_path: Path) -> Rig:
    return Rig(tmp_path, samples(1, 20) + samples(2, 3))


@pytest.fixture
def large(tmp_path: Path) -> Rig:
    """About twelve chunks."""
    return Rig(tmp_path, samples(1, 125, size=LARGE))


def data_of(entries: list[Sample]) -> bytes:
    return b"".join(each.data for each in entries)


# -- the same as from a file -------------------------------------------------------------------


@pytest.mark.parametrize("budget", [0, 3 * CHUNK, 64 << 20])
def test_an_object_reads_as_its_file_does(tmp_path: Path, budget: int):
    entries = samples(1, 60, size=LARGE) + samples(3, 7) + samples(9, 2, size=2_500_000)
    rig = Rig(tmp_path, entries, budget)
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / rig.info.name).write_bytes(rig.data)
    file = SegmentReaders(FILES, tmp_path / "file")
    random = Random(3)

    for _ in range(40):
        partition_id = random.choice([1, 3, 9])
        offset = random.randrange(62)
        size = random.choice([1, 500, LARGE, 900_000, 5_000_000])
        there = rig.readers.read(rig.info, partition_id, offset, size)
        assert there == file.read(replace(rig.info, store=""), partition_id, offset, size)
        with rig.readers.lease(rig.info) as one, file.lease(replace(rig.info, store="")) as two:
            assert one.entry_for_time(3, offset) == two.entry_for_time(3, offset)
    assert rig.cache.size <= budget
    rig.readers.close()
    file.close()


@pytest.mark.parametrize("size", range(60, 70))
def test_any_range_is_that_of_the_object(tmp_path: Path, size: int):
    """Header, data, footer, and what reaches from one into the other."""
    rig = Rig(tmp_path, samples(1, 30, size=LARGE))
    file = rig.cache.open(rig.info)
    edges = [0, 60, CHUNK, 2 * CHUNK, rig.info.footer_position, rig.info.size]

    for edge in edges:
        for position in range(max(0, edge - 70), min(rig.info.size, edge + 5), 7):
            assert file.pread(size, position) == rig.data[position : position + size]
    assert file.pread(MANY, 0) == rig.data


def test_a_copy_in_the_folder_is_read_instead(small: Rig):
    small.path.write_bytes(small.data)

    assert small.read() == data_of(samples(1, 20))

    assert small.ranges() == 0


def test_a_damaged_copy_is_left_aside(small: Rig):
    small.path.write_bytes(small.data[:100] + b"damage" + small.data[106:])

    with pytest.raises(CorruptLog):
        small.read()

    assert small.read() == data_of(samples(1, 20))


def test_a_segment_that_should_be_a_file_is_not_looked_for_elsewhere(small: Rig):
    with pytest.raises(CorruptLog, match="missing"):
        small.readers.read(replace(small.info, store=""), 1, 0, 100)

    assert small.store.calls == []


def test_error_without_a_store_names_the_missing_setting(small: Rig):
    readers = SegmentReaders(FILES, small.directory)

    with pytest.raises(StorageUnavailable, match=r"objects\.url"):
        readers.read(small.info, 1, 0, 100)


# -- the cache ---------------------------------------------------------------------------------


def test_a_small_segment_costs_three_requests_once(small: Rig):
    """Header, footer, data."""
    for _ in range(5):
        small.read()

    assert small.ranges() == 3


def test_an_entry_of_a_large_segment_costs_one_chunk(large: Rig):
    large.read(60, 1)

    assert large.objects.counts.read_bytes < CHUNK + 10_000


def test_sequential_reads_request_several_chunks_at_once(large: Rig):
    offset = 0
    while data := large.read(offset, 300_000):
        offset += len(data) // LARGE

    assert offset == 125
    chunks = -(-large.info.footer_position // CHUNK)
    assert large.ranges() <= 2 + 1 + -(-chunks // (AHEAD + 1))
    assert large.objects.counts.read_bytes == large.info.size - large.info.footer_position + 64 + (
        large.info.footer_position
    )


def test_random_reads_request_only_the_needed_chunks(large: Rig):
    for offset in (100, 20, 60):
        large.read(offset, 1)

    assert large.objects.counts.read_bytes < 3 * 2 * CHUNK


def test_the_budget_holds(tmp_path: Path):
    rig = Rig(tmp_path, samples(1, 125, size=LARGE), budget=4 * CHUNK)
    seen = 0
    for offset in range(0, 125, 3):
        rig.read(offset, 250_000)
        seen = max(seen, rig.cache.size)

    assert 2 * CHUNK < seen <= 4 * CHUNK
    assert rig.cache.counts.evicted > 3


def test_footers_stay_when_data_streams_by(tmp_path: Path):
    rig = Rig(tmp_path, samples(1, 125, size=LARGE), budget=4 * CHUNK)
    for offset in range(0, 125, 3):
        rig.read(offset, 250_000)
    rig.readers.close()
    keys = len(rig.store.calls)

    rig.read(124)

    assert rig.store.calls[keys:] == []  # its last chunk is there too


def test_data_without_recent_reads_is_evicted(large: Rig):
    large.read()
    large.hands.seconds += IDLE_S / 2
    large.read(124)
    large.hands.seconds += IDLE_S / 2 + 1

    large.cache.trim()

    assert 0 < large.cache.size < 2 * CHUNK


def test_readers_of_one_chunk_share_one_request(large: Rig):
    readers, waiting = 8, threading.Event()
    entered = threading.Event()

    def hold(operation: str, _key: str) -> None:
        entered.set()
        assert waiting.wait(60)

    large.read(0, 1)
    large.store.calls.clear()
    large.store.fail = hold
    with ThreadPoolExecutor(readers) as pool:
        found = [pool.submit(large.read, 60, 1) for _ in range(readers)]
        assert entered.wait(60)
        while large.cache.counts.hits < readers - 1:
            threading.Event().wait(0.001)
        waiting.set()
        assert {each.result() for each in found} == {samples(1, 125, size=LARGE)[60].data}

    assert large.ranges() == 1


def test_waiters_of_a_failed_request_get_its_error(large: Rig):
    waiting, entered = threading.Event(), threading.Event()

    def fail(_operation: str, _key: str) -> None:
        entered.set()
        assert waiting.wait(60)
        raise ObjectMissing("gone")

    large.read(0, 1)
    large.store.fail = fail
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(large.read, 60, 1)
        assert entered.wait(60)
        second = pool.submit(large.read, 60, 1)
        while large.cache.counts.hits < 1:
            threading.Event().wait(0.001)
        waiting.set()
        errors = [first.exception(60), second.exception(60)]

    assert [type(each) for each in errors] == [ObjectMissing, ObjectMissing]
    large.store.fail = lambda _operation, _key: None
    assert large.read(60, 1)


# -- wrong bytes -------------------------------------------------------------------------------


def test_flipped_bit_raises_and_the_next_read_requests_it_again(small: Rig):
    """Anywhere in the object, and whatever was read and verified before."""
    random = Random(5)
    right = data_of(samples(1, 20))
    refused = 0
    for turn in range(200):
        if turn % 2:
            small.cache.forget(small.info.name)
        if turn % 3 == 0:
            small.readers.forget(small.info.segment_id)
        at = random.randrange(1_000_000)
        small.store.change = lambda _key, data, at=at: (
            data[: at % len(data)]
            + bytes([data[at % len(data)] ^ 1 << at % 8])
            + data[at % len(data) + 1 :]
        )
        try:
            assert small.read() == right
        except CorruptLog:
            refused += 1
        small.store.change = lambda _key, data: data
        assert small.read() == right

    assert refused > 50


def test_a_block_that_was_verified_is_verified_when_it_comes_again(small: Rig):
    assert small.read() == data_of(samples(1, 20))
    small.cache.forget(small.info.name)
    small.store.change = lambda _key, data: data[:500] + b"!" + data[501:]

    with pytest.raises(CorruptLog):
        small.read()


@pytest.mark.parametrize("fault", ["cut", "reset", "lose", 500, 503])
def test_a_store_that_fails_costs_the_read_and_it_recovers(
    s3: S3, proxy: Proxy, tmp_path: Path, fault: str | int
):
    rig = Rig(tmp_path, samples(1, 20))
    store = S3ObjectStore(options(proxy.port, tmp_path.name), request_s=60)
    objects = make_objects(store, rig.hands)
    objects.put(rig.info, memoryview(rig.data))
    readers = SegmentReaders(FILES, tmp_path, objects=ObjectCache(objects, rig.hands.monotonic))
    proxy.fault = lambda _method, _path: fault

    for _ in range(3):
        with pytest.raises(StorageUnavailable):
            readers.read(rig.info, 1, 0, MANY)

    proxy.fault = lambda _method, _path: None
    rig.hands.seconds += 10
    assert readers.read(rig.info, 1, 0, MANY) == data_of(samples(1, 20))


def test_wrong_bytes_on_the_way_are_never_given_out(s3: S3, proxy: Proxy, tmp_path: Path):
    rig = Rig(tmp_path, samples(1, 20))
    store = S3ObjectStore(options(proxy.port, tmp_path.name), request_s=60)
    objects = make_objects(store, rig.hands)
    objects.put(rig.info, memoryview(rig.data))
    readers = SegmentReaders(FILES, tmp_path, objects=ObjectCache(objects, rig.hands.monotonic))
    right = data_of(samples(1, 20))
    outcomes = []
    for turn in range(6):  # the first, second, ... request of a read is the one that is spoilt
        requested = len(proxy.seen)
        proxy.fault = lambda _m, _p, at=requested + turn % 3 + 1: (
            "flip" if len(proxy.seen) == at else None
        )
        try:
            outcomes.append(bytes(readers.read(rig.info, 1, 0, MANY)) == right)
        except CorruptLog:
            outcomes.append(None)

    assert False not in outcomes
    assert None in outcomes
    proxy.fault = lambda _method, _path: None
    assert readers.read(rig.info, 1, 0, MANY) == right
