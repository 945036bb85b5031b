"""One partition's run of entries inside one segment, and all of a segment's runs, packed.

A node with ten thousand partitions and a hundred segments knows a million extents. As objects they
would cost 350 bytes each, and work for the garbage collector; here they are eleven columns of int64
in one bytes object, 88 bytes an extent, which is also the form that meta stores and that is sent to
the helper process. An `Extent` object is created on request.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from operator import attrgetter
from typing import Final, cast

import msgspec


class Extent(msgspec.Struct, frozen=True):
    """One partition's run of entries inside one segment.

    `end_offset` is the end of the last entry's span, so the next offset that is *not* here. There
    may be holes between the two. Times come from entry headers: event times are set by producers
    (`min_event_ms` is the smallest base timestamp, a hint; `max_event_ms` is exact), append times
    by the broker. -1 means none is known.
    """

    partition_id: int
    base_offset: int
    end_offset: int
    position: int  # of the first byte, in the segment file
    size: int  # bytes of entries
    entry_count: int
    owner_epoch: int  # of the newest entry
    min_event_ms: int
    max_event_ms: int
    min_append_ms: int
    max_append_ms: int


EXTENT_FIELDS: Final = Extent.__struct_fields__
WIDTH: Final = len(EXTENT_FIELDS)
MAGIC: Final = b"EXT1"  # no MessagePack list, which the older form of the block is, begins so
INT_SIZE: Final = 8
_COLUMNS: Final = {name: number for number, name in enumerate(EXTENT_FIELDS)}
_row: Final = cast("Callable[[Extent], tuple[int, ...]]", attrgetter(*EXTENT_FIELDS))


class Extents(Mapping[int, Extent]):
    """The extents of one segment by partition id, in the order of the ids. Immutable."""

    __slots__ = ("_columns", "_data", "ids")

    def __init__(self, data: bytes) -> None:
        """Wrap the columns of `to_bytes`, without the magic; see `of`, `from_bytes`."""
        view = memoryview(data).cast("q")
        count = len(view) // WIDTH
        self._data = data
        self._columns = tuple(view[at * count : (at + 1) * count] for at in range(WIDTH))
        self.ids = self._columns[0]

    @classmethod
    def of(cls, extents: Iterable[Extent]) -> Extents:
        """Pack extents; raises ValueError for a duplicate partition or a number out of range."""
        rows = sorted(map(_row, extents))
        columns = array("q")
        try:
            for column in zip(*rows, strict=True):
                columns.extend(column)
        except (OverflowError, TypeError) as error:
            raise ValueError(f"an extent that cannot be: {error}") from error
        packed = cls(columns.tobytes())
        _check_order(packed.ids)
        return packed

    @classmethod
    def from_bytes(cls, data: bytes) -> Extents:
        """Unpack the result of `to_bytes`; raises ValueError for other data."""
        size = len(data) - len(MAGIC)
        if not data.startswith(MAGIC) or size % (WIDTH * INT_SIZE):
            raise ValueError(f"{len(data)} bytes are no extents")
        packed = cls(_swapped(data[len(MAGIC) :]))
        _check_order(packed.ids)
        return packed

    def to_bytes(self) -> bytes:
        """Return the magic and eleven columns of little-endian int64."""
        return MAGIC + _swapped(self._data)

    # ── as a mapping ──────────────────────────────────────────────────────────────────────────

    def __getitem__(self, partition_id: int) -> Extent:
        """Return the extent of one partition; raises KeyError when it has none."""
        found = self.find_extent(partition_id)
        if found is None:
            raise KeyError(partition_id)
        return found

    def find_extent(self, partition_id: int) -> Extent | None:
        """Return the extent of one partition; None when it has none."""
        at = self.index(partition_id)
        return None if at < 0 else self.at(at)

    def __contains__(self, partition_id: object) -> bool:
        """Whether the partition has an extent."""
        return self.index(cast("int", partition_id)) >= 0

    def __iter__(self) -> Iterator[int]:
        """Yield the partition ids, in order."""
        return iter(self.ids)

    def __len__(self) -> int:
        """The number of extents."""
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        """Whether both have the same extents."""
        if isinstance(other, Extents):
            return self._data == other._data
        return dict(self) == other

    def __hash__(self) -> int:
        """Allow frozen values that hold extents to be hashed."""
        return hash(self._data)

    def __repr__(self) -> str:
        """Name the number of extents only: there may be ten thousand."""
        return f"Extents({len(self)} partitions)"

    def __reduce__(self) -> tuple[type[Extents], tuple[bytes]]:
        """Pickle as bytes; both processes are on one machine."""
        return (Extents, (self._data,))

    # ── in columns ────────────────────────────────────────────────────────────────────────────

    def index(self, partition_id: int) -> int:
        """Return the index of a partition in every column; -1 when it has no extent."""
        ids = self.ids
        at = bisect_left(ids, partition_id)
        return at if at < len(ids) and ids[at] == partition_id else -1

    def at(self, at: int) -> Extent:
        """Return the extent at an index of the columns."""
        return Extent(*[column[at] for column in self._columns])

    def column(self, name: str) -> memoryview:
        """Return one field of all extents, in the order of `ids`."""
        return self._columns[_COLUMNS[name]]

    def rows(self) -> Iterator[tuple[int, ...]]:
        """Yield all fields of each extent."""
        return zip(*self._columns, strict=True)

    def without(self, partition_ids: Collection[int]) -> Extents:
        """Return a copy without some partitions."""
        gone = sorted({at for each in partition_ids if (at := self.index(each)) >= 0})
        if not gone:
            return self
        count = len(self.ids)
        kept = [slice(one + 1, other) for one, other in pairwise((-1, *gone, count))]
        columns = self._columns
        return Extents(b"".join([column[some] for column in columns for some in kept]))


EMPTY: Final = Extents(b"")


def _check_order(ids: memoryview) -> None:
    before = -1
    for each in ids:
        if each <= before:
            raise ValueError(f"partition {each} stands behind {before}")
        before = each


def _swapped(data: bytes) -> bytes:
    """Convert between this machine's byte order and little-endian."""
    if sys.byteorder == "little":
        return data
    numbers = array("q", data)  # pragma: no cover -- big-endian machines
    numbers.byteswap()  # pragma: no cover
    return numbers.tobytes()  # pragma: no cover
