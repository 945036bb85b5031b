"""Checks the demo: DuckDB computes the pipeline's figures from the CSV files, and compares.

DuckDB and the pipeline share only the definition of what is counted. There is no tolerance: every
row and every figure must be equal, in the Parquet files and in the topics, where the keys and event
times of the messages must also be those of their rows.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    import duckdb

Rows = list[tuple[object, ...]]
SHOWN = 3
"""Rows that are shown of each difference: enough to see the cause."""


class Message(NamedTuple):
    """One consumed message."""

    key: bytes | None
    value: bytes | None
    time_ms: int
    partition: int = 0
    offset: int = 0


class Comparison(NamedTuple):
    """One result: its query over the data set, and the query over what the pipeline wrote."""

    name: str
    expected: str
    found: str
    key: str
    time: str
    columns: str


DELAYS = Comparison(
    name="delay-stats",
    expected="""
WITH flights AS (SELECT * FROM read_csv('{flights}', nullstr='NA')),
     weather AS (SELECT * FROM read_csv('{weather}', nullstr='NA')),
     planes AS (SELECT tailnum, seats FROM read_csv('{planes}', nullstr='NA')),
     airlines AS (SELECT * FROM read_csv('{airlines}', nullstr='NA'))
SELECT strftime(date_trunc('day', f.time_hour), '%Y-%m-%d') AS day,
       f.carrier, a.name AS airline, f.origin,
       count(*)::BIGINT AS flights,
       count(*) FILTER (f.dep_time IS NULL)::BIGINT AS cancelled,
       count(*) FILTER (f.dep_delay > 15)::BIGINT AS delayed,
       sum(f.dep_delay)::BIGINT AS delay_minutes,
       max(f.dep_delay)::BIGINT AS worst_delay,
       count(*) FILTER (w.visib < 3 OR w.precip > 0)::BIGINT AS poor_weather,
       count(*) FILTER (w.time_hour IS NULL)::BIGINT AS unknown_weather,
       sum(p.seats)::BIGINT AS seats
FROM flights f
LEFT JOIN weather w ON w.origin = f.origin AND w.time_hour = f.time_hour
LEFT JOIN planes p ON p.tailnum = f.tailnum
LEFT JOIN airlines a ON a.carrier = f.carrier
GROUP BY ALL ORDER BY ALL
""",
    found="""
SELECT strftime(day::TIMESTAMPTZ, '%Y-%m-%d') AS day, carrier, airline, origin, flights::BIGINT,
       cancelled::BIGINT, delayed::BIGINT, delay_minutes::BIGINT, worst_delay::BIGINT,
       poor_weather::BIGINT, unknown_weather::BIGINT, seats::BIGINT
FROM {found} ORDER BY ALL
""",
    key="strftime(day::TIMESTAMPTZ, '%Y-%m-%d %H:%M:%S') || '/' || carrier || '/' || origin",
    time="day",
    columns="day carrier airline origin flights cancelled delayed delay_minutes worst_delay "
    "poor_weather unknown_weather seats",
)
CANCELLATIONS = Comparison(
    name="cancellations",
    expected="""
SELECT strftime(f.time_hour, '%Y-%m-%d %H') AS hour, f.carrier, a.name AS airline,
       f.flight::BIGINT AS flight, f.tailnum, f.origin, f.dest, p.name AS to
FROM read_csv('{flights}', nullstr='NA') f
LEFT JOIN read_csv('{airlines}', nullstr='NA') a ON a.carrier = f.carrier
LEFT JOIN read_csv('{airports}', nullstr='NA') p ON p.faa = f.dest
WHERE f.dep_time IS NULL ORDER BY ALL
""",
    found="""
SELECT strftime(time_hour::TIMESTAMPTZ, '%Y-%m-%d %H') AS hour, carrier, airline,
       flight::BIGINT AS flight, tailnum, origin, dest, "to"
