"""The manifest: the same value back, or a clear error."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fakes import FakeFileSystem, PowerCut
from tests.log.samples import CLUSTER
from trilogue.entry.checksum import crc32c
from trilogue.log.errors import CorruptLog, NewerFormat
from trilogue.log.files import OsFileSystem
from trilogue.log.segments.extents import EMPTY, Extent, Extents
from trilogue.log.segments.manifest import (
    MANIFEST_NAME,
    Manifest,
    ManifestTopic,
    PartitionRange,
    SealedManifest,
    SealedSegment,
    decode_manifest,
    encode_manifest,
    read_manifest,
    seal_manifest,
    write_manifest,
)
from trilogue.log.segments.segment_info import SegmentInfo, segment_name

FILES = OsFileSystem()
numbers = st.integers(0, 2**63 - 1)
infos = st.builds(
    SegmentInfo,
    *[numbers] * 2,
    st.text(),
    *[numbers] * 8,
    st.just(EMPTY),
    st.sampled_from(["", "objects"]),
    st.sets(numbers, max_size=3).map(sorted).map(tuple),
)
ranges = st.builds(PartitionRange, numbers, numbers, numbers)
topics = st.builds(
    ManifestTopic,
    st.text(),
    st.text(),
    st.text(),
    st.binary(min_size=16, max_size=16),
    st.lists(numbers, max_size=3).map(tuple),
)
manifests = st.builds(
    SealedManifest,
    st.binary(min_size=16, max_size=16),
    numbers,
    numbers,
    st.lists(topics, max_size=2).map(tuple),
    st.dictionaries(numbers, ranges, max_size=3),
    st.lists(st.builds(SealedSegment, infos, numbers, numbers), max_size=2).map(tuple),
)


def segment_info(segment_id: int = 1, hidden: tuple[int, ...] = (), **partitions: int):
    found = Extents.of(Extent(each, *range(10)) for each in partitions.values())
    return SegmentInfo(segment_id, 0, "s", 9, 1, 1, 1, 1, 1, 1, 1, found, "", hidden)


@given(manifests)
def test_a_manifest_comes_back_as_it_was(manifest: SealedManifest):
    assert decode_manifest(encode_manifest(manifest)) == manifest


def test_manifest_contains_the_partition_range_of_a_segment():
    manifest = seal_manifest(
        Manifest(
            CLUSTER,
            1,
            1,
            segments=(segment_info(1, (5, 6), a=3, b=9), segment_info(2, c=20), segment_info(3)),
        )
    )

    def named(partition_id: int) -> list[int]:
        return [each.info.segment_id for each in manifest.segments if each.may_hold(partition_id)]

    assert {each: named(each) for each in (2, 3, 4, 5, 6, 7, 9, 10, 20)} == {
        2: [], 3: [1], 4: [1], 5: [], 6: [], 7: [1], 9: [1], 10: [], 20: [2],
    }  # fmt: skip
    assert all(segment.info.partitions == {} for segment in manifest.segments)


def test_format_1_is_readable():
    """It had all extents in it; the footers have them too."""
    inner = {
        "cluster_id": CLUSTER.hex(),
        "generation": 42,
        "flushed_through": 1311,
        "topics": [
            {
                "tenant": "public",
                "namespace": "default",
                "name": "orders",
                "topic_id": "AAAAAAAAAAAAAAAAAAAAAA==",
                "partitions": [1, 2],
            }
        ],
        "partitions": {
            "1": {"start_offset": 3, "flushed_end": 500, "stable_end": 400, "aborted": []}
        },
        "segments": [
            {
                "segment_id": 1, "level": 0, "file": "0000000000000001.segment", "size": 91022,
                "node_id": 1, "node_epoch": 3, "created_ms": 1700000000000,
                "first_sequence": 1, "last_sequence": 1311,
                "footer_position": 90318, "footer_size": 624,
                "extents": [[4, 0, 9, 64, 50, 9, 3, -1, 1, 0, 0], [2, *[1] * 10]],
            }
        ],
    }  # fmt: skip
    body = json.dumps(inner)

    found = decode_manifest(
        f'{{"format": 1, "crc32c": {crc32c(body.encode())}, "manifest": {body}}}'.encode()
    )

    info = SegmentInfo(
        1, 0, "0000000000000001.segment", 91022, 1, 3, 1700000000000, 1, 1311, 90318, 624, EMPTY
    )
    assert found == SealedManifest(
        CLUSTER,
        42,
        1311,
        (ManifestTopic("public", "default", "orders", bytes(16), (1, 2)),),
        {1: PartitionRange(3, 500, 400)},
        (SealedSegment(info, 2, 4),),
    )


def test_a_manifest_of_ten_thousand_partitions_is_small():
    """With the extents of each in each segment it was 60 MB, written at every flush."""
    partitions = {each: PartitionRange(10**6, 10**9, 10**9) for each in range(1, 10_001)}
    extents = Extents.of(Extent(each, *[10**9] * 10) for each in partitions)
    segments = tuple(
        replace(segment_info(each), partitions=extents, name=segment_name(each))
        for each in range(32)
    )
    topic = ManifestTopic("public", "default", "orders", bytes(16), tuple(partitions))

    data = encode_manifest(seal_manifest(Manifest(CLUSTER, 1, 1, (topic,), partitions, segments)))

    assert len(data) < 1 << 20


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
    data = encode_manifest(SealedManifest(CLUSTER, 3, 0, (), {1: PartitionRange(0, 9, 9)}))
    (tmp_path / MANIFEST_NAME).write_bytes(data[:size])

    with pytest.raises(CorruptLog, match=r"manifest\.json"):
        read_manifest(FILES, tmp_path)


def test_any_changed_byte_is_noticed():
    manifest = SealedManifest(CLUSTER, 3, 0, (), {1: PartitionRange(0, 9, 9)})
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
    with pytest.raises(NewerFormat, match="format 3"):
        decode_manifest(json.dumps({"format": 3, "something": "else"}).encode())


@pytest.mark.parametrize("row", [[], [1] * 3, [1] * 5, ["x"] * 4, None])
def test_rows_that_cannot_be_are_an_error(row: object):
    manifest = seal_manifest(Manifest(CLUSTER, 1, 1, segments=(segment_info(1, a=3),)))
    inner = json.loads(encode_manifest(manifest))["manifest"]
    inner["partitions"] = [row]
    body = json.dumps(inner)

    with pytest.raises(CorruptLog, match="cannot be read"):
        decode_manifest(
            f'{{"format": 2, "crc32c": {crc32c(body.encode())}, "manifest": {body}}}'.encode()
        )
