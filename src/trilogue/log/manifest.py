"""The manifest: what exists, for readers without a broker and for a log that starts.

As a value it is what the log asks of meta when it opens (the `ManifestStore` port). As a file it
lies next to the segments, is rewritten after each commit that changes what exists, and is what
Spark plans from: never from a listing, since a file that no manifest names may be half written.

```json
{"format": 1, "crc32c": 3405691582, "manifest": {"cluster_id": …, "generation": 7, "segments": …}}
```

The checksum covers the bytes of the inner object as they stand in the file. The file can be lost:
it is written again from meta.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec
from crc32c import crc32c

from trilogue.log.directory import write_small
from trilogue.log.errors import CorruptLog, NewerFormat
from trilogue.log.extents import Extent, Extents
from trilogue.log.files import FileSystem
from trilogue.log.segment_info import SegmentInfo

FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"


@dataclass(frozen=True, slots=True)
class ManifestTopic:
    """A topic's name and where its messages are."""

    tenant: str
    namespace: str
    name: str
    topic_id: bytes
    partitions: tuple[int, ...]  # partition ids; the position is the partition's number


@dataclass(frozen=True, slots=True)
class AbortedRange:
    """Entries of one transaction that was aborted: readers of committed data pass over them."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """What of a partition may be read from segments: start_offset up to stable_end."""

    start_offset: int
    flushed_end: int  # everything below is in segments
    stable_end: int  # the part of it in which no transaction is open
    aborted: tuple[AbortedRange, ...] = ()
    open_transactions: tuple[tuple[int, int], ...] = ()  # at flushed_end: producer id, first offset


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that exists at one moment. `generation` grows with every change."""

    cluster_id: bytes
    generation: int
    flushed_through: int  # the last journal frame that is in segments
    topics: tuple[ManifestTopic, ...] = ()
    partitions: dict[int, PartitionRange] = field(default_factory=dict)
    segments: tuple[SegmentInfo, ...] = ()

    def segments_of(self, partition_id: int) -> Iterator[SegmentInfo]:
        """Name the segments that hold something of a partition, by offset."""
        found = [segment for segment in self.segments if partition_id in segment.partitions]
        yield from sorted(found, key=lambda info: info.partitions[partition_id].base_offset)


class ManifestStore(Protocol):
    """Where the log learns what exists. Meta is behind it."""

    def manifest(self) -> Manifest:
        """Say what exists now, as far as it is durable."""


# ── the file ──────────────────────────────────────────────────────────────────────────────────


class _Outer(msgspec.Struct):
    format: int
    crc32c: int
    manifest: msgspec.Raw


class _Format(msgspec.Struct):
    format: int


class _Segment(msgspec.Struct):
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
    extents: list[tuple[int, ...]]  # the fields of an Extent, in their order


class _Inner(msgspec.Struct):
    cluster_id: str
    generation: int
    flushed_through: int
    topics: list[ManifestTopic]
    partitions: dict[int, PartitionRange]
    segments: list[_Segment]


def encode_manifest(manifest: Manifest) -> bytes:
    """Turn a manifest into the bytes of its file."""
    inner = _Inner(
        manifest.cluster_id.hex(),
        manifest.generation,
        manifest.flushed_through,
        list(manifest.topics),
        manifest.partitions,
        [_segment_row(segment) for segment in manifest.segments],
    )
    body = msgspec.json.encode(inner)
    return msgspec.json.encode(_Outer(FORMAT_VERSION, crc32c(body), msgspec.Raw(body)))


def decode_manifest(data: bytes, path: Path | None = None) -> Manifest:
    """Turn the bytes of a manifest file back; anything unexpected in them is an error."""
    try:
        version = msgspec.json.decode(data, type=_Format).format
        if version > FORMAT_VERSION:
            raise NewerFormat(f"manifest format {version} is newer than {FORMAT_VERSION}: {path}")
        outer = msgspec.json.decode(data, type=_Outer)
        body = bytes(outer.manifest)
        if crc32c(body) != outer.crc32c:
            raise CorruptLog("the manifest's checksum does not match", path)
        inner = msgspec.json.decode(body, type=_Inner)
        return Manifest(
            bytes.fromhex(inner.cluster_id),
            inner.generation,
            inner.flushed_through,
            tuple(inner.topics),
            inner.partitions,
            tuple(_segment(row) for row in inner.segments),
        )
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise CorruptLog(f"the manifest cannot be read ({error})", path) from error


def write_manifest(files: FileSystem, directory: Path, manifest: Manifest) -> None:
    """Replace the manifest in `directory`: readers see the old one or the new one, whole."""
    write_small(files, directory / MANIFEST_NAME, encode_manifest(manifest))


def read_manifest(files: FileSystem, directory: Path) -> Manifest:
    """Read the manifest in `directory`."""
    path = directory / MANIFEST_NAME
    try:
        data = files.read(path)
    except FileNotFoundError:
        raise CorruptLog(
            "there is no manifest (the broker writes it at its next start)", path
        ) from None
    return decode_manifest(data, path)


def _segment_row(segment: SegmentInfo) -> _Segment:
    return _Segment(
        segment.segment_id,
        segment.level,
        segment.name,
        segment.size,
        segment.node_id,
        segment.node_epoch,
        segment.created_ms,
        segment.first_sequence,
        segment.last_sequence,
        segment.footer_position,
        segment.footer_size,
        list(segment.partitions.rows()),
    )


def _segment(row: _Segment) -> SegmentInfo:
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
        Extents.of(Extent(*fields) for fields in row.extents),
    )
