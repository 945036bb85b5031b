"""Creates, reuses and removes the journal's files.

Committing into blocks that were written before is a third faster than into fresh ones, so a file is
filled with zeros once, in the background, and then used again and again. A file's life:

    N.spare  -- zero-filled, header with a new number and incarnation, durable --> N.journal
    N.journal -- frames until it is full: sealed -- flushed to a segment --> M.spare (M > N)

The header is durable before the name `.journal` is, and that before any frame is written, so a
`.journal` file with an unreadable header is corrupt, never half created. All other files (`.spare`,
`.tmp`) may be deleted at any time.

When a spare is late the journal continues in a new file without zero-filled blocks: slower, but
never blocked.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from trilogue.log.files import BLOCK, File, FileSystem
from trilogue.log.journal.frame import FileHeader, encode_file_header, file_name
from trilogue.log.memory import aligned
from trilogue.log.ports import Background, Scheduler

log = logging.getLogger(__name__)

FILL_BYTES = 1 << 20
RAW_FILES = 2
"""Number of flushed files kept for reuse; further ones are removed."""
SPARES = 2


class SealedFile(msgspec.Struct, frozen=True):
    """A journal file that takes no more frames and waits to be flushed to a segment."""

    path: Path
    number: int
    incarnation: int
    first_sequence: int
    last_sequence: int
    size: int  # up to the end of the last frame
    entry_count: int
    first_append_ms: int


class JournalFile:
    """The file that receives frames, and how far it is filled."""

    __slots__ = (
        "entry_count",
        "file",
        "first_append_ms",
        "first_sequence",
        "header",
        "last_sequence",
        "position",
        "prepared",
        "seed",
    )

    def __init__(self, file: File, header: FileHeader, prepared: int) -> None:
        self.file = file
        self.header = header
        self.seed = header.seed
        self.prepared = prepared  # up to here its blocks are already written
        self.position = BLOCK
        self.entry_count = 0
        self.first_sequence = 0
        self.last_sequence = 0
        self.first_append_ms = 0

    @property
    def is_empty(self) -> bool:
        """Whether no frame was written to it since it got its header."""
        return self.position == BLOCK

    def seal(self) -> SealedFile:
        """Close the file and return its description."""
        self.file.close()
        return SealedFile(
            path=self.file.path,
            number=self.header.number,
            incarnation=self.header.incarnation,
            first_sequence=self.first_sequence,
            last_sequence=self.last_sequence,
            size=self.position,
            entry_count=self.entry_count,
            first_append_ms=self.first_append_ms,
        )


class JournalFiles:
    """Keeps a prepared file ready and reuses old ones."""

    def __init__(
        self,
        *,
        fs: FileSystem,
        directory: Path,
        cluster_id: bytes,
        scheduler: Scheduler,
        background: Background,
        random_bytes: Callable[[int], bytes],
        file_bytes: int,
        has_room: Callable[[int], bool],
    ) -> None:
        self._fs = fs
        self.directory = directory
        self._cluster_id = cluster_id
        self._scheduler = scheduler
        self._background = background
        self._random_bytes = random_bytes
        self._file_bytes = file_bytes
        self._has_room = has_room
        self.direct = fs.takes_direct(directory)  # queried once: it does not change
        self._next_number = 1
        self._taken = 0  # number of the newest file in use
        self._spares: list[JournalFile] = []
        self._raw: list[Path] = []
        self._preparing = False
        self._stopped = False
        self._working = threading.Lock()  # held while a file is prepared in the background

    @property
    def is_ready(self) -> bool:
        """Whether `take_file` can return a prepared file at once."""
        return bool(self._spares)

    def continue_after(self, last_number: int, newest_number: int) -> None:
        """Continue after the last file that holds frames; newer numbers may be in use already."""
        self._next_number = newest_number + 1
        self._taken = last_number

    def adopt(self, path: Path, header: FileHeader) -> None:
        """Use a prepared file of an earlier process, numbered above all files in use."""
        file = self._fs.open(path, direct=self.direct)
        self._spares.append(JournalFile(file, header, file.size()))
        self._spares.sort(key=lambda spare: spare.header.number)

    def take_file(self, prepare_bytes: int = 0, *, prepare_next: bool = True) -> JournalFile:
        """Return the file to write next; without a spare, a new one filled up to `prepare_bytes`.

        Its header is durable. Raises `OSError`. Then prepares a spare if `prepare_next` is set.
        """
        if self._spares:
            taken = self._spares.pop(0)
        else:
            taken = self._prepare(None, self._new_header(), prepare_bytes)
        self._taken = taken.header.number
        if prepare_next:
            self.prepare_spare()
        return taken

    def prepare_spare(self) -> None:
        """Prepare a spare in the background unless there is one or no room for it.

        Where flushed files wait for reuse, two spares are kept: under load one is full before
        another has its new header, and without a spare the journal writes to blocks that were never
        written.
        """
        wanted = SPARES if self._raw else 1
        if len(self._spares) >= wanted or self._preparing or self._stopped:
            return
        raw = self._raw.pop(0) if self._raw else None
        if raw is None and not self._has_room(self._file_bytes):
            return
        self._preparing = True
        header = self._new_header()
        self._background(lambda: self._prepare_in_background(raw, header))

    def recycle(self, path: Path) -> None:
        """Keep a flushed file for reuse, or remove it when enough are kept."""
        if len(self._raw) < RAW_FILES:
            self._raw.append(path)
            self.prepare_spare()
        else:
            self._background(lambda: self._remove(path))

    def stop_preparing(self) -> None:
        """Prepare no more files; returns when none is in preparation."""
        with self._working:
            self._stopped = True

    def close(self) -> None:
        """Close open files; spares stay on disk for the next start."""
        self.stop_preparing()
        for spare in self._spares:
            spare.file.close()
        self._spares.clear()

    def _new_header(self) -> FileHeader:
        number = self._next_number
        self._next_number += 1
        return FileHeader(number, int.from_bytes(self._random_bytes(8), "big"), self._cluster_id)

    def _prepare_in_background(self, raw: Path | None, header: FileHeader) -> None:
        with self._working:
            if self._stopped:
                return
            try:
                made = self._prepare(raw, header, self._file_bytes)
            except OSError as error:
                log.warning("journal.spare_failed", extra={"reason": str(error)})
                self._scheduler.call_soon_threadsafe(self._spare_failed)
            else:
                self._scheduler.call_soon_threadsafe(lambda: self._spare_ready(made))

    def _remove(self, path: Path) -> None:
        with self._working:
            if self._stopped:
                return
            try:
                self._fs.unlink(path)
            except OSError as error:
                log.warning("journal.file_not_removed", extra={"reason": str(error)})

    def _prepare(self, raw: Path | None, header: FileHeader, prepare_bytes: int) -> JournalFile:
        """Create a file whose header, size and name are durable. Runs in any thread."""
        fs = self._fs
        path = self.directory / file_name(header.number)
        spare = path.with_suffix(".spare")
        if raw is not None:
            fs.rename(raw, spare)
            fs.sync_directory(self.directory)  # its old name must not come back with a new header
        file = fs.open(spare, create=raw is None, direct=self.direct)
        try:
            size = _fill(file, prepare_bytes)
            block = aligned(BLOCK)
            block[:] = encode_file_header(header)
            file.pwrite_durable(block, 0)
            fs.rename(spare, path)
            fs.sync_directory(self.directory)
        except OSError:
            file.close()
            with contextlib.suppress(OSError):  # half-made files are removed at the next start too
                fs.unlink(spare)
            raise
        return JournalFile(_reopened(fs, file, path, direct=self.direct), header, size)

    def _spare_failed(self) -> None:
        self._preparing = False

    def _spare_ready(self, made: JournalFile) -> None:
        self._preparing = False
        if self._stopped:
            made.file.close()
        elif made.header.number < self._taken:  # it was late: files have to be used in order
            made.file.close()
            self._raw.append(made.file.path)
            self.prepare_spare()
        else:
            self._spares.append(made)
            self.prepare_spare()


def _fill(file: File, size: int) -> int:
    """Write zeros from the end of the file to `size`, durably; return the file's size."""
    at = file.size()
    if at >= size:
        return at
    zeros = aligned(FILL_BYTES)
    while at < size:
        part = min(FILL_BYTES, size - at)
        file.pwrite(zeros[:part], at)
        at += part
    file.sync()
    return at


def _reopened(fs: FileSystem, file: File, path: Path, *, direct: bool) -> File:
    """Reopen the file under its final name, so that error messages name it correctly."""
    file.close()
    return fs.open(path, direct=direct)
