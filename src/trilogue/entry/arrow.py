"""Entries to Arrow columns, and Arrow columns to entries: what Spark reads and writes.

The columns are those of Spark's own Kafka source, in name, type and meaning, so that a query moves
between the two unchanged. Their buffers are filled by compiled code and wrapped here without a
copy. Arrow is imported only when something is decoded: the broker does not need it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from trilogue.entry.columns import ByteColumn, Columns
from trilogue.entry.compression import Buffer
from trilogue.entry.entry import NO_PRODUCER, NO_TIMESTAMP, EntryHeader
from trilogue.entry.header import HEADER_SIZE, LENGTH_PREFIX
from trilogue.entry.kafka.record_batch import DECOMPRESSED_LIMIT, check_crc, seal, walk_records
from trilogue.entry.pack import ArrowRows, ByteInput, RecordPacker
from trilogue.entry.walk import read_header

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)
NO_END: Final = 2**63 - 1
ROWS_PER_BATCH: Final = 65_536
BYTES_PER_BATCH: Final = 32 * 1024 * 1024
_ABORT: Final = b"\x00\x00"  # a transaction marker's type, behind two bytes of version


def arrow_schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """Return the schema of these columns, in this order."""
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
    }
    unknown = [name for name in columns if name not in types]
    if unknown or not columns:
        raise ValueError(f"no such columns: {unknown}" if unknown else "a column is needed")
    return pa.schema([(name, types[name]) for name in columns])


class ArrowReader:
    """Turns what fetches return for one partition into record batches of [start, end).

    `feed` takes consecutive entries, of which the last may be truncated unless it is the only one,
    and yields each batch that is full; `flush` yields the rest. `next_offset` is the offset of the
    next fetch. It also moves over offsets without visible records: holes, transaction markers,
    records of aborted transactions.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        start: int = 0,
        end: int = NO_END,
        *,
        columns: Sequence[str] = COLUMNS,
        limit: int = DECOMPRESSED_LIMIT,
        rows_per_batch: int = ROWS_PER_BATCH,
        bytes_per_batch: int = BYTES_PER_BATCH,
    ) -> None:
        import pyarrow as pa

        self.next_offset = start
        self.end = end
        self.schema = arrow_schema(columns)
        self._names = tuple(columns)
        self._wanted = frozenset(columns)
        self._limit = limit
        self._rows = rows_per_batch
        self._bytes = bytes_per_batch
        self._topics = pa.repeat(pa.scalar(topic), rows_per_batch)
        self._partitions = pa.repeat(pa.scalar(partition, pa.int32()), rows_per_batch)
        self._columns: Columns | None = None
        self._types: list[tuple[int, int]] = []  # (timestamp type, first row that has it)

    @property
    def done(self) -> bool:
        """True when nothing before the end is left to fetch."""
        return self.next_offset >= self.end

    def feed(
        self, entries: Buffer, aborted: Iterable[tuple[int, int]] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield the full batches. `aborted`: (producer id, first offset), as in the response."""
        view = memoryview(entries)
        transactions = _AbortedEntries(aborted)
        pos = 0
        while pos < len(view) and not self.done:
            if pos and _is_cut(view, pos):
                return
            header = read_header(view, pos)
            entry = view[pos : pos + header.length]
            if header.last_offset >= self.next_offset:
                check_crc(entry)
            if not transactions.skips(entry, header, self._limit):
                yield from self._read(entry, header, len(view) - pos)
            self.next_offset = max(self.next_offset, min(self.end, header.last_offset + 1))
            pos += header.length

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the last batch, if it has rows."""
        if self._columns is not None and self._columns.count:
            yield self._finish(self._columns)

    def _read(self, entry: Buffer, header: EntryHeader, ahead: int) -> Iterator[pa.RecordBatch]:
        if header.last_offset < self.next_offset:
            return
        walker = walk_records(entry, limit=self._limit, header=header)
        kind = int(header.log_append_time)
        finished = 0
        while not finished:
            columns = self._columns
            if columns is None:
                columns = self._columns = Columns(self._rows, self._bytes, self._wanted)
                columns.expect(ahead)
            if not self._types or self._types[-1][0] != kind:
                self._types.append((kind, columns.count))
            finished = columns.fill(walker, self.next_offset, self.end)
            if columns.is_full():
                self.next_offset = max(self.next_offset, walker.offset + 1)
                yield self._finish(columns)

    def _finish(self, columns: Columns) -> pa.RecordBatch:
        import pyarrow as pa

        self._columns = None
        arrays = [self._array(columns, name) for name in self._names]
        self._types = []
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, columns: Columns, name: str) -> pa.Array:
        import pyarrow as pa

        kind = self.schema.field(name).type
        match name:
            case "key" | "value":
                array = _byte_array(columns.keys if name == "key" else columns.values, kind)
            case "topic" | "partition":
                constant = self._topics if name == "topic" else self._partitions
                array = constant.slice(0, columns.count)
            case "offset" | "timestamp":
                room = columns.offset_bytes if name == "offset" else columns.time_bytes
                array = pa.Array.from_buffers(kind, columns.count, [None, pa.py_buffer(room)])
            case "timestampType":
                array = self._timestamp_types(columns.count)
            case _:
                array = _header_array(columns, kind)
        return array

    def _timestamp_types(self, count: int) -> pa.Array:
        import pyarrow as pa

        ends = [first for _, first in self._types[1:]] + [count]
        runs = zip(self._types, ends, strict=True)
        return pa.concat_arrays(
            [pa.repeat(pa.scalar(kind, pa.int32()), end - first) for (kind, first), end in runs]
        )


