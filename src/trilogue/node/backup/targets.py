"""Where backups lie: a folder of this machine, or a prefix of an S3 bucket.

Both are an `ObjectStore` whose objects are whole or absent and never overwritten. A folder needs no
package; it is locked while a backup is written or removed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote, urlsplit

from trilogue.entry.checksum import crc32c
from trilogue.log.directory import size_of
from trilogue.log.errors import (
    AlreadyLocked,
    ObjectDenied,
    ObjectExists,
    ObjectMissing,
    StorageUnavailable,
)
from trilogue.log.files import DIRECTORY_MODE, Lock, OsFileSystem
from trilogue.log.objects.objects import WRITING, ListedObject, ObjectStore
from trilogue.node.backup.errors import BackupError, described
from trilogue.node.backup.record import (
    RECORD_BYTES_MAX,
    RECORD_NAME,
    BackupRecord,
    decode_record,
    record_key,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from trilogue.log.objects.obstore_store import StoreOptions

PIECE_BYTES: Final = 4 << 20
UNFINISHED: Final = ".unfinished"
LOCK_NAME: Final = "lock"

Result = TypeVar("Result")


class FolderStore:
    """A folder. An object is synced before it gets its name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._fs = OsFileSystem()

    def put(self, key: str, data: Buffer) -> None:
        """Write an object beside its name, sync it, and rename it."""
        path = self.root / key
        if path.exists():
            raise ObjectExists(f"{path} exists")
        for folder in reversed([each for each in path.parents if each.is_relative_to(self.root)]):
            if not folder.exists():
                folder.mkdir(mode=DIRECTORY_MODE)
                self._fs.sync_directory(folder.parent)
        temporary = path.with_name(path.name + UNFINISHED)
        temporary.unlink(missing_ok=True)
        file = self._fs.open(temporary, create=True)
        try:
            view, at = memoryview(data).cast("B"), 0
            while at < len(view):
                file.pwrite(view[at : at + PIECE_BYTES], at)
                at += PIECE_BYTES
            file.sync()
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, str(path)) from error
        finally:
            file.close()
        temporary.rename(path)
        self._fs.sync_directory(path.parent)

    def read(self, key: str, position: int, size: int) -> Buffer:
        """Read a range."""
        try:
            file = self._fs.open_read(self.root / key)
        except FileNotFoundError:
            raise ObjectMissing(f"there is no {self.root / key}") from None
        try:
            return file.pread(size, position)
        finally:
            file.close()

    def size(self, key: str) -> int:
        """Return the length of an object."""
        return size_of(self._fs, self.root / key)

    def delete(self, key: str) -> None:
        """Remove an object, and its folder with the last one."""
        path = self.root / key
        path.unlink(missing_ok=True)
        if path.parent.parent.name == "backups" and not any(path.parent.iterdir()):
            path.parent.rmdir()

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """List all objects below a folder."""
        for folder, _, names in os.walk(self.root / prefix, onerror=_unless_missing):
            for name in sorted(each for each in names if not each.endswith(UNFINISHED)):
                path = Path(folder, name)
                yield ListedObject(str(path.relative_to(self.root)), path.stat().st_size)


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


