"""Writes the journal of a node again from its windows in PostgreSQL.

```
 row     +--------+-------------+----------------------+
         | number | incarnation | frame without padding |
         +--------+-------------+----------------------+
```

With `ack=shared` the rows are the journal, and files in the directory are only what the flush
reads. So whatever files are there at a start are removed, and those of the rows are written: with
their numbers and incarnations, which the checksums of the frames depend on. Recovery then reads
them like files that a process has left behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from struct import Struct
from typing import Final

from trilogue.log.errors import CorruptLog
from trilogue.log.files import FileSystem
from trilogue.log.journal.frame import (
    FileHeader,
    encode_file_header,
    file_name,
    frame_at,
    frame_length,
    padded,
    sequence_at,
)
from trilogue.log.journal.recovery import write_copy
from trilogue.meta.shared_journal import Window

_ROW: Final = Struct(">QQ")  # number and incarnation of the journal file


def encode_row(header: FileHeader, frame: memoryview) -> tuple[int, bytes]:
    """Return the sequence of a frame, and the bytes of its row."""
    sequence = sequence_at(frame, 0)
    assert sequence is not None
    prefix = _ROW.pack(header.number, header.incarnation)
    return sequence, b"".join((prefix, frame[: frame_length(frame, 0)]))


def write_journal(
    fs: FileSystem, directory: Path, cluster_id: bytes, windows: Sequence[Window]
) -> None:
    """Replace the journal files of a directory by those of the windows. CorruptLog, OSError."""
    for name in fs.listdir(directory):
        fs.unlink(directory / name)
    fs.sync_directory(directory)
    for (number, incarnation), group in groupby(windows, key=_file_of):
        header = FileHeader(number, incarnation, cluster_id)
        write_copy(
            fs,
            directory / file_name(number),
            [bytes(encode_file_header(header)), *_frames(header, group)],
        )


def _file_of(window: Window) -> tuple[int, int]:
    if len(window.data) < _ROW.size:
        raise CorruptLog(f"window {window.sequence} has no frame")
    number, incarnation = _ROW.unpack_from(window.data)
    return number, incarnation


def _frames(header: FileHeader, windows: Iterable[Window]) -> list[bytes | memoryview]:
    """Return the frames of one file with their padding, verified."""
    parts: list[bytes | memoryview] = []
    for window in windows:
        data = memoryview(window.data)[_ROW.size :]
        frame = frame_at(data, 0, header.seed)
        if frame is None or frame.sequence != window.sequence or frame.length != len(data):
            raise CorruptLog(f"window {window.sequence} is not the frame that was written")
        parts += [data, bytes(padded(len(data)) - len(data))]
    return parts