def _is_cut(view: memoryview, pos: int) -> bool:
    room = len(view) - pos
    if room < HEADER_SIZE:
        return True
    return int.from_bytes(view[pos + 8 : pos + LENGTH_PREFIX], "big") > room - LENGTH_PREFIX


class _AbortedEntries:
    """Finds the entries of a fetch that readers skip: transaction markers, aborted transactions."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._to_come = sorted(aborted, key=lambda pair: pair[1], reverse=True)
        self._producers: set[int] = set()

    def skips(self, entry: Buffer, header: EntryHeader, limit: int) -> bool:
        while self._to_come and self._to_come[-1][1] <= header.last_offset:
            self._producers.add(self._to_come.pop()[0])
        if header.is_control:
            for record in walk_records(entry, limit=limit, header=header).read_records(1):
                if (record.key or b"")[2:4] == _ABORT:
                    self._producers.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._producers


def _byte_array(column: ByteColumn, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    validity = pa.py_buffer(column.validity) if column.null_count else None
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.values)]
    return pa.Array.from_buffers(kind, column.count, buffers, column.null_count)


def _header_array(columns: Columns, kind: pa.ListType) -> pa.Array:
    import pyarrow as pa

    keys = _byte_array(columns.header_keys, pa.string())
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:  # not UTF-8: replacement characters, as in read_headers
        raw = _byte_array(columns.header_keys, pa.binary()).to_pylist()
        keys = pa.array([key.decode("utf-8", "replace") for key in raw], pa.string())
    values = _byte_array(columns.header_values, pa.binary())
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
    validity = pa.py_buffer(columns.list_validity) if columns.list_nulls else None
    buffers = [validity, pa.py_buffer(columns.list_bytes)]
    return pa.Array.from_buffers(kind, columns.count, buffers, columns.list_nulls, children=[pairs])


def build_from_arrow(
    batch: pa.RecordBatch,
    codec: int,
    max_bytes: int,
    *,
    timestamp_ms: int,
    chosen: memoryview | None = None,
    packer: RecordPacker | None = None,
    flags: int = 0,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> list[bytes]:
    """Build the entries that hold the rows of a batch with the columns of `COLUMNS` it has.

    The columns key, value, headers and timestamp are written; a row without a timestamp gets
    `timestamp_ms`. An entry has at most `max_bytes` before compression, unless one row alone is
    larger. Sequence numbers start at `base_sequence` and continue from entry to entry. `flags`:
    attribute bits. `chosen`: the numbers of the rows to write, int32 each; default all. `packer`:
    one of the caller, whose memory is used again. Raises `ValueError` for a timestamp before 1970.
    """
    rows = _arrow_rows(batch, timestamp_ms)
    if chosen is not None:
        rows.choose(chosen)
    packer = packer or RecordPacker()
    entries = []
    row = 0
    while row < rows.count:
        packer.clear()
        after = packer.pack_rows(rows, row, max_bytes - HEADER_SIZE)
        entries.append(
            seal(
                packer.packed(),
                record_count=after - row,
                last_offset_delta=after - row - 1,
                base_timestamp=packer.base_timestamp,
                max_timestamp=packer.max_timestamp,
                codec=codec,
                flags=flags,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
            )
        )
        if base_sequence >= 0:
            base_sequence = (base_sequence + after - row) % 2**31
        row = after
    return entries


def _arrow_rows(batch: pa.RecordBatch, timestamp_ms: int) -> ArrowRows:
    import pyarrow as pa

    names = batch.schema.names
    rows = ArrowRows(batch.num_rows, _times(batch, timestamp_ms))
    if not rows.count:
        return rows
    if "key" in names:
        rows.set_keys(byte_input(batch.column("key").cast(pa.binary())))
    if "value" in names:
        rows.set_values(byte_input(batch.column("value").cast(pa.binary())))
    if "headers" in names and batch.column("headers").null_count < rows.count:
        lists = batch.column("headers")
        pairs = lists.values
        validity, offsets = lists.buffers()[:2]
        headers = ByteInput(
            rows.count,
            None if validity is None else memoryview(validity),
            memoryview(offsets),
            memoryview(b""),
            offset=lists.offset,
            room=len(pairs),
        )
        keys = pairs.field("key").cast(pa.binary())
        rows.set_headers(
            headers, byte_input(keys), byte_input(pairs.field("value").cast(pa.binary()))
        )
    return rows


def _times(batch: pa.RecordBatch, timestamp_ms: int) -> memoryview:
    import pyarrow as pa
    import pyarrow.compute as pc

    if "timestamp" not in batch.schema.names:
        return memoryview(pa.repeat(pa.scalar(timestamp_ms), batch.num_rows).buffers()[1])
    column = batch.column("timestamp")
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False)
    column = pc.fill_null(column.cast(pa.int64()), timestamp_ms)
    if column.null_count or (len(column) and pc.min(column).as_py() < NO_TIMESTAMP):
        raise ValueError("a timestamp before 1970")
    return memoryview(column.buffers()[1])[8 * column.offset :]


def byte_input(column: pa.Array) -> ByteInput:
    """Return a column of byte strings as compiled code reads it."""
    validity, offsets, values = column.buffers()
    return ByteInput(
        len(column),
        None if validity is None else memoryview(validity),
        memoryview(offsets),
        memoryview(b"" if values is None else values),
        offset=column.offset,
    )
