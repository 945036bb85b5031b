"""Opens a segment where it lies: as a file in the folder of segments, or as an object.

`SegmentInfo.store` is the place. A segment in object storage may have a local copy too (it was
uploaded recently, or copies are kept): it has the same bytes and is preferred.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

from trilogue.log.errors import SegmentMissing, StorageUnavailable
from trilogue.log.files import File, FileSystem, OsFileSystem
from trilogue.log.objects.cache import ObjectCache, ObjectFile

if TYPE_CHECKING:
    from trilogue.log.objects.obstore_store import Reach
    from trilogue.log.segments.segment_info import SegmentInfo


JOB_CACHE_BYTES: Final = 32 << 20


class SegmentFile(Protocol):
    """The file methods that a `SegmentReader` needs; `File` and `ObjectFile` have them."""

    def pread(self, size: int, offset: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end."""

    def size(self) -> int:
        """Its length in bytes."""

    def close(self) -> None:
        """Release its resources."""


class SegmentFiles:
    """Opens segments wherever they lie. `objects` is None without object storage."""

    __slots__ = ("_damaged", "_directory", "_files", "_objects")

    def __init__(
        self, files: FileSystem, directory: Path, objects: ObjectCache | None = None
    ) -> None:
        self._files = files
        self._directory = directory
        self._objects = objects
        self._damaged: set[str] = set()  # local copies that are not read any more

    def open(self, info: SegmentInfo) -> SegmentFile:
        """Open a segment; raises `SegmentMissing` if its file does not exist."""
        path = self._directory / info.name
        if info.name not in self._damaged:
            try:
                return self._files.open_read(path)
            except FileNotFoundError:
                if not info.store:
                    raise SegmentMissing("the segment is missing", path) from None
        if self._objects is None:
            raise StorageUnavailable(
                f"{info.name} lies in object storage, and objects.url is not set"
            )
        return self._objects.open(info)

    def path(self, info: SegmentInfo) -> Path:
        """Return the path that errors name."""
        return Path(info.store) / info.name if info.store else self._directory / info.name

    def distrust(self, info: SegmentInfo) -> None:
        """Stop reading a damaged copy; the next read fetches the object, if there is one."""
        if self._objects is not None and info.store:
            self._damaged.add(info.name)
            self._objects.forget(info.name)


class InputFiles(OsFileSystem):
    """The files of a job in the helper process, including segments that are objects."""

    __slots__ = ("_cache", "_stored")

    def __init__(self, inputs: Iterable[SegmentInfo], cache: ObjectCache) -> None:
        self._stored = {info.name: info for info in inputs if info.store}
        self._cache = cache

    def open_read(self, path: Path, *, direct: bool = False) -> File:
        """Open a file, or the object that is the segment of this name."""
        try:
            return super().open_read(path, direct=direct)
        except FileNotFoundError:
            info = self._stored.get(path.name)
            if info is None:
                raise
            return cast("File", self._cache.open(info))  # has the methods that reading needs


def files_for(inputs: Iterable[SegmentInfo], reach: Reach | None) -> FileSystem:
    """Return the file system of a job's inputs and outputs."""
    inputs = list(inputs)
    if reach is None or not any(info.store for info in inputs):
        return OsFileSystem()
    return InputFiles(inputs, reach.cache(JOB_CACHE_BYTES))


def is_remote(file: object) -> bool:
    """Whether each read may return other bytes, so that blocks are verified each time."""
    return isinstance(file, ObjectFile)