class BackupTarget:
    """The backups of one place, with retries for a store that does not answer."""

    def __init__(self, store: ObjectStore, name: str, folder: Path | None = None) -> None:
        self.name = name
        self.folder = folder  # None: not of this machine
        self._store = store
        self._lock: Lock | None = None

    def lock(self) -> None:
        """Keep other backups out, where the target is a folder."""
        if self.folder is None:
            return
        with described(f"the target {self.folder}"):
            if not self.folder.exists():
                self.folder.mkdir(mode=DIRECTORY_MODE)  # not its parents: they may be mounted later
            try:
                self._lock = OsFileSystem().lock(self.folder / LOCK_NAME)
            except AlreadyLocked:
                raise BackupError(f"another backup to {self.folder} is at work") from None
            for unfinished in self.folder.rglob(f"*{UNFINISHED}"):
                unfinished.unlink()

    @property
    def is_exclusive(self) -> bool:
        """Whether no other backup can be at work."""
        return self._lock is not None

    def close(self) -> None:
        """Let others in."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def put(self, key: str, data: Buffer) -> None:
        """Store an object; one of this key and size may be there from an earlier try."""
        size = memoryview(data).nbytes
        with described(f"{self.name}/{key}"):
            try:
                _retry(lambda: self._store.put(key, data))
            except ObjectExists:
                if _retry(lambda: self._store.size(key)) != size:
                    raise

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return keys and sizes of what is below a prefix."""
        with described(f"{self.name}/{prefix}"):
            listed = _retry(lambda: list(self._store.list(prefix)))
        return {each.key: each.size for each in listed}

    def delete(self, key: str) -> None:
        """Remove an object."""
        with described(f"{self.name}/{key}"):
            _retry(lambda: self._store.delete(key))

    def pieces(self, key: str, size: int) -> Iterator[memoryview]:
        """Yield the bytes of an object. Raises `BackupError` if there are fewer than `size`."""
        at = 0
        while at < size:
            want = min(PIECE_BYTES, size - at)
            with described(f"{self.name}/{key}"):
                piece = memoryview(_retry(lambda: self._store.read(key, at, want))).cast("B")  # noqa: B023
            if len(piece) != want:
                raise BackupError(
                    f"{self.name}/{key} has {at + len(piece)} bytes of {size}: choose another "
                    "backup"
                )
            yield piece
            at += want

    def checksum(self, key: str, size: int) -> int:
        """Read an object and return its CRC-32C."""
        value = 0
        for piece in self.pieces(key, size):
            value = crc32c(piece, value)
        return value

    def record_keys(self) -> dict[str, int]:
        """Return the keys of all records, oldest first, with their sizes."""
        listed = self.sizes("backups")
        return {key: listed[key] for key in sorted(listed) if key.endswith(f"/{RECORD_NAME}")}

    def record(self, key: str, size: int) -> BackupRecord:
        """Read a record. Raises `BackupError`."""
        if size > RECORD_BYTES_MAX:
            raise BackupError(f"{self.name}/{key} is too large for a record: {size} bytes")
        record = decode_record(b"".join(self.pieces(key, size)), f"{self.name}/{key}")
        if record_key(record.backup_id) != key:
            raise BackupError(f"{self.name}/{key} is the record of {record.backup_id}")
        return record

    def records(self) -> list[BackupRecord]:
        """Return all whole backups, oldest first."""
        return [self.record(key, size) for key, size in self.record_keys().items()]


def open_target(place: str, reach: StoreOptions | None = None) -> BackupTarget:
    """Open a folder, `file:///FOLDER` or `s3://BUCKET/PREFIX`, without a request to it.

    `reach` has the endpoint, the region and the credentials of S3. Raises `BackupError`.
    """
    parts = urlsplit(place)
    if parts.scheme == "file" and not parts.netloc:
        place = unquote(parts.path)
    elif "://" in place:
        from msgspec.structs import replace

        from trilogue.log.objects.obstore_store import (
            S3ObjectStore,
            StoreOptions,
            StoreOptionsError,
        )

        options = replace(reach or StoreOptions(place), url=place)
        try:
            options.check()
        except StoreOptionsError as error:
            raise BackupError(str(error)) from None
        return BackupTarget(S3ObjectStore(options), place.rstrip("/"))
    folder = Path(place).expanduser().absolute()
    return BackupTarget(FolderStore(folder), str(folder), folder)


def _retry(call: Callable[[], Result]) -> Result:
    """Call until it succeeds, fails for good, or has failed too often."""
    wait_s = WRITING.first_s
    for _ in range(WRITING.tries - 1):
        try:
            return call()
        except (ObjectExists, ObjectDenied, ObjectMissing):
            raise
        except StorageUnavailable:
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, WRITING.most_s)
    return call()
