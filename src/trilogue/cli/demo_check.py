"""The same figures, computed by DuckDB straight from the CSV files: the judge of the demo.

Nothing is shared with the pipeline but the definition of what is counted. There is no tolerance:
every row and every figure must be equal, in the Parquet files and once more in the topics, where
the keys and event times of the messages must be those of their rows too.
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
"""Of what differs, so many rows are shown: they nearly always tell why."""


class Message(NamedTuple):
    """What a consumer got."""

    key: bytes | None
    value: bytes | None
    time_ms: int
    partition: int = 0
    offset: int = 0


class Question(NamedTuple):
    """One result: what the data set gives, and how to read what the pipeline wrote."""

    name: str
    wanted: str
    found: str
    key: str
    time: str
    columns: str


DELAYS = Question(
    name="delay-stats",
    wanted="""
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
CANCELLATIONS = Question(
    name="cancellations",
    wanted="""
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
QUESTIONS = (DELAYS, CANCELLATIONS)


def differences(
    paths: dict[str, Path], parquet: Path, messages: dict[str, list[Message]]
) -> tuple[list[str], int]:
    """Compare Parquet files and messages with the data set: what differs, and the rows compared.

    No difference is an empty list.
    """
    import duckdb

    files = {name: str(path) for name, path in paths.items()}
    said: list[str] = []
    compared = 0
    with duckdb.connect() as base:
        base.execute("SET TimeZone = 'UTC'")
        for question in QUESTIONS:
            name = question.name
            wanted = _rows(base, question.wanted.format(**files))
            stored = _stored(base, question, parquet / name)
            told = _told(base, question, messages[name])
            said += compare(f"{name}, Parquet", wanted, stored)
            said += compare(f"{name}, topic", wanted, told)
            said += _addressed(base, question)
            compared += len(stored) + len(told)
    return said, compared


def _rows(base: duckdb.DuckDBPyConnection, question: str) -> Rows:
    rows: Rows = base.execute(question).fetchall()
    return rows


def _stored(base: duckdb.DuckDBPyConnection, question: Question, folder: Path) -> Rows:
    if not any(folder.glob("*/*.parquet")):
        return []
    files = f"read_parquet('{folder}/*/*.parquet', hive_partitioning=false)"
    return _rows(base, question.found.format(found=files))


def _told(base: duckdb.DuckDBPyConnection, question: Question, messages: list[Message]) -> Rows:
    """Make a table `told` of the messages, each value a JSON object."""
    import pyarrow as pa

    rows = [msgspec.json.decode(message.value or b"{}") for message in messages]
    texts: dict[str, list[str | None]] = {
        name: [None if (one := row.get(name)) is None else str(one) for row in rows]
        for name in question.columns.split()
    }
    texts["message_key"] = [(one.key or b"").decode() for one in messages]
    columns = {name: pa.array(values, pa.string()) for name, values in texts.items()}
    columns["message_ms"] = pa.array([one.time_ms for one in messages], pa.int64())
    base.register("told", pa.table(columns))
    return _rows(base, question.found.format(found="told"))


def _addressed(base: duckdb.DuckDBPyConnection, question: Question) -> list[str]:
    """Tell of messages whose key or event time is not that of their row."""
    wrong = base.execute(
        f"SELECT message_key, message_ms, {question.time} FROM told "  # noqa: S608 - our own words
        f"WHERE message_key IS DISTINCT FROM {question.key} "
        f"OR message_ms IS DISTINCT FROM epoch_ms({question.time}::TIMESTAMPTZ)"
    ).fetchall()
    if not wrong:
        return []
    lines = [f"  {key} at {ms} ms, of {time}" for key, ms, time in wrong[:SHOWN]]
    return [f"{question.name}, topic: {len(wrong)} messages with another key or time", *lines]


def compare(what: str, wanted: Rows, found: Rows) -> list[str]:
    """Say what is missing and what is too much, a row as often as it is; nothing when equal."""
    missing, extra = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    if not missing and not extra:
        return []
    counted = f"{missing.total():,} missing, {extra.total():,} that should not be"
    return [
        f"{what}: {len(found):,} rows where the data set gives {len(wanted):,}; {counted}",
        *(f"  missing: {row}" for row in sorted(missing, key=str)[:SHOWN]),
        *(f"  extra:   {row}" for row in sorted(extra, key=str)[:SHOWN]),
    ]
