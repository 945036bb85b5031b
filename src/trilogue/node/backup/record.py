"""The record of one backup: which objects it consists of, with their checksums.

    segments/<segment>-<fingerprint>.segment   shared by all backups of a target
    backups/<id>/0001, 0002, …                 metadata, journal files and other files
    backups/<id>/backup.json                   the record, written last: without it it is no backup

An id is the time of the cut, `20261128T161502.417Z`: ids sort as times do.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from trilogue.entry.checksum import crc32c
from trilogue.node.backup.errors import BackupError

FORMAT: Final = 1
RECORD_NAME: Final = "backup.json"
RECORD_BYTES_MAX: Final = 256 << 20
_ID: Final = "%Y%m%dT%H%M%S"


class StoredFile(msgspec.Struct, frozen=True):
    """One object of a backup, and the file of the data directory that it becomes."""

    path: str  # within the data directory
    key: str  # in the target
    size: int
    crc32c: int


class NodeCut(msgspec.Struct, frozen=True):
    """Up to where the journal of a node is in the backup."""

    node_id: int
    flushed_through: int  # the last frame that is in segments
    last_sequence: int  # the last frame of the backup
    first_ms: int  # append time of the first frame after `flushed_through`; 0: there is none
    last_ms: int  # of the last one; 0: there is none


class BackupRecord(msgspec.Struct, frozen=True):
    """One whole backup."""

    backup_id: str
    cluster_id: str  # hexadecimal digits
    cut_ms: int  # what was acknowledged until then is in the backup
    version: str  # of the program that took it
    data_format: int
    meta_format: int
    nodes: list[NodeCut]
    files: list[StoredFile]
    segments: list[StoredFile]
    has_objects: bool = False  # the server had segments in object storage

    @property
    def first_ms(self) -> int:
        """The earliest time that a restore of this backup can end at."""
        return max((node.first_ms or self.cut_ms for node in self.nodes), default=self.cut_ms)

    @property
    def size(self) -> int:
        """Bytes of all its objects."""
        return sum(each.size for each in (*self.files, *self.segments))


class _Envelope(msgspec.Struct):
    format: int
    crc32c: int
    backup: msgspec.Raw


class _Head(msgspec.Struct):
    format: int


def make_id(time_ms: int) -> str:
    """Return the id of a backup whose cut is at a time."""
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{moment.strftime(_ID)}.{time_ms % 1000:03d}Z"


def record_key(backup_id: str) -> str:
    """Return the key of a record."""
    return f"backups/{backup_id}/{RECORD_NAME}"


def encode_record(record: BackupRecord) -> bytes:
    """Return the bytes of a record, with their checksum."""
    content = msgspec.json.encode(record)
    return msgspec.json.encode(_Envelope(FORMAT, crc32c(content), msgspec.Raw(content)))


def decode_record(data: bytes, key: str) -> BackupRecord:
    """Read a record. Raises `BackupError` for a damaged one, and for one in a newer format."""
    try:
        found = msgspec.json.decode(data, type=_Head).format
        if found > FORMAT:
            raise BackupError(
                f"{key} has backup format {found}, this program knows up to {FORMAT}: "
                "use the version that took it, or a newer one"
            )
        envelope = msgspec.json.decode(data, type=_Envelope)
        if crc32c(bytes(envelope.backup)) != envelope.crc32c:
            raise BackupError(f"{key} does not have the checksum that is in it")
        record = msgspec.json.decode(envelope.backup, type=BackupRecord)
    except msgspec.MsgspecError as error:
        raise BackupError(f"{key} is damaged: {error}") from None
    for each in (*record.files, *record.segments):
        _check_path(each.path, key)
    return record


def _check_path(path: str, key: str) -> None:
    parts = path.split("/")
    if path.startswith("/") or "\0" in path or any(part in {"", ".", ".."} for part in parts):
        raise BackupError(f"{key} names a file outside of the data directory: {path!r}")
