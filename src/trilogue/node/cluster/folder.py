"""The file `cluster` of a data directory: which cluster it belongs to.

    trilogue cluster folder <home> of <cluster id>

`home` is a random name of the directory, written before the node is first known in the database:
a node id belongs to one directory, so no second one can take it. The cluster id is `none` until
the database has answered; from then on no other database is accepted, nor an emptied one, in which
the partitions of the journal would be unknown and so dropped as deleted.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import msgspec

from trilogue.log.directory import CLUSTER_FILE, DataDirectory, write_small
from trilogue.log.errors import CorruptLog, StorageFailed
from trilogue.log.files import FileSystem

_TEXT: Final = re.compile(rb"trilogue cluster folder ([0-9a-f]{32}) of (none|[0-9a-f]{32})\n")


class ClusterFolder(msgspec.Struct, frozen=True):
    """The content of the file."""

    home: bytes
    cluster_id: bytes | None = None

    def encode(self) -> bytes:
        """Return the text of the file."""
        cluster_id = "none" if self.cluster_id is None else self.cluster_id.hex()
        return f"trilogue cluster folder {self.home.hex()} of {cluster_id}\n".encode()


def open_folder(fs: FileSystem, directory: DataDirectory) -> ClusterFolder:
    """Read the file, or make a directory without data one of a cluster. LogError."""
    path = _path(directory)
    if fs.exists(path):
        return _decode_folder(fs.read(path), path)
    if fs.exists(directory.meta) or fs.listdir(directory.journal):
        raise StorageFailed(
            "the folder holds the data of a node without a cluster: a node of a cluster starts "
            "with a folder of its own"
        )
    folder = ClusterFolder(os.urandom(16))
    write_small(fs, path, folder.encode())
    return folder


def make_folder(data: Path, home: bytes) -> None:
    """Make an empty directory one of a cluster, with a name of 16 bytes. OSError."""
    (data / CLUSTER_FILE).write_bytes(ClusterFolder(home).encode())


def read_folder(data: Path) -> ClusterFolder | None:
    """Return what a data directory belongs to; None if it is of no cluster. CorruptLog, OSError."""
    path = data / CLUSTER_FILE
    return _decode_folder(path.read_bytes(), path) if path.exists() else None


def _decode_folder(text: bytes, path: Path) -> ClusterFolder:
    found = _TEXT.fullmatch(text)
    if found is None:
        raise CorruptLog("the file names no cluster", path)
    home, cluster_id = (bytes.fromhex(each.decode()) if each != b"none" else None
                        for each in found.groups())  # fmt: skip
    assert home is not None
    return ClusterFolder(home, cluster_id)


def decode_home(text: bytes) -> bytes:
    """Return the name of the directory in the text of the file; empty if there is none."""
    found = _TEXT.fullmatch(text)
    return bytes.fromhex(found[1].decode()) if found else b""


def record_cluster(fs: FileSystem, directory: DataDirectory, folder: ClusterFolder) -> None:
    """Write the id of the cluster, durably."""
    write_small(fs, _path(directory), folder.encode())


def _path(directory: DataDirectory) -> Path:
    return directory.path / CLUSTER_FILE
