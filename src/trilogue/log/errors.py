"""Everything the log may refuse or fail with. Whoever catches `LogError` has caught all of it."""

from __future__ import annotations

from pathlib import Path


class LogError(Exception):
    """The log cannot do what was asked."""


class StorageFailed(LogError):
    """A write or a sync failed: nothing is acknowledged any more, the process has to end.

    Never retried: after a failed fsync the kernel calls the lost pages clean, and a second fsync
    that succeeds says nothing about them.
    """


class CorruptLog(LogError):
    """Bytes that were durable once are not what was written. Says where."""

    def __init__(self, reason: str, path: Path | None = None, position: int | None = None) -> None:
        where = "" if path is None else f" in {path}"
        at = "" if position is None else f" at byte {position}"
        super().__init__(f"{reason}{where}{at}")
        self.reason = reason
        self.path = path
        self.position = position


class SegmentMissing(CorruptLog):
    """There is no such file. For who planned from an older manifest it may just have retired."""


class NewerFormat(LogError):
    """The data was written by a newer version of the program than this one."""


class AlreadyLocked(LogError):
    """Another process works on this data directory."""


class OffsetOutOfRange(LogError):
    """No such offset: below the first one kept, or beyond the last one given."""

    def __init__(self, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside [{start_offset}, {end_offset}]")
        self.offset = offset
        self.start_offset = start_offset
        self.end_offset = end_offset


class UnknownPartition(LogError):
    """The manifest knows no such topic or partition: never made, not flushed yet, or deleted."""


class FrameTooLarge(LogError):
    """An entry or a fact that no frame can hold: whoever accepted it should have looked."""


class DiskFull(LogError):
    """Too little room for another entry; reading goes on, and appending resumes by itself."""


class TailFull(DiskFull):
    """The room that is missing is memory: what is not yet in a segment has met its hard limit."""


class StorageUnavailable(LogError):
    """Bytes that lie in object storage cannot be had now; asking again later may help."""


class ObjectMissing(StorageUnavailable):
    """The store answers that there is no such object (or bucket)."""


class ObjectDenied(StorageUnavailable):
    """The store does not let us: its credentials or its policy have to be changed."""


class ObjectExists(StorageUnavailable):
    """Something else has this name already, and nothing is ever overwritten."""
