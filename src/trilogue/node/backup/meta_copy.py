"""Copies the metadata of one machine's nodes while they write to it.

SQLite copies one moment of the database, without keeping a writer waiting. In the copy every
segment is a file: a backup holds also those that the server has in object storage.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec

from trilogue.log.directory import CLUSTER_FILE
from trilogue.log.errors import CorruptLog, NewerFormat
from trilogue.meta.operations import FORMAT_VERSION
from trilogue.meta.sqlite import connect
from trilogue.meta.state import MetaState
from trilogue.meta.tables import APPLICATION_ID, load_state
from trilogue.node.backup.errors import BackupError

META_NAME = "meta.sqlite"


def copy_meta(data: Path, target: Path) -> MetaState:
    """Copy the metadata of a data directory to a new file, and return what it holds.

    Raises `BackupError` or `LogError` for what cannot be read. `read_head` comes first.
    """
    source = data / META_NAME
    with _sqlite_errors(source):
        with _connect(source) as reader, contextlib.closing(sqlite3.connect(target)) as writer:
            reader.backup(writer)
            writer.execute("PRAGMA journal_mode = DELETE")
        return _take_files(target)


class MetaHead(msgspec.Struct, frozen=True):
    """What a backup has to know before it copies anything."""

    cluster_id: bytes
    flushed_through: dict[int, int]  # by node: the last frame of its journal that is in segments


def read_head(data: Path) -> MetaHead:
    """Read the head of the metadata as of now. Raises `BackupError` where it is not in a file."""
    source = data / META_NAME
    if (data / CLUSTER_FILE).exists():
        raise BackupError(
            f"{data} belongs to a node of a cluster, whose metadata is in PostgreSQL: back up the "
            "database (pg_dump, or an archive of its log), and the bucket with versioning; see "
            "docs/how-to/back-up-and-restore.md"
        )
    if not source.exists():
        raise BackupError(f"{data} holds no data of a server: --data DIR names its directory")
    _check_format(source)
    with _sqlite_errors(source), _connect(source) as reader:
        identity = dict(reader.execute("SELECT key, value FROM identity"))
        flushed = reader.execute("SELECT node_id, flushed_through FROM nodes")
        return MetaHead(identity["cluster_id"], dict(flushed.fetchall()))


def read_format(path: Path) -> int:
    """Return the format of metadata; 0 for a database that is none."""
    with _sqlite_errors(path), _connect(path) as reader:
        (application,) = reader.execute("PRAGMA application_id").fetchone()
        (version,) = reader.execute("PRAGMA user_version").fetchone()
        return int(version) if application == APPLICATION_ID else 0


def _check_format(source: Path) -> None:
    version = read_format(source)
    if version > FORMAT_VERSION:
        raise NewerFormat(f"meta has format {version}, this program knows {FORMAT_VERSION}")
    if version < FORMAT_VERSION:
        raise BackupError(
            f"{source} has format {version}, of an older version: take the backup with that "
            "version, or start this one once"
        )


def _take_files(target: Path) -> MetaState:
    """Make every segment a file; return what the copy held before."""
    with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as connection:
        state = load_state(connection.execute, 1)
        connection.execute("UPDATE segments SET store = ''")
    return state


def _connect(path: Path) -> contextlib.closing[sqlite3.Connection]:
    return contextlib.closing(connect(path, read_only=True))


@contextlib.contextmanager
def _sqlite_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise BackupError(f"the metadata cannot be copied ({error}): {path}") from error
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
        raise CorruptLog(f"meta holds rows that cannot be ({error!r})", path) from error
