"""The manifest: the same value back, or a clear error."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import FakeFileSystem, PowerCut
from tests.log.samples import CLUSTER, samples, write_segment
from trilogue.entry.checksum import crc32c
from trilogue.log.errors import CorruptLog, NewerFormat
from trilogue.log.extents import Extent, Extents
from trilogue.log.files import OsFileSystem
from trilogue.log.manifest import (
    MANIFEST_NAME,
    AbortedRange,
    Manifest,
    ManifestTopic,
    PartitionRange,
    decode_manifest,
    encode_manifest,
    read_manifest,
    write_manifest,
)
from trilogue.log.segment_info import SegmentInfo
from trilogue.log.segment_reader import SegmentReader

FILES = OsFileSystem()
numbers = st.integers(0, 2**63 - 1)
extents = st.builds(Extent, *[numbers] * 7, *[st.integers(-1, 2**63 - 1)] * 4)
unlike = st.lists(extents, max_size=3, unique_by=lambda each: each.partition_id)
segments = st.builds(
    SegmentInfo,
    *[numbers] * 2,
    st.text(),
    *[numbers] * 8,
    unlike.map(Extents.of),
)
ranges = st.builds(
    PartitionRange,
    numbers,
    numbers,
    numbers,
    st.lists(st.builds(AbortedRange, numbers, numbers, numbers), max_size=2).map(tuple),
)
topics = st.builds(
    ManifestTopic,
    st.text(),
    st.text(),
    st.text(),
    st.binary(min_size=16, max_size=16),
    st.lists(numbers, max_size=3).map(tuple),
)
manifests = st.builds(
    Manifest,
    st.binary(min_size=16, max_size=16),
    numbers,
    numbers,
    st.lists(topics, max_size=2).map(tuple),
    st.dictionaries(numbers, ranges, max_size=3),
    st.lists(segments, max_size=2).map(tuple),
)


@given(manifests)
def test_a_manifest_comes_back_as_it_was(manifest: Manifest):
    assert decode_manifest(encode_manifest(manifest)) == manifest


def test_a_reader_needs_the_manifest_and_nothing_else(tmp_path: Path):
    late = write_segment(FILES, tmp_path, samples(8, 2, base=5), segment_id=1)
    early = write_segment(FILES, tmp_path, [*samples(8, 5), *samples(9, 1)], segment_id=2)
    topic = ManifestTopic("public", "default", "orders", bytes(16), (8, 9))
    write_manifest(FILES, tmp_path, Manifest(CLUSTER, 1, 7, (topic,), {}, (late, early)))

    manifest = read_manifest(FILES, tmp_path)
    found = b""
    for info in manifest.segments_of(manifest.topics[0].partitions[0]):
        reader = SegmentReader.open(FILES, tmp_path / info.name, info)
        found += reader.read(8, 0, 1 << 20)
        reader.close()

    assert found == b"".join(entry.data for entry in samples(8, 7))


def test_the_next_manifest_takes_the_place_of_the_last(tmp_path: Path):
    for generation in (1, 2):
        write_manifest(FILES, tmp_path, Manifest(CLUSTER, generation, 0))

    assert read_manifest(FILES, tmp_path).generation == 2
    assert [path.name for path in tmp_path.iterdir()] == [MANIFEST_NAME]


def test_a_draft_that_a_dead_writer_left_is_no_obstacle(tmp_path: Path):
    (tmp_path / f"{MANIFEST_NAME}.tmp").write_bytes(b"{")

    write_manifest(FILES, tmp_path, Manifest(CLUSTER, 3, 0))

    assert read_manifest(FILES, tmp_path).generation == 3


@pytest.mark.parametrize("steps", range(6))
def test_a_power_cut_leaves_the_old_manifest_or_the_new_one(steps: int):
    files, directory = FakeFileSystem(), Path("/segments")
    files.make_directory(directory)
    write_manifest(files, directory, Manifest(CLUSTER, 1, 0))
    files.cut_after(steps)

    try:
        write_manifest(files, directory, Manifest(CLUSTER, 2, 0))
        returned = True
    except PowerCut:
        returned = False
    files.power_cut(random.Random(steps))

    assert read_manifest(files, directory).generation in ({2} if returned else {1, 2})


def test_a_missing_manifest_is_a_clear_error(tmp_path: Path):
    with pytest.raises(CorruptLog, match=r"no manifest.*manifest\.json"):
        read_manifest(FILES, tmp_path)


@pytest.mark.parametrize("size", [0, 1, 30, 60, -3, -1])
def test_a_cut_manifest_is_a_clear_error(tmp_path: Path, size: int):
    data = encode_manifest(Manifest(CLUSTER, 3, 0, (), {1: PartitionRange(0, 9, 9)}))
    (tmp_path / MANIFEST_NAME).write_bytes(data[:size])

    with pytest.raises(CorruptLog, match=r"manifest\.json"):
        read_manifest(FILES, tmp_path)


def test_any_changed_byte_is_noticed():
    manifest = Manifest(CLUSTER, 3, 0, (), {1: PartitionRange(0, 9, 9)})
    data = encode_manifest(manifest)

    for at in range(len(data)):
        for bit in range(8):
            changed = data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]
            try:
                found = decode_manifest(changed)
            except (CorruptLog, NewerFormat):
                continue
            assert found == manifest, changed


def test_a_newer_format_is_refused_as_such_whatever_else_it_holds():
    with pytest.raises(NewerFormat, match="format 2"):
        decode_manifest(json.dumps({"format": 2, "something": "else"}).encode())


@pytest.mark.parametrize("row", [[], [1] * 10, [1] * 12, ["x"] * 11, None])
def test_rows_that_cannot_be_are_an_error(row: object):
    segment = SegmentInfo(1, 0, "s", 1, 1, 1, 1, 1, 1, 1, 1, Extents.of([Extent(*range(11))]))
    inner = json.loads(encode_manifest(Manifest(CLUSTER, 1, 1, (), {}, (segment,))))["manifest"]
    inner["segments"][0]["extents"] = [row]
    body = json.dumps(inner)

    with pytest.raises(CorruptLog, match="cannot be read"):
        decode_manifest(
            f'{{"format": 1, "crc32c": {crc32c(body.encode())}, "manifest": {body}}}'.encode()
        )
