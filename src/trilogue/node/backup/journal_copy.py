"""Copies journal files while a server writes and recycles them, and cuts the copy behind a frame.

A frame proves by its checksum that it belongs to its file's present life, and by its sequence that
it follows the one before. So the bytes are read first and examined afterwards: what the server
changed meanwhile is not valid in the copy.

Files are recycled only when metadata records that their frames are in segments. So of metadata that
is read *after* the journal, every frame beyond `flushed_through` that was acknowledged before the
copy began is in the copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from trilogue.log.errors import CorruptLog
from trilogue.log.files import BLOCK, FileSystem
from trilogue.log.journal.frame import (
    LOST,
    Frame,
    decode_file_header,
    file_number,
    iter_frames,
)
from trilogue.node.backup.errors import CutMoved


class FileCopy(msgspec.Struct):
    """The valid part of one journal file."""

    name: str
    path: Path  # of the copy
    frames: list[Frame]


class KeptFile(msgspec.Struct, frozen=True):
    """A file of a cut, and where it ends."""

    name: str
    path: Path
    size: int


class JournalCut(msgspec.Struct, frozen=True):
    """The frames of a journal from a flush to a moment."""

    files: list[KeptFile]
    last_sequence: int
    first_ms: int  # append times of the first and the last frame; 0: there is none
    last_ms: int


def copy_journal(
    fs: FileSystem, directory: Path, spool: Path, *, cluster_id: bytes
) -> list[FileCopy]:
    """Copy the valid part of each file into the folder `spool`, in the order of their numbers.

    Raises `CorruptLog` for a file whose header does not read, `CutMoved` if it was in the making.
    """
    copies = []
    for name in fs.listdir(directory):
        if file_number(name) is None:
            continue
        try:
            data = _read(fs, directory / name)
        except FileNotFoundError:
            continue  # recycled: all of it is in segments
        frames = _frames_of(data, directory / name, cluster_id)
        if frames:
            path = spool / name
            path.write_bytes(data[: frames[-1].end])
            copies.append(FileCopy(name, path, frames))
    return copies


def _read(fs: FileSystem, path: Path) -> memoryview:
    file = fs.open_read(path)
    try:
        room = memoryview(bytearray(file.size()))
        return room[: file.read_into(room, 0)]
    finally:
        file.close()


def _frames_of(data: memoryview, path: Path, cluster_id: bytes) -> list[Frame]:
    header = decode_file_header(data)
    if header is None or header.number != file_number(path.name):
        raise CutMoved(f"the header of {path} does not read")
    if header.cluster_id != cluster_id:
        raise CorruptLog("this journal file belongs to another cluster", path, 0)
    return list(iter_frames(data, header))


def read_copies(fs: FileSystem, paths: Iterable[Path], cluster_id: bytes) -> list[FileCopy]:
    """Return the frames of files that no server changes, in the order of the files' numbers."""
    copies = []
    for path in sorted(paths):
        file = fs.open_read(path)
        try:
            frames = _frames_of(file.map(), path, cluster_id)
        finally:
            file.close()
        copies.append(FileCopy(path.name, path, frames))
    return copies


def cut_journal(
    copies: Iterable[FileCopy], flushed_through: int, until_ms: int | None = None
) -> JournalCut:
    """Keep the frames behind a flush that follow each other, until one was written after a time.

    Raises `CutMoved` if frames are missing.
    """
    expected = flushed_through + 1
    kept: list[KeptFile] = []
    first_ms = last_ms = 0
    is_over = False
    for copy in copies:
        if is_over:
            break
        end, before = BLOCK, expected
        for frame in copy.frames:
            if frame.sequence <= flushed_through:
                end = frame.end
                continue
            if frame.sequence != expected and not frame.flags & LOST:
                if expected == flushed_through + 1:
                    raise CutMoved(f"frame {expected} of the journal is not there")
                is_over = True  # written after the files before were read
                break
            if until_ms is not None and frame.append_time_ms > until_ms:
                is_over = True
                break
            first_ms, last_ms = first_ms or frame.append_time_ms, frame.append_time_ms
            expected, end = frame.sequence + 1, frame.end
        if expected > before:
            kept.append(KeptFile(copy.name, copy.path, end))
    return JournalCut(kept, expected - 1, first_ms, last_ms)


def check_flush(copies: Iterable[FileCopy], flushed_through: int, until_ms: int) -> None:
    """Raise `CutMoved` unless the frames show that a flush ended before a time."""
    for copy in copies:
        for frame in copy.frames:
            if frame.sequence == flushed_through and frame.append_time_ms <= until_ms:
                return
    raise CutMoved("a flush was later than the cut")


def journal_folders(data: Path) -> Iterator[tuple[int, Path]]:
    """Yield the id and the journal of each node of a data directory."""
    yield 1, data / "journal"
    nodes = data / "nodes"
    if nodes.is_dir():
        for each in sorted(nodes.iterdir()):
            if each.name.isdigit() and each.name != "1" and (each / "journal").is_dir():
                yield int(each.name), each / "journal"
