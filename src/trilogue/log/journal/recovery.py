"""Recovers the journal after a crash: decides which frames are valid and which were never durable.

Files are read in the order of their numbers, and frames as long as each continues the sequence of
the one before. At the end of that chain there are two possibilities. If no later frame was ever
acknowledged, it is the torn tail of the last write, which is dropped with everything after it. If a
later valid frame records that the missing one was durable when it was written, the disk has lost
data, and the start is refused (or, with salvage, continues after the gap, which stays marked for
ever).

After a kill the page cache may show frames that are not on the disk. So the file with the last
frame is rewritten, synced and renamed over the old one before anything is served: data that readers
have seen must survive the next power cut. Recovered files receive no more frames.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from trilogue.log.errors import CorruptLog
from trilogue.log.files import BLOCK, FileSystem
from trilogue.log.journal.files import SealedFile
from trilogue.log.journal.frame import (
    LOST,
    FileHeader,
    Frame,
    decode_file_header,
    file_number,
    frame_at,
    iter_frames,
    lost_frame,
    sequence_at,
)

log = logging.getLogger(__name__)

COPY_BYTES: Final = 1 << 20

Replay = Callable[[memoryview, Frame, Path], None]


class JournalContent(msgspec.Struct):
    """A journal file and its valid frames."""

    path: Path
    header: FileHeader
    data: memoryview
    frames: list[Frame]

    @property
    def end(self) -> int:
        """The position where its valid frames end."""
        return self.frames[-1].end if self.frames else BLOCK


class RecoveryResult(msgspec.Struct):
    """The result of a recovery: what the journal continues with."""

    last_sequence: int
    last_number: int = 0  # of the files in the chain
    newest_number: int = 0  # of all files: new ones get larger numbers
    sealed: list[SealedFile] = msgspec.field(default_factory=list)  # waiting for a flush, in order
    prepared: list[tuple[Path, FileHeader]] = msgspec.field(
        default_factory=list
    )  # empty, ready for use
    used: list[Path] = msgspec.field(default_factory=list)  # to be reused with new headers
    frames: int = 0
    torn: bool = False  # a write looks incomplete
    lost_frames: bool = False  # salvage skipped some, now or earlier


def recover(
    fs: FileSystem, directory: Path, *, cluster_id: bytes, flushed_through: int, replay: Replay
) -> RecoveryResult:
    """Find the valid frames and pass those beyond `flushed_through` to `replay`, in order.

    All their content is durable when this returns. Raises `CorruptLog` or `OSError`.
    """
    files = _read_files(fs, directory, cluster_id)
    chain, expected = _chain(files, flushed_through)
    others = [found for found in files if found not in chain]
    newest = max((found.header.number for found in files), default=0)
    recovered = RecoveryResult(expected - 1, newest_number=newest)
    last = chain[-1] if chain else None
    _refuse_corruption(last, others, expected)
    _drop_false_frames(fs, directory, others, flushed_through, recovered)
    if recovered.prepared:  # a killed process may not have made their names durable
        fs.sync_directory(directory)
    if last is not None:
        recovered.last_number = last.header.number
        recovered.torn |= sequence_at(last.data, last.end) == expected
        if last.frames[-1].sequence > flushed_through:
            _rewrite_file(fs, last)
    for found in chain:
        if found.frames[-1].sequence <= flushed_through:
            recovered.used.append(found.path)
            continue
        for frame in found.frames:
            if frame.sequence > flushed_through:
                recovered.lost_frames |= bool(frame.flags & LOST)
                recovered.frames += 1
                replay(found.data, frame, found.path)
        recovered.sealed.append(_sealed(found))
    return recovered


def _read_files(fs: FileSystem, directory: Path, cluster_id: bytes) -> list[JournalContent]:
    """Map all journal files, oldest first; remove unfinished ones."""
    files = []
    for name in fs.listdir(directory):
        path = directory / name
        number = file_number(name)
        if number is None:
            if path.suffix in {".spare", ".tmp"}:
                fs.unlink(path)
            continue
        data = _map(fs, path)
        header = decode_file_header(data)
        if header is None:
            raise CorruptLog("the header of a journal file does not read", path, 0)
        if header.number != number:
            raise CorruptLog(f"this is journal file {header.number} under a wrong name", path, 0)
        if header.cluster_id != cluster_id:
            raise CorruptLog("this journal file belongs to another cluster", path, 0)
        files.append(JournalContent(path, header, data, list(iter_frames(data, header))))
    return files  # in the order of their names, which is that of their numbers


def _map(fs: FileSystem, path: Path) -> memoryview:
    file = fs.open(path)
    try:
        return file.map()
    finally:
        file.close()


def _chain(
    files: Sequence[JournalContent], flushed_through: int
) -> tuple[list[JournalContent], int]:
    """Return the files whose frames follow each other without a gap, and the next sequence."""
    chain: list[JournalContent] = []
    expected = flushed_through + 1
    for found in files:
        if not found.frames:
            continue
        first, last = found.frames[0], found.frames[-1]
        if last.sequence < expected:  # flushed; or, if later ones are not, out of order
            if last.sequence <= flushed_through and expected == flushed_through + 1:
                chain.append(found)
            continue
        if first.sequence <= expected or first.flags & LOST:
            if chain and first.sequence < expected and expected > flushed_through + 1:
                raise CorruptLog(f"frame {first.sequence} is there twice", found.path, BLOCK)
            chain.append(found)
            expected = last.sequence + 1
    return chain, expected


def _refuse_corruption(
    last: JournalContent | None, others: Sequence[JournalContent], expected: int
) -> None:
    """Raise `CorruptLog` if a later frame proves that the next expected one was durable."""
    later = [(found, BLOCK) for found in others]
    if last is not None:
        later.insert(0, (last, last.end))
    for found, start in later:
        for frame in _valid_frames(found, start, expected):
            if frame.durable_through >= expected:
                where = last or found
                raise CorruptLog(
                    f"frame {expected} was durable (frame {frame.sequence} records it) and is not "
                    "readable; start with --salvage to go on without it",
                    where.path,
                    where.end if last is not None else BLOCK,
                )


def _valid_frames(found: JournalContent, start: int, least: int) -> Iterator[Frame]:
    """Yield the valid frames of a sequence not below `least`, at any block boundary."""
    data, seed = found.data, found.header.seed
    position = start
    while position < len(data):
        claim = sequence_at(data, position)
        frame = None if claim is None or claim < least else frame_at(data, position, seed)
        if frame is not None:
            yield frame
        position = position + BLOCK if frame is None else frame.end


def _drop_false_frames(
    fs: FileSystem,
    directory: Path,
    others: Sequence[JournalContent],
    flushed_through: int,
    recovered: RecoveryResult,
) -> None:
    """Classify the files that are not in the chain.

    Some are prepared and empty. Frames beyond the end of the chain were never acknowledged; they
    must be erased before their sequence numbers are assigned again.
    """
    dropped = False
    for found in others:
        if found.frames and found.frames[-1].sequence > flushed_through:
            recovered.torn = True
            fs.unlink(found.path)
            dropped = True
            continue
        claim = sequence_at(found.data, BLOCK)
        if found.frames or (claim is not None and claim > recovered.last_sequence):
            recovered.torn |= claim == recovered.last_sequence + 1
            recovered.used.append(found.path)
        else:
            recovered.prepared.append((found.path, found.header))
    if dropped:
        fs.sync_directory(directory)


def _rewrite_file(fs: FileSystem, found: JournalContent) -> None:
    """Replace a file by a durable copy of its valid part."""
    write_copy(fs, found.path, [found.data[: found.end]])


def write_copy(fs: FileSystem, path: Path, parts: Sequence[memoryview | bytes]) -> None:
    """Replace `path` durably by a new file of these bytes."""
    temporary = path.with_suffix(".tmp")
    if fs.exists(temporary):
        fs.unlink(temporary)
    file = fs.open(temporary, create=True)
    try:
        at = 0
        for part in parts:
            for start in range(0, len(part), COPY_BYTES):
                piece = part[start : start + COPY_BYTES]
                file.pwrite(piece, at)
                at += len(piece)
        file.sync()
    finally:
        file.close()
    fs.rename(temporary, path)
    fs.sync_directory(path.parent)


def _sealed(found: JournalContent) -> SealedFile:
    return SealedFile(
        path=found.path,
        number=found.header.number,
        incarnation=found.header.incarnation,
        first_sequence=found.frames[0].sequence,
        last_sequence=found.frames[-1].sequence,
        size=found.end,
        entry_count=sum(frame.entry_count for frame in found.frames),
        first_append_ms=found.frames[0].append_time_ms,
    )


# -- salvage -------------------------------------------------------------------------------------


def salvage(fs: FileSystem, directory: Path, *, flushed_through: int, now_ms: int) -> int:
    """Rewrite damaged journal files so that `recover` continues after the unreadable part.

    One empty frame takes the place of missing frames and records which. Files with an unreadable
    header are renamed to `.damaged`. Returns how many frames are lost.
    """
    lost = 0
    expected = flushed_through + 1
    for name in fs.listdir(directory):
        path = directory / name
        if file_number(name) is None:
            continue
        data = _map(fs, path)
        header = decode_file_header(data)
        if header is None or header.number != file_number(name):
            log.error("salvage.file_unreadable", extra={"path": str(path)})
            fs.rename(path, path.with_suffix(".damaged"))
            fs.sync_directory(directory)
            continue
        found = JournalContent(path, header, data, [])
        parts: list[memoryview | bytes] = [data[:BLOCK]]
        damaged = False
        for frame in _valid_frames(found, BLOCK, expected):
            if frame.sequence > expected and not frame.flags & LOST:
                log.error(
                    "salvage.frames_lost",
                    extra={"first": expected, "last": frame.sequence - 1, "path": str(path)},
                )
                lost += frame.sequence - expected
                parts.append(
                    lost_frame(header.seed, sequence=frame.sequence - 1, append_time_ms=now_ms)
                )
                damaged = True
            parts.append(data[frame.position : frame.end])
            expected = frame.sequence + 1
        if damaged:
            write_copy(fs, path, parts)
    return lost
