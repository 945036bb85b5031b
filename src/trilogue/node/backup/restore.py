"""Makes a data directory from a backup, as of its cut or of a moment shortly before.

The directory is new or empty. `restoring` in it says that it is not whole yet: no server starts
there, and another restore begins again. `format` is written last.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from trilogue.entry.checksum import crc32c
from trilogue.log.directory import FORMAT, RESTORING, write_small
from trilogue.log.files import DIRECTORY_MODE, OsFileSystem
from trilogue.meta.operations import FORMAT_VERSION
from trilogue.node.backup.errors import BackupError, described
from trilogue.node.backup.journal_copy import cut_journal, read_copies
from trilogue.node.backup.record import BackupRecord, NodeCut, StoredFile
from trilogue.node.backup.targets import BackupTarget

FORMAT_FILE: Final = "format"


class RestoreResult(msgspec.Struct, frozen=True):
    """What was restored."""

    record: BackupRecord
    until_ms: int  # what was acknowledged until then is there
    dropped_frames: int  # of the journal, later than the chosen time


def choose_backup(records: Sequence[BackupRecord], until_ms: int | None) -> BackupRecord:
    """Return the backup that comes closest to a time from before; the newest one for None.

    A backup reaches back from its cut to the first frame of its journal.
    """
    if not records:
        raise BackupError("there is no whole backup there")
    if until_ms is None:
        return max(records, key=lambda record: record.cut_ms)
    fitting = [record for record in records if record.first_ms <= until_ms]
    if not fitting:
        raise BackupError("the oldest backup is of a later time: --list shows them")
    return max(fitting, key=lambda record: (min(record.cut_ms, until_ms), -record.cut_ms))


def find_backup(records: Sequence[BackupRecord], backup_id: str) -> BackupRecord:
    """Return the backup of an id. Raises `BackupError`."""
    for record in records:
        if record.backup_id == backup_id:
            return record
    raise BackupError(f"there is no whole backup {backup_id}: --list shows them")


def restore(
    target: BackupTarget, record: BackupRecord, data: Path, until_ms: int | None = None
) -> RestoreResult:
    """Restore a backup, until a time at which it may end. Raises `BackupError`."""
    _check_formats(record)
    fs = OsFileSystem()
    with described(f"the restore to {data}"):
        _begin(fs, data)
        _check_room(fs, data, record)
        folders: set[Path] = {data, data / "segments", data / "journal"}
        for each in (*record.files, *record.segments):
            folders.update(p for p in (data / each.path).parents if p.is_relative_to(data))
        for folder in sorted(folders):
            folder.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        late = [each for each in record.files if each.path == FORMAT_FILE]
        for each in (*record.segments, *record.files):
            if each.path != FORMAT_FILE:
                _fetch(target, each, data / each.path)
        dropped = 0
        if until_ms is not None and until_ms < record.cut_ms:
            dropped = _drop_later_frames(fs, data, record, until_ms)
        for folder in sorted(folders, reverse=True):
            fs.sync_directory(folder)
        for each in late:
            write_small(fs, data / each.path, b"".join(target.pieces(each.key, each.size)))
        (data / RESTORING).unlink()
        fs.sync_directory(data)
    end_ms = record.cut_ms if until_ms is None else min(until_ms, record.cut_ms)
    return RestoreResult(record, end_ms, dropped)


def verify(target: BackupTarget, record: BackupRecord) -> list[str]:
    """Read all objects of a backup; return a line for each that is missing or damaged."""
    wrong = []
    for each in (*record.files, *record.segments):
        try:
            if target.checksum(each.key, each.size) != each.crc32c:
                wrong.append(f"{target.name}/{each.key} does not have its checksum")
        except BackupError as error:
            wrong.append(str(error))
    return wrong


def _check_formats(record: BackupRecord) -> None:
    for name, found, known in (
        ("data", record.data_format, FORMAT),
        ("metadata", record.meta_format, FORMAT_VERSION),
    ):
        if found > known:
            raise BackupError(
                f"backup {record.backup_id} has {name} format {found}, this program knows up to "
                f"{known}: use Trilogue {record.version}, which took it, or a newer one"
            )


def _begin(fs: OsFileSystem, data: Path) -> None:
    """Mark a directory as not whole; it is new, empty, or left by a restore that was cut off."""
    if not data.exists():
        data.mkdir(mode=DIRECTORY_MODE)  # not its parents: they may be mounted later
        fs.sync_directory(data.parent)
    names = fs.listdir(data)
    if RESTORING in names:
        for name in names:
            path = data / name
            if name == RESTORING:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    elif names not in ([], ["lost+found"]):
        raise BackupError(
            f"{data} is not empty: give a new directory, or move what is there away first"
        )
    else:
        write_small(fs, data / RESTORING, b"A restore into this directory has not ended.\n")


def _check_room(fs: OsFileSystem, data: Path, record: BackupRecord) -> None:
    free = fs.free_bytes(data)
    if record.size > free:
        raise BackupError(
            f"backup {record.backup_id} has {record.size} bytes, and {free} are free in {data}"
        )


def _fetch(target: BackupTarget, stored: StoredFile, path: Path) -> None:
    """Write one file durably, if it is what was backed up."""
    checksum, at = 0, 0
    file = OsFileSystem().open(path, create=True)
    try:
        for piece in target.pieces(stored.key, stored.size):
            checksum = crc32c(piece, checksum)
            try:
                file.pwrite(piece, at)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(path)) from error
            at += len(piece)
        file.sync()
    finally:
        file.close()
    if checksum != stored.crc32c:
        raise BackupError(
            f"{target.name}/{stored.key} does not have the checksum of its backup: it is damaged; "
            "choose another backup (--list)"
        )


def _drop_later_frames(fs: OsFileSystem, data: Path, record: BackupRecord, until_ms: int) -> int:
    """End each journal at the last frame that was written until a time; return what was dropped."""
    dropped = 0
    for node in record.nodes:
        folder = data / _journal_of(node)
        paths = list(folder.glob("*.journal"))
        copies = read_copies(fs, paths, bytes.fromhex(record.cluster_id))
        cut = cut_journal(copies, node.flushed_through, until_ms)
        dropped += node.last_sequence - cut.last_sequence
        kept = {each.path: each.size for each in cut.files}
        for path in paths:
            if path not in kept:
                path.unlink()
            elif kept[path] < path.stat().st_size:
                os.truncate(path, kept[path])
                with path.open("rb+") as file:
                    os.fsync(file.fileno())
    return dropped


def _journal_of(node: NodeCut) -> Path:
    return Path("journal") if node.node_id == 1 else Path("nodes", str(node.node_id), "journal")
