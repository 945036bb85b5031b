"""The manifest: which segments and partitions exist, for brokerless readers and the log's start.

As a value it is what meta returns when the log opens (the `ManifestStore` port). As a file it lies
next to the segments and is rewritten after each commit that changes what exists. Spark plans from
the file, never from a directory listing, since a segment that is in no manifest may be incomplete.

```json
{"format": 2, "crc32c": 3405691582, "manifest": {"cluster_id": …, "generation": 7, "segments": …}}
```

The checksum covers the bytes of the inner object as they stand in the file. The file can be lost:
it is written again from meta. It has no extents: ten thousand partitions in a hundred segments
would be 60 MB at each flush, and every segment has its own in its footer (docs/decisions/0027).
`sealed.py` reads by it.
"""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from trilogue.entry.checksum import crc32c
from trilogue.log.directory import write_small
from trilogue.log.errors import CorruptLog, NewerFormat
from trilogue.log.files import FileSystem
from trilogue.log.segments.extents import EMPTY
from trilogue.log.segments.segment_info import SegmentInfo

FORMAT_VERSION = 2
MANIFEST_NAME = "manifest.json"
NO_PARTITION = 0  # no partition has this id


class ManifestTopic(msgspec.Struct, frozen=True):
    """A topic's name and partitions."""

    tenant: str
    namespace: str
    name: str
    topic_id: bytes
    partitions: tuple[int, ...]  # partition ids; the position is the partition's number


class PartitionRange(msgspec.Struct, frozen=True):
    """The range of a partition that is readable from segments: start_offset up to stable_end.

    The segments' footers list the aborted transactions below it (log/transactions.py).
    """

    start_offset: int
    flushed_end: int  # everything below is in segments
    stable_end: int  # the part of it in which no transaction is open
    open_transactions: tuple[tuple[int, int], ...] = ()  # at flushed_end: producer id, first offset


class Manifest(msgspec.Struct, frozen=True):
    """All that exists at one moment. `generation` grows with every change."""

    cluster_id: bytes
    generation: int
    flushed_through: int  # the last journal frame that is in segments
    topics: tuple[ManifestTopic, ...] = ()
    partitions: dict[int, PartitionRange] = msgspec.field(default_factory=dict)
    segments: tuple[SegmentInfo, ...] = ()


class ManifestStore(Protocol):
    """Where the log loads its manifest from; meta implements it."""

    def manifest(self) -> Manifest:
        """Return the durable state."""


# ── the file ──────────────────────────────────────────────────────────────────────────────────


class SealedSegment(msgspec.Struct, frozen=True):
    """A segment in the manifest file: enough to open it. Its footer has the extents."""

    info: SegmentInfo  # without extents
    first_partition: int  # its live partitions have ids between these two
    last_partition: int

    def may_hold(self, partition_id: int) -> bool:
        """Whether the segment may hold live entries of a partition."""
        if not self.first_partition <= partition_id <= self.last_partition:
            return False
        return not self.hides(partition_id)

    def hides(self, partition_id: int) -> bool:
        """Whether its entries of a partition no longer count: another segment has them."""
        hidden = self.info.hidden
        at = bisect_left(hidden, partition_id)
        return at < len(hidden) and hidden[at] == partition_id


class SealedManifest(msgspec.Struct, frozen=True):
    """The content of the manifest file."""

    cluster_id: bytes
    generation: int
    flushed_through: int
    topics: tuple[ManifestTopic, ...] = ()
    partitions: dict[int, PartitionRange] = msgspec.field(default_factory=dict)
    segments: tuple[SealedSegment, ...] = ()


def seal_manifest(manifest: Manifest) -> SealedManifest:
    """Reduce a manifest to the content of its file."""
    return SealedManifest(
        manifest.cluster_id,
        manifest.generation,
        manifest.flushed_through,
        manifest.topics,
        {
            each: PartitionRange(known.start_offset, known.flushed_end, known.stable_end)
            for each, known in manifest.partitions.items()
        },
        tuple(map(_seal, manifest.segments)),
    )


def _seal(segment: SegmentInfo) -> SealedSegment:
    ids = segment.partitions.ids
    first, last = (ids[0], ids[-1]) if len(ids) else (NO_PARTITION, NO_PARTITION)
    return SealedSegment(replace(segment, partitions=EMPTY), first, last)


class _Outer(msgspec.Struct):
    format: int
    crc32c: int
    manifest: msgspec.Raw


class _Format(msgspec.Struct):
    format: int


class _Segment(msgspec.Struct):
    """The fields of a `SegmentInfo` in their order, without extents."""

    segment_id: int
    level: int
    file: str
    size: int
    node_id: int
    node_epoch: int
    created_ms: int
    first_sequence: int
    last_sequence: int
    footer_position: int
    footer_size: int


