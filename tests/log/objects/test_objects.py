"""Tries, waits and refusals around a store; nothing of it waits for real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.log.samples import CLUSTER as MADE_BY
from tests.log.samples import samples, write_segment
from tests.s3 import CLUSTER, Hands, MemoryObjects, make_objects
from trilogue.log.errors import ObjectDenied, ObjectExists, ObjectMissing, StorageUnavailable
from trilogue.log.files import OsFileSystem
from trilogue.log.objects.objects import READING, WRITING, Objects
from trilogue.log.objects.obstore_store import Reach, StoreOptions
from trilogue.log.objects.uploads import UploadJob, upload
from trilogue.log.segments.segment_info import SegmentInfo

FOLDER = "6120636c757374657227732069642031/segments"


@pytest.fixture
def store() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def objects(store: MemoryObjects, hands: Hands) -> Objects:
    return make_objects(store, hands)


@pytest.fixture
def segment(tmp_path: Path) -> tuple[SegmentInfo, memoryview]:
    info = write_segment(OsFileSystem(), tmp_path, samples(1, 40))
    return info, memoryview((tmp_path / info.name).read_bytes())


def failing(times: int, error: Exception, operation: str = "") -> Callable[[str, str], None]:
    left = [times]

    def fail(doing: str, _key: str) -> None:
        if left[0] and operation in {"", doing}:
            left[0] -= 1
            raise error

    return fail


def test_a_segment_lies_under_cluster_and_name(
    objects: Objects, store: MemoryObjects, segment: tuple[SegmentInfo, memoryview]
):
    info, data = segment

    assert objects.put(info, data) is False

    assert store.objects == {f"{FOLDER}/{info.name}": bytes(data)}
    assert objects.names() == [info.name]
    objects.delete(info.name)
    assert objects.names() == []


def test_an_earlier_try_that_arrived_is_accepted(
    objects: Objects, store: MemoryObjects, segment: tuple[SegmentInfo, memoryview]
):
    """Its answer got lost: the next try finds something there, and it is the same."""
    info, data = segment
    put = store.put

    def lost(key: str, what: memoryview) -> None:
        put(key, what)
        raise StorageUnavailable("no answer")

    store.put = lost

    assert objects.put(info, data) is True
    assert objects.counts.retries == 1
    assert objects.counts.failures == 0


@pytest.mark.parametrize("where", ["header", "footer", "size"])
def test_something_else_with_that_name_is_never_overwritten(
    objects: Objects, store: MemoryObjects, segment: tuple[SegmentInfo, memoryview], where: str
):
    info, data = segment
    other = bytearray(data)
    if where == "size":
        other += b"x"
    else:
        other[20 if where == "header" else info.footer_position + 50] ^= 1
    store.objects[f"{FOLDER}/{info.name}"] = bytes(other)

    with pytest.raises(ObjectExists):
        objects.put(info, data)

    assert store.objects == {f"{FOLDER}/{info.name}": bytes(other)}


def test_a_store_that_overwrites_is_found_out(objects: Objects, store: MemoryObjects):
    objects.prove()
    objects.prove()
    assert store.count("put") == 3  # the first time it takes two

    store.put = lambda _key, _data: None

    with pytest.raises(ObjectDenied):
        objects.prove()


def test_a_store_that_overwrites_gets_no_segment(
    objects: Objects,
    store: MemoryObjects,
    segment: tuple[SegmentInfo, memoryview],
    tmp_path: Path,
):
    info, data = segment
    where = Reach(StoreOptions("file:///not/asked"), CLUSTER)
    job = UploadJob(where, str(tmp_path), info)
    put = store.put
    store.put = lambda key, data: put(key, data) if "/segments/" in key else None

    with pytest.raises(ObjectDenied):
        upload(job, objects, OsFileSystem())
    assert store.objects == {}
    store.put = put

    assert upload(job, objects, OsFileSystem()).was_there is False
    assert store.objects[f"{FOLDER}/{info.name}"] == bytes(data)
    assert upload(job, objects, OsFileSystem()).was_there is True


def test_at_the_end_nothing_is_tried_again(objects: Objects, store: MemoryObjects, hands: Hands):
    store.fail = failing(99, StorageUnavailable("busy"))
    objects.close()

    with pytest.raises(StorageUnavailable):
        objects.names()

    assert store.count("list") == 1
    assert hands.slept == []


def test_a_file_of_another_size_is_not_sent(
    objects: Objects, store: MemoryObjects, segment: tuple[SegmentInfo, memoryview]
):
    info, data = segment

    with pytest.raises(StorageUnavailable):
        objects.put(info, data[:-1])
    with pytest.raises(StorageUnavailable):
        objects.put(replace(info, size=info.size + 1), data)

    assert store.calls == []


def test_transient_errors_are_retried_with_backoff(
    objects: Objects, store: MemoryObjects, hands: Hands
):
    store.objects[f"{FOLDER}/x"] = b"12345"
    store.fail = failing(2, StorageUnavailable("busy"))

    assert objects.read("x", 1, 3) == b"234"

    first, second = hands.slept
    assert 0.5 * READING.first_s <= first <= READING.first_s
    assert READING.first_s <= second <= 2 * READING.first_s
    assert objects.counts.retries == 2
    assert objects.counts.reads == 1
    assert objects.counts.read_bytes == 3


@pytest.mark.parametrize("error", [ObjectMissing("x"), ObjectDenied("x")])
def test_permanent_errors_are_not_retried(
    objects: Objects, store: MemoryObjects, hands: Hands, error: StorageUnavailable
):
    store.fail = failing(99, error)

    with pytest.raises(type(error)):
        objects.read("x", 0, 1)

    assert store.count("read") == 1
    assert hands.slept == []
    assert not objects.breaker.is_open  # it answers: other objects may be there


def test_tries_have_a_number_and_an_end(objects: Objects, store: MemoryObjects, hands: Hands):
    def slow(_operation: str, _key: str) -> None:
        hands.seconds += WRITING.limit_s / 2
        raise StorageUnavailable("busy")

    store.fail = failing(99, StorageUnavailable("busy"))
    with pytest.raises(StorageUnavailable):
        objects.delete("x")
    assert store.count("delete") == WRITING.tries

    store.fail = slow
    with pytest.raises(StorageUnavailable):
        objects.names()
    assert store.count("list") == 2
    assert objects.counts.failures == 2


def test_too_few_bytes_are_none(objects: Objects, store: MemoryObjects):
    store.objects[f"{FOLDER}/x"] = b"12345"

    with pytest.raises(StorageUnavailable, match="ends early"):
        objects.read("x", 3, 3)


# -- a store that is down ----------------------------------------------------------------------


def test_only_one_read_probes_an_unavailable_store(
    objects: Objects, store: MemoryObjects, hands: Hands
):
    """Reads of what is not in objects need the threads."""
    store.objects[f"{FOLDER}/x"] = b"12345"
    store.fail = failing(99, StorageUnavailable("down"))
    with pytest.raises(StorageUnavailable):
        objects.read("x", 0, 1)
    requested, slept = store.count("read"), len(hands.slept)

    for _ in range(10):
        with pytest.raises(StorageUnavailable, match="down"):
            objects.read("x", 0, 1)

    assert store.count("read") == requested
    assert len(hands.slept) == slept
    hands.seconds += 1.5
    with pytest.raises(StorageUnavailable):
        objects.read("x", 0, 1)
    assert store.count("read") == requested + READING.tries


def test_reads_fail_at_once_while_another_probes_the_store(
    objects: Objects, store: MemoryObjects, hands: Hands
):
    store.fail = failing(99, StorageUnavailable("down"))
    with pytest.raises(StorageUnavailable):
        objects.read("x", 0, 1)
    hands.seconds += 60

    def others_fail_at_once(_operation: str, _key: str) -> None:
        store.fail = failing(99, AssertionError("a second one asks"))
        with pytest.raises(StorageUnavailable):
            objects.read("x", 0, 1)
        raise ObjectMissing("x")

    store.fail = others_fail_at_once
    with pytest.raises(ObjectMissing):
        objects.read("x", 0, 1)


def test_a_store_that_answers_again_serves_all_at_once(
    objects: Objects, store: MemoryObjects, hands: Hands
):
    store.objects[f"{FOLDER}/x"] = b"12345"
    for _ in range(20):  # it rests longer and longer, and not for ever
        store.fail = failing(99, StorageUnavailable("down"))
        hands.seconds += 10.1
        with pytest.raises(StorageUnavailable):
            objects.read("x", 0, 1)
    store.fail = failing(0, StorageUnavailable("down"))
    hands.seconds += 10.1

    assert objects.read("x", 0, 1) == b"1"
    assert objects.read("x", 1, 1) == b"2"
    assert not objects.breaker.is_open


def test_clusters_do_not_see_each_other(
    store: MemoryObjects, hands: Hands, segment: tuple[SegmentInfo, memoryview]
):
    info, data = segment
    one = make_objects(store, hands)
    other = Objects(store, MADE_BY, hands.around())

    one.put(info, data)

    assert other.names() == []
    other.put(info, data)
    assert len(store.objects) == 2
