"""Takes a backup of a data directory while a server works on it.

    journal, as it is ──► metadata of one moment after it ──► segments that the metadata names
                                                                └──► other files, the record

The server takes no part: a backup is what a crash at the cut would have left, and a start from it
recovers as after a crash. Segments never change, so only new ones are copied. With several nodes
their journals end at the same time of the machine's clock, so that no transaction has its outcome
on one node and not on another.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from trilogue import __version__
from trilogue.entry.checksum import crc32c
from trilogue.log.directory import CLUSTER_FILE, FORMAT, RESTORING
from trilogue.log.errors import SegmentMissing
from trilogue.log.files import OsFileSystem
from trilogue.log.objects.cache import ObjectCache
from trilogue.log.objects.obstore_store import Reach
from trilogue.log.segments.segment import HEADER
from trilogue.log.segments.segment_files import SegmentFile, SegmentFiles, is_remote
from trilogue.log.segments.segment_footer import read_header
from trilogue.log.segments.segment_info import SegmentInfo
from trilogue.meta.operations import FORMAT_VERSION
from trilogue.meta.state import MetaState
from trilogue.node.backup.errors import BackupError, CutMoved, described
from trilogue.node.backup.journal_copy import (
    FileCopy,
    JournalCut,
    check_flush,
    copy_journal,
    cut_journal,
    journal_folders,
)
from trilogue.node.backup.meta_copy import META_NAME, copy_meta, read_head
from trilogue.node.backup.record import (
    BackupRecord,
    NodeCut,
    StoredFile,
    encode_record,
    make_id,
    record_key,
)
from trilogue.node.backup.targets import BackupTarget

log = logging.getLogger(__name__)

ATTEMPTS: Final = 20
PIECE_BYTES: Final = 4 << 20
NOT_COPIED: Final = frozenset(
    {"lock", META_NAME, "reserve", "journal", "segments", "nodes", CLUSTER_FILE, RESTORING}
)
"""Names in a data directory that the copy of other files leaves out."""
UNFINISHED: Final = (".tmp", ".spare", "-wal", "-shm", "-journal")


class BackupResult(msgspec.Struct, frozen=True):
    """What a backup holds and what it cost."""

    record: BackupRecord
    copied_segments: int
    copied_bytes: int
    removed: list[str]  # ids of older backups


class _Cut(msgspec.Struct, frozen=True):
    """One consistent state: metadata and the end of each journal."""

    time_ms: int
    state: MetaState
    journals: dict[int, tuple[Path, JournalCut]]  # by node; the folder within the data directory


class BackupRun:
    """One backup of a data directory. `now_ms` is the clock of the server's machine."""

    def __init__(
        self,
        data: Path,
        target: BackupTarget,
        reach: Callable[[bytes], Reach] | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._data = data
        self._target = target
        self._reach = reach  # of the server's segments in object storage, by the cluster id
        self._now_ms = now_ms
        self._fs = OsFileSystem()
        self._copied_segments = 0
        self._copied_bytes = 0
        self._segments: dict[str, StoredFile] = {}  # those of this and earlier backups, by key
        self._objects: ObjectCache | None = None  # the server's segments in object storage

    def run(self, keep: int | None = None) -> BackupResult:
        """Take one backup and remove all but the newest `keep`. Raises `BackupError`."""
        if self._target.folder is not None and self._target.folder.is_relative_to(
            self._data.absolute()
        ):
            raise BackupError(f"{self._target.folder} is within the data directory")
        self._target.lock()
        try:
            earlier = self._target.records()
            for record in earlier:
                self._segments.update((each.key, each) for each in record.segments)
            record = self._attempts({record.cluster_id for record in earlier})
            removed = [] if keep is None else remove_old(self._target, [*earlier, record], keep)
            return BackupResult(record, self._copied_segments, self._copied_bytes, removed)
        finally:
            self._target.close()

    def _attempts(self, clusters: set[str]) -> BackupRecord:
        with described(f"the backup of {self._data}"):
            for _ in range(ATTEMPTS):
                with self._spool() as spool, contextlib.suppress(SegmentMissing):
                    try:
                        cut = self._cut(spool)
                    except CutMoved as moved:
                        reason = str(moved)
                        continue
                    self._check_cluster(cut.state.cluster_id.hex(), clusters)
                    if self._reach is not None:
                        self._objects = self._reach(cut.state.cluster_id).cache()
                    return self._store(cut, spool)
                reason = "segments were merged and removed before they were copied"
        raise BackupError(
            f"the backup of {self._data}: no consistent cut in {ATTEMPTS} attempts ({reason}); try "
            "again when less is written, or with a longer segments.grace"
        )

    def _check_cluster(self, cluster_id: str, clusters: set[str]) -> None:
        if clusters - {cluster_id}:
            raise BackupError(
                f"{self._target.name} has the backups of another server (cluster "
                f"{min(clusters - {cluster_id})}): choose another place"
            )

    @contextlib.contextmanager
    def _spool(self) -> Iterator[Path]:
        """Make a folder for copies: in the target, if that is a folder; it has the room."""
        parent = self._target.folder
        if parent is not None:
            for left in parent.glob("spool-*"):  # of a backup that was killed
                _remove_folder(left)
        with tempfile.TemporaryDirectory(prefix="spool-", dir=parent) as name:
            yield Path(name)

    # -- the cut ---------------------------------------------------------------------------

    def _cut(self, spool: Path) -> _Cut:
        head = read_head(self._data)
        time_ms = self._now_ms()
        copies: dict[int, tuple[Path, list[FileCopy]]] = {}
        for node_id, folder in journal_folders(self._data):
            place = spool / f"journal-{node_id}"
            place.mkdir()
            found = copy_journal(self._fs, folder, place, cluster_id=head.cluster_id)
            copies[node_id] = (folder.relative_to(self._data), found)
        state = copy_meta(self._data, spool / META_NAME)
        journals = {}
        for node_id, (folder, found) in copies.items():
            if node_id not in state.nodes:
                continue
            through = state.nodes[node_id].flushed_through
            if len(copies) > 1 and through != head.flushed_through.get(node_id, 0):
                check_flush(found, through, time_ms)
            until_ms = time_ms if len(copies) > 1 else None
            journals[node_id] = (folder, cut_journal(found, through, until_ms))
        return _Cut(time_ms, state, journals)

    # -- what is stored --------------------------------------------------------------------

    def _store(self, cut: _Cut, spool: Path) -> BackupRecord:
        backup_id = make_id(cut.time_ms)
        stored = self._target.sizes("segments")
        segments = [
            self._store_segment(info, stored, spool)
            for info in sorted(cut.state.segments.values(), key=lambda each: each.segment_id)
        ]
        paths: list[tuple[str, Path, int | None]] = [(META_NAME, spool / META_NAME, None)]
        for folder, journal in cut.journals.values():
            paths += [(f"{folder}/{each.name}", each.path, each.size) for each in journal.files]
        paths += [(name, self._data / name, None) for name in self._other_files()]
        files = []
        for number, (path, source, size) in enumerate(paths, 1):
            key = f"backups/{backup_id}/{number:04d}"
            files.append(self._store_file(path, key, source, size))
        record = BackupRecord(
            backup_id,
            cut.state.cluster_id.hex(),
            cut.time_ms,
            __version__,
            FORMAT,
            FORMAT_VERSION,
            [
                NodeCut(
                    node_id,
                    cut.state.nodes[node_id].flushed_through,
                    journal.last_sequence,
                    journal.first_ms,
                    journal.last_ms,
                )
                for node_id, (_, journal) in sorted(cut.journals.items())
            ],
            files,
            segments,
            any(info.store for info in cut.state.segments.values()),
        )
        self._target.put(record_key(backup_id), encode_record(record))
        return record

    def _other_files(self) -> Iterator[str]:
        """Yield the names of keys, certificates, logs and the like in the data directory."""
        for folder, folders, names in os.walk(self._data):
            inner = Path(folder).relative_to(self._data)
            if inner == Path():
                folders[:] = [each for each in folders if each not in NOT_COPIED]
            for name in sorted(names):
                if inner == Path() and name in NOT_COPIED:
                    continue
                if not name.endswith(UNFINISHED) and stat.S_ISREG(
                    os.lstat(Path(folder, name)).st_mode
                ):
                    yield str(inner / name)

    def _store_file(self, path: str, key: str, source: Path, size: int | None) -> StoredFile:
        file = self._fs.open_read(source)
        try:
            view = file.map()[:size]
        finally:
            file.close()
        checksum = _checksum(view)
        self._target.put(key, view)
        self._copied_bytes += len(view)
        return StoredFile(path, key, len(view), checksum)

    def _store_segment(self, info: SegmentInfo, stored: dict[str, int], spool: Path) -> StoredFile:
        file = self._open_segment(info)
        try:
            key = f"segments/{Path(info.name).stem}-{_fingerprint(file, info)}.segment"
            known = self._segments.get(key)
            if known is not None and stored.get(key) == known.size:
                return known
            view = _view_of(file, info, spool)
            checksum = _checksum(view)
            if stored.get(key) != info.size:
                self._target.put(key, view)
                self._copied_segments += 1
                self._copied_bytes += info.size
        finally:
            file.close()
        made = StoredFile(f"segments/{info.name}", key, info.size, checksum)
        self._segments[key] = made
        return made

    def _open_segment(self, info: SegmentInfo) -> SegmentFile:
        return SegmentFiles(self._fs, self._data / "segments", self._objects).open(info)


def remove_old(target: BackupTarget, records: list[BackupRecord], keep: int) -> list[str]:
    """Remove all but the newest backups, and the segments that no other backup has.

    Records go first: what is left when this is interrupted is whole. Returns the ids.
    """
    records = sorted(records, key=lambda record: record.backup_id)
    removed, kept = records[:-keep], records[-keep:]
    if not removed and not target.is_exclusive:
        return []
    for record in removed:
        target.delete(record_key(record.backup_id))
    for record in removed:
        for each in record.files:
            target.delete(each.key)
    used = {each.key for record in kept for each in record.segments}
    if target.is_exclusive:  # what killed backups left, too
        prefixes = tuple(f"backups/{record.backup_id}/" for record in kept)
        found = [key for key in target.sizes("backups") if not key.startswith(prefixes)]
        found += [key for key in target.sizes("segments") if key not in used]
    else:
        found = sorted({e.key for record in removed for e in record.segments} - used)
    for key in found:
        target.delete(key)
    return [record.backup_id for record in removed]


def _fingerprint(file: SegmentFile, info: SegmentInfo) -> str:
    """Return what tells a segment from one of the same number: servers restored from one backup.

    The footer has the checksum of every block.
    """
    header = file.pread(HEADER.size, 0)
    footer = file.pread(info.size - info.footer_position, info.footer_position)
    read_header(Path(info.name), header, info)
    return hashlib.sha256(header + footer).hexdigest()[:16]


def _view_of(file: SegmentFile, info: SegmentInfo, spool: Path) -> memoryview:
    """Return all bytes of a segment, mapped; one in object storage is copied to the spool first."""
    if not is_remote(file):
        view: memoryview = file.map()  # type: ignore[attr-defined]
    else:
        path = spool / info.name
        with path.open("wb") as copy:
            for at in range(0, info.size, PIECE_BYTES):
                copy.write(file.pread(min(PIECE_BYTES, info.size - at), at))
        local = OsFileSystem().open_read(path)
        try:
            view = local.map()
        finally:
            local.close()
            path.unlink()
    if len(view) != info.size:
        raise BackupError(f"segment {info.name} has {len(view)} bytes, not {info.size}")
    return view


def _checksum(view: memoryview) -> int:
    value = 0
    for at in range(0, len(view), PIECE_BYTES):
        value = crc32c(view[at : at + PIECE_BYTES], value)
    return value


def _remove_folder(path: Path) -> None:
    import shutil

    shutil.rmtree(path, ignore_errors=True)