class _Segment2(_Segment):
    store: str
    hidden: list[int]
    partitions: tuple[int, int]  # the first and the last


class _Inner2(msgspec.Struct):
    cluster_id: str
    generation: int
    flushed_through: int
    topics: list[ManifestTopic]
    partitions: list[tuple[int, int, int, int]]  # id, start, flushed end, stable end
    segments: list[_Segment2]


class _Segment1(_Segment):
    extents: list[tuple[int, int, int, int, int, int, int, int, int, int, int]]


class _Range1(msgspec.Struct):
    start_offset: int
    flushed_end: int
    stable_end: int


class _Inner1(msgspec.Struct):
    cluster_id: str
    generation: int
    flushed_through: int
    topics: list[ManifestTopic]
    partitions: dict[int, _Range1]
    segments: list[_Segment1]


def encode_manifest(manifest: SealedManifest) -> bytes:
    """Encode a manifest as the bytes of its file."""
    inner = _Inner2(
        manifest.cluster_id.hex(),
        manifest.generation,
        manifest.flushed_through,
        list(manifest.topics),
        [
            (each, known.start_offset, known.flushed_end, known.stable_end)
            for each, known in manifest.partitions.items()
        ],
        [_segment_row(segment) for segment in manifest.segments],
    )
    body = msgspec.json.encode(inner)
    return msgspec.json.encode(_Outer(FORMAT_VERSION, crc32c(body), msgspec.Raw(body)))


def decode_manifest(data: bytes, path: Path | None = None) -> SealedManifest:
    """Decode the bytes of a manifest file. Raises `CorruptLog`, `NewerFormat`."""
    try:
        version = msgspec.json.decode(data, type=_Format).format
        if version > FORMAT_VERSION:
            raise NewerFormat(f"manifest format {version} is newer than {FORMAT_VERSION}: {path}")
        outer = msgspec.json.decode(data, type=_Outer)
        body = bytes(outer.manifest)
        if crc32c(body) != outer.crc32c:
            raise CorruptLog("the manifest's checksum does not match", path)
        return _decode1(body) if version == 1 else _decode2(body)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise CorruptLog(f"the manifest cannot be read ({error})", path) from error


def _decode2(body: bytes) -> SealedManifest:
    inner = msgspec.json.decode(body, type=_Inner2)
    return SealedManifest(
        bytes.fromhex(inner.cluster_id),
        inner.generation,
        inner.flushed_through,
        tuple(inner.topics),
        {
            each: PartitionRange(start, flushed, stable)
            for each, start, flushed, stable in inner.partitions
        },
        tuple(
            SealedSegment(_info(row, row.store, tuple(row.hidden)), *row.partitions)
            for row in inner.segments
        ),
    )


def _decode1(body: bytes) -> SealedManifest:
    """Decode format 1, which had all extents."""
    inner = msgspec.json.decode(body, type=_Inner1)
    found = []
    for row in inner.segments:
        ids = [extent[0] for extent in row.extents] or [NO_PARTITION]
        found.append(SealedSegment(_info(row), min(ids), max(ids)))
    return SealedManifest(
        bytes.fromhex(inner.cluster_id),
        inner.generation,
        inner.flushed_through,
        tuple(inner.topics),
        {
            each: PartitionRange(known.start_offset, known.flushed_end, known.stable_end)
            for each, known in inner.partitions.items()
        },
        tuple(found),
    )


def write_manifest(files: FileSystem, directory: Path, manifest: Manifest) -> None:
    """Replace the manifest in `directory` atomically."""
    write_small(files, directory / MANIFEST_NAME, encode_manifest(seal_manifest(manifest)))


def read_manifest(files: FileSystem, directory: Path) -> SealedManifest:
    """Read the manifest in `directory`."""
    path = directory / MANIFEST_NAME
    try:
        data = files.read(path)
    except FileNotFoundError:
        raise CorruptLog(
            "there is no manifest (the broker writes it at its next start)", path
        ) from None
    return decode_manifest(data, path)


def _segment_row(segment: SealedSegment) -> _Segment2:
    info = segment.info
    return _Segment2(
        info.segment_id,
        info.level,
        info.name,
        info.size,
        info.node_id,
        info.node_epoch,
        info.created_ms,
        info.first_sequence,
        info.last_sequence,
        info.footer_position,
        info.footer_size,
        info.store,
        list(info.hidden),
        (segment.first_partition, segment.last_partition),
    )


def _info(row: _Segment, store: str = "", hidden: tuple[int, ...] = ()) -> SegmentInfo:
    return SegmentInfo(
        row.segment_id,
        row.level,
        row.file,
        row.size,
        row.node_id,
        row.node_epoch,
        row.created_ms,
        row.first_sequence,
        row.last_sequence,
        row.footer_position,
        row.footer_size,
        EMPTY,
        store,
        hidden,
    )