FROM {found} ORDER BY ALL
""",
    key="carrier || '/' || flight",
    time="time_hour",
    columns="time_hour carrier airline flight tailnum origin dest to",
)
COMPARISONS = (DELAYS, CANCELLATIONS)


def find_differences(
    paths: dict[str, Path], parquet: Path, messages: dict[str, list[Message]]
) -> tuple[list[str], int]:
    """Compare Parquet files and messages with the data set.

    Returns a line for each difference, and the number of rows compared.
    """
    import duckdb

    files = {name: str(path) for name, path in paths.items()}
    differences: list[str] = []
    compared = 0
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for comparison in COMPARISONS:
            name = comparison.name
            expected = _rows(database, comparison.expected.format(**files))
            stored = _parquet_rows(database, comparison, parquet / name)
            consumed = _topic_rows(database, comparison, messages[name])
            differences += compare_rows(f"{name}, Parquet", expected, stored)
            differences += compare_rows(f"{name}, topic", expected, consumed)
            differences += _check_keys_and_times(database, comparison)
            compared += len(stored) + len(consumed)
    return differences, compared


def _rows(database: duckdb.DuckDBPyConnection, comparison: str) -> Rows:
    rows: Rows = database.execute(comparison).fetchall()
    return rows


def _parquet_rows(
    database: duckdb.DuckDBPyConnection, comparison: Comparison, folder: Path
) -> Rows:
    if not any(folder.glob("*/*.parquet")):
        return []
    files = f"read_parquet('{folder}/*/*.parquet', hive_partitioning=false)"
    return _rows(database, comparison.found.format(found=files))


def _topic_rows(
    database: duckdb.DuckDBPyConnection, comparison: Comparison, messages: list[Message]
) -> Rows:
    """Make a table `messages` of them, each value a JSON object, and return its rows."""
    import pyarrow as pa

    rows = [msgspec.json.decode(message.value or b"{}") for message in messages]
    texts: dict[str, list[str | None]] = {
        name: [None if (one := row.get(name)) is None else str(one) for row in rows]
        for name in comparison.columns.split()
    }
    texts["message_key"] = [(one.key or b"").decode() for one in messages]
    columns = {name: pa.array(values, pa.string()) for name, values in texts.items()}
    columns["message_ms"] = pa.array([one.time_ms for one in messages], pa.int64())
    database.register("messages", pa.table(columns))
    return _rows(database, comparison.found.format(found="messages"))


def _check_keys_and_times(database: duckdb.DuckDBPyConnection, comparison: Comparison) -> list[str]:
    """Return a line for messages whose key or event time is not that of their row."""
    wrong = database.execute(
        f"SELECT message_key, message_ms, {comparison.time} FROM messages "  # noqa: S608 - constants of this module
        f"WHERE message_key IS DISTINCT FROM {comparison.key} "
        f"OR message_ms IS DISTINCT FROM epoch_ms({comparison.time}::TIMESTAMPTZ)"
    ).fetchall()
    if not wrong:
        return []
    counted = "1 message" if len(wrong) == 1 else f"{len(wrong)} messages"
    lines = [f"  {key} at {ms} ms, of {time}" for key, ms, time in wrong[:SHOWN]]
    return [f"{comparison.name}, topic: {counted} with another key or time", *lines]


def compare_rows(what: str, expected: Rows, found: Rows) -> list[str]:
    """Compare two multisets of rows; return a count and samples, or nothing if they are equal."""
    missing, extra = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    if not missing and not extra:
        return []
    counted = f"{missing.total():,} missing, {extra.total():,} that should not be"
    return [
        f"{what}: {len(found):,} rows where the data set gives {len(expected):,}; {counted}",
        *(f"  missing: {row}" for row in sorted(missing, key=str)[:SHOWN]),
        *(f"  extra:   {row}" for row in sorted(extra, key=str)[:SHOWN]),
    ]
