"""Checks the formats of a data directory before anything in it is changed.

A program that finds data of a newer one must leave it as it is, byte for byte: the newer program
will be started again. Opening changes things in an order (meta gets a new epoch before the journal
is read), so every part that records its format is checked first. Segments are not: there may be
many, nothing writes to them, and one in a newer format is refused when it is read.
"""

from __future__ import annotations

import re
from typing import Final

from trilogue.log.directory import DataDirectory
from trilogue.log.errors import NewerFormat
from trilogue.log.files import BLOCK, FileSystem
from trilogue.log.journal.frame import decode_file_header, file_number, frame_at
from trilogue.log.segments.manifest import FORMAT_VERSION as MANIFEST_VERSION
from trilogue.log.segments.manifest import MANIFEST_NAME

_MANIFEST: Final = re.compile(rb'\s*{\s*"format"\s*:\s*(\d{1,9})\s*,')
_MANIFEST_HEAD: Final = 100


def check_formats(fs: FileSystem, directory: DataDirectory) -> None:
    """Raise `NewerFormat` if the journal or the manifest is newer than this program.

    One journal file's first frame is enough: a program never writes to a file of another version.
    Damage is ignored here; it is reported when the file is opened for use.
    """
    for name in fs.listdir(directory.journal):
        if file_number(name) is None:
            continue
        file = fs.open_read(directory.journal / name)
        try:
            view = file.map()
            header = decode_file_header(view)
            if header is not None:
                frame_at(view, BLOCK, header.seed)
        except NewerFormat as error:
            raise NewerFormat(f"{error}: {directory.journal / name}") from None
        finally:
            file.close()
    _check_manifest(fs, directory)


def _check_manifest(fs: FileSystem, directory: DataDirectory) -> None:
    path = directory.segments / MANIFEST_NAME
    if not fs.exists(path):
        return
    file = fs.open_read(path)
    try:
        found = _MANIFEST.match(file.pread(_MANIFEST_HEAD, 0))
    finally:
        file.close()
    if found is not None and int(found[1]) > MANIFEST_VERSION:
        raise NewerFormat(
            f"manifest format {int(found[1])} is newer than {MANIFEST_VERSION}: {path}"
        )
