"""Writes messages that cannot be decoded to a topic of their own, with where they were read.

At least once: a task that runs again, or a batch that is read again, writes them again. Headers
have the names that Kafka Connect gives them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trilogue.spark.read_options import ReadOptions
from trilogue.spark.write_options import WriteOptions
from trilogue.spark.writer import write_all

if TYPE_CHECKING:
    import pyarrow as pa

PREFIX: Final = "__connect.errors."


class DeadLetterWriter:
    """Writes the malformed messages of one partition."""

    def __init__(self, options: ReadOptions, topic: str, partition: int) -> None:
        (payload,) = options.payloads
        assert payload.dead_letter_topic is not None
        self._options = WriteOptions(
            servers=options.servers,
            security=options.security,
            topic=payload.dead_letter_topic,
        )
        self._added = {
            "topic": topic,
            "partition": str(partition),
            "exception.message": f"no {payload.format.value} of the schema",
        }

    def write(self, rows: pa.RecordBatch) -> None:
        """Store messages, with `DEAD_LETTER_COLUMNS`; returns when all are durable."""
        import pyarrow as pa

        headers = [
            (given or []) + self._make_headers(offset)
            for given, offset in zip(
                rows.column("headers").to_pylist(), rows.column("offset").to_pylist(), strict=True
            )
        ]
        kind = rows.schema.field("headers").type
        columns = {name: rows.column(name) for name in ("key", "value", "timestamp")}
        batch = pa.RecordBatch.from_pydict(columns | {"headers": pa.array(headers, kind)})
        write_all(self._options, [batch])

    def _make_headers(self, offset: int) -> list[dict[str, object]]:
        added = {**self._added, "offset": str(offset)}
        return [
            {"key": f"{PREFIX}{name}", "value": value.encode()} for name, value in added.items()
        ]
