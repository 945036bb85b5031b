"""The errors of the log. `LogError` is the base class of all of them."""

from __future__ import annotations

from pathlib import Path


class LogError(Exception):
    """The log cannot carry out the request."""


class StorageFailed(LogError):
    """A write or a sync failed: nothing more is acknowledged, and the process has to end.

    Never retried: after a failed fsync the kernel marks the lost pages clean, so a second fsync
    that succeeds proves nothing about them.
    """


class CorruptLog(LogError):
    """Durable bytes differ from what was written; the message names the file and the position.

    The message has no path outside the data directory: clients get it.
    """

    def __init__(self, reason: str, path: Path | None = None, position: int | None = None) -> None:
        where = "" if path is None else f" in {Path(path.parent.name, path.name)}"
        at = "" if position is None else f" at byte {position}"
        super().__init__(f"{reason}{where}{at}")
        self.reason = reason
        self.path = path
        self.position = position


class SegmentMissing(CorruptLog):
    """The segment's file does not exist.

    A reader that planned from an older manifest gets this when the segment has been retired since.
    """


class NewerFormat(LogError):
    """The data was written by a newer version of the program than this one."""


class AlreadyLocked(LogError):
    """Another process works on this data directory."""


class OffsetOutOfRange(LogError):
    """The offset is below the partition's start offset or beyond its end."""

    def __init__(self, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside [{start_offset}, {end_offset}]")
        self.offset = offset
        self.start_offset = start_offset
        self.end_offset = end_offset


class UnknownPartition(LogError):
    """The manifest has no such topic or partition: never created, not flushed yet, or deleted."""


class FrameTooLarge(LogError):
    """An entry or a fact larger than a frame: the caller should have checked its size."""


class DiskFull(LogError):
    """The disk has too little free space to append; reads go on; appends resume by themselves."""


class TailFull(DiskFull):
    """Memory for entries that are not yet in a segment has reached its hard limit."""


class StorageUnavailable(LogError):
    """Bytes in object storage cannot be read now; a retry may succeed."""


class ObjectMissing(StorageUnavailable):
    """The object (or its bucket) does not exist."""


class ObjectDenied(StorageUnavailable):
    """The store denies access: its credentials or its policy have to be changed."""


class ObjectExists(StorageUnavailable):
    """An object of this name exists already; objects are never overwritten."""
