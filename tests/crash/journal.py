"""Damage done by hand to the journal of a server that was killed, on a copy of its data."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from trilogue.log.files import BLOCK
from trilogue.log.journal.frame import Frame, decode_file_header, frame_at

SEQUENCE_AT = 16


class JournalFile(NamedTuple):
    """A file of the journal with the valid frames in it."""

    path: Path
    number: int
    frames: list[Frame]

    @property
    def end(self) -> int:
        return self.frames[-1].end if self.frames else BLOCK


def newest(data: Path) -> JournalFile:
    """The file with the highest sequence: where the server wrote last."""
    read = [read_file(path) for path in (data / "journal").iterdir() if path.is_file()]
    return max(
        (file for file in read if file is not None and file.frames),
        key=lambda file: file.frames[-1].sequence,
    )


def read_file(path: Path) -> JournalFile | None:
    data = memoryview(path.read_bytes())
    header = decode_file_header(data)
    if header is None:
        return None
    frames: list[Frame] = []
    position = BLOCK
    while frame := frame_at(data, position, header.seed):
        if frames and frame.sequence != frames[-1].sequence + 1:
            break
        frames.append(frame)
        position = frame.end
    return JournalFile(path, header.number, frames)


def overwrite(file: JournalFile, position: int, data: bytes) -> None:
    with file.path.open("r+b") as handle:
        handle.seek(position)
        handle.write(data)


def bytes_of(file: JournalFile, frame: Frame) -> bytearray:
    return bytearray(file.path.read_bytes()[frame.position : frame.end])


def append_garbage(file: JournalFile) -> None:
    overwrite(file, file.end, b"\xa5garbage" * 1500)


def append_torn_frame(file: JournalFile) -> None:
    """What looks like the next frame, but its checksum does not agree: it was never acked."""
    torn = bytes_of(file, file.frames[-1])
    torn[SEQUENCE_AT : SEQUENCE_AT + 8] = (file.frames[-1].sequence + 1).to_bytes(8, "big")
    overwrite(file, file.end, bytes(torn))


def append_old_frame(file: JournalFile) -> None:
    """A frame that was valid once, where a recycled file would show it."""
    overwrite(file, file.end, bytes(bytes_of(file, file.frames[0])))


def chop(file: JournalFile, frames: int) -> None:
    """The last frames are zeros: what a disk shows that lied about them."""
    first = file.frames[-frames]
    overwrite(file, first.position, bytes(file.end - first.position))


def cut_in_half(file: JournalFile) -> None:
    """The file ends in the middle of its last frame."""
    last = file.frames[-1]
    with file.path.open("r+b") as handle:
        handle.truncate(last.position + last.length // 2)


def flip_in_the_middle(file: JournalFile) -> None:
    """One bit of a frame that later frames call durable."""
    frame = file.frames[len(file.frames) // 2]
    data = bytes_of(file, frame)
    data[frame.length // 2] ^= 1
    overwrite(file, frame.position, bytes(data))
