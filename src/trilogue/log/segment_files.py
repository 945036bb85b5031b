"""Where the bytes of a segment are: a file in the folder of segments, or an object.

`SegmentInfo.store` says so. A segment that lies in objects may have a copy in the folder too (it
was moved a moment ago, or copies are kept): the same bytes, and nearer, so that is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

from trilogue.log.errors import SegmentMissing, StorageUnavailable
from trilogue.log.files import File, FileSystem, OsFileSystem
from trilogue.log.object_cache import ObjectCache, ObjectFile

if TYPE_CHECKING:
    from trilogue.log.obstore_store import Reach
    from trilogue.log.segment_info import SegmentInfo


JOB_CACHE_BYTES: Final = 32 << 20


class SegmentFile(Protocol):
    """What a `SegmentReader` needs of a file; every `File` has it, and `ObjectFile`."""

    def pread(self, size: int, offset: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end."""

    def size(self) -> int:
        """Its length in bytes."""

    def close(self) -> None:
        """Give back what it holds."""


class SegmentFiles:
    """Opens segments wherever they lie. `objects` is None where no object storage is known."""

    __slots__ = ("_damaged", "_directory", "_files", "_objects")

    def __init__(
        self, files: FileSystem, directory: Path, objects: ObjectCache | None = None
    ) -> None:
        self._files = files
        self._directory = directory
        self._objects = objects
        self._damaged: set[str] = set()  # copies that are not read any more

    def open(self, info: SegmentInfo) -> SegmentFile:
        """Open a segment; `SegmentMissing` when it should be a file and is none."""
        path = self._directory / info.name
        if info.name not in self._damaged:
            try:
                return self._files.open_read(path)
            except FileNotFoundError:
                if not info.store:
                    raise SegmentMissing("the segment is missing", path) from None
        if self._objects is None:
            raise StorageUnavailable(
                f"{info.name} lies in object storage, and nothing says where that is (objects.url)"
            )
        return self._objects.open(info)

    def path(self, info: SegmentInfo) -> Path:
        """What errors call it."""
        return Path(info.store) / info.name if info.store else self._directory / info.name

    def distrust(self, info: SegmentInfo) -> None:
        """What was read is damaged: if it lies in objects too, they are asked (again) now."""
        if self._objects is not None and info.store:
            self._damaged.add(info.name)
            self._objects.forget(info.name)


class InputFiles(OsFileSystem):
    """Files for a job of the helper process, which may read segments that are objects."""

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
            return cast("File", self._cache.open(info))  # what reading needs of one


def files_for(inputs: Iterable[SegmentInfo], reach: Reach | None) -> FileSystem:
    """Say what a job reads its inputs from and writes its outputs to."""
    inputs = list(inputs)
    if reach is None or not any(info.store for info in inputs):
        return OsFileSystem()
    return InputFiles(inputs, reach.cache(JOB_CACHE_BYTES))


def is_remote(file: object) -> bool:
    """Whether each read may bring other bytes: then what was verified once proves nothing."""
    return isinstance(file, ObjectFile)
