"""The demo's check: equal results pass, and each difference is reported."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.demo.test_data import FLIGHTS, WEATHER
from trilogue.demo.check import Message, compare_rows, find_differences

DAY = datetime(2013, 1, 1, tzinfo=UTC)
STATS = [
    {"day": DAY, "carrier": "EV", "airline": "ExpressJet", "origin": "EWR", "flights": 1,
     "cancelled": 1, "delayed": 0, "delay_minutes": None, "worst_delay": None, "poor_weather": 0,
     "unknown_weather": 0, "seats": 55},
    {"day": DAY, "carrier": "UA", "airline": "United", "origin": "EWR", "flights": 1,
     "cancelled": 0, "delayed": 0, "delay_minutes": 2, "worst_delay": 2, "poor_weather": 0,
     "unknown_weather": 1, "seats": None},
]  # fmt: skip
ALERTS = [
    {"time_hour": DAY.replace(hour=11), "carrier": "EV", "airline": "ExpressJet", "flight": 4308,
     "tailnum": "N18120", "origin": "EWR", "dest": "RDU", "to": "Raleigh"},
]  # fmt: skip
SCHEMAS = {
    "delay-stats": pa.schema(
        [("day", pa.timestamp("us", tz="UTC"))]
        + [(name, pa.string()) for name in ("carrier", "airline", "origin")]
        + [(name, pa.int64()) for name in list(STATS[0])[4:]]
    ),
    "cancellations": pa.schema(
        [("time_hour", pa.timestamp("us", tz="UTC"))]
        + [(name, pa.int32() if name == "flight" else pa.string()) for name in list(ALERTS[0])[1:]]
    ),
}


class Found:
    """What a pipeline wrote, to be spoiled by a test and judged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = {"delay-stats": [*STATS], "cancellations": [*ALERTS]}
        self.messages = {
            "delay-stats": [message(row, "day") for row in STATS],
            "cancellations": [message(row, "time_hour") for row in ALERTS],
        }
        texts = {
            "flights": FLIGHTS, "weather": WEATHER,
            "planes": "tailnum,seats\nN18120,55\n",
            "airlines": "carrier,name\nUA,United\nEV,ExpressJet\n",
            "airports": "faa,name\nRDU,Raleigh\n",
        }  # fmt: skip
        self.paths = {name: folder / f"{name}.csv" for name in texts}
        for name, text in texts.items():
            self.paths[name].write_text(text)

    def judged(self) -> list[str]:
        for name, rows in self.rows.items():
            batch = self.folder / "parquet" / name / "batch=0"
            batch.mkdir(parents=True)
            if rows:
                table = pa.Table.from_pylist(rows, SCHEMAS[name])
                parquet.write_table(table, batch / "part.parquet")
        wrong, self.compared = find_differences(self.paths, self.folder / "parquet", self.messages)
        return wrong


def message(row: dict[str, object], time: str) -> Message:
    at = row[time]
    assert isinstance(at, datetime)
    key = f"EV/{row['flight']}" if time == "time_hour" else f"{at:%F %T}/{row['carrier']}/EWR"
    messages = {**row, time: f"{at:%FT%T}.000Z"}
    value = json.dumps({name: one for name, one in messages.items() if one is not None})
    return Message(key.encode(), value.encode(), int(at.timestamp() * 1000))


@pytest.fixture
def found(tmp_path: Path) -> Found:
    return Found(tmp_path)


def test_equal_results_are_equal(found):
    assert found.judged() == []
    assert found.compared == 6


def test_changed_figure_in_parquet_is_reported(found):
    found.rows["delay-stats"][1] = {**STATS[1], "delay_minutes": 3}

    messages = found.judged()

    assert (
        "delay-stats, Parquet: 2 rows where the data set gives 2; 1 missing, 1 that" in messages[0]
    )
    assert any("missing" in line and "'United', 'EWR', 1, 0, 0, 2, 2" in line for line in messages)
    assert any("extra" in line and "'United', 'EWR', 1, 0, 0, 3, 2" in line for line in messages)


def test_a_null_is_not_a_zero(found):
    found.rows["delay-stats"][0] = {**STATS[0], "worst_delay": 0}

    assert found.judged() != []


def test_changed_figure_in_the_topic_is_reported(found):
    found.messages["delay-stats"][0] = message({**STATS[0], "seats": 56}, "day")

    assert "delay-stats, topic: 2 rows where the data set gives 2; 1 missing" in found.judged()[0]


def test_missing_windows_are_reported(found):
    found.rows["delay-stats"].pop()
    found.messages["delay-stats"].pop()

    messages = found.judged()

    assert [line for line in messages if "1 rows where the data set gives 2" in line] == [
        messages[0],
        messages[2],
    ]


def test_duplicate_row_is_reported(found):
    found.rows["cancellations"] *= 2
    found.messages["cancellations"] *= 2

    messages = found.judged()

    assert "cancellations, Parquet: 2 rows where the data set gives 1; 0 missing, 1" in messages[0]
    assert "cancellations, topic: 2 rows" in messages[2]


def test_missing_rows_are_reported(found):
    found.rows = {"delay-stats": [], "cancellations": []}
    found.messages = {"delay-stats": [], "cancellations": []}

    assert sum("0 rows where the data set gives" in line for line in found.judged()) == 4


@pytest.mark.parametrize("change", [{"key": b"EV/4309"}, {"key": None}, {"time_ms": 0}])
def test_message_with_a_wrong_key_or_time_is_reported(found, change):
    found.messages["cancellations"] = [found.messages["cancellations"][0]._replace(**change)]

    assert "cancellations, topic: 1 message with another key or time" in found.judged()[0]


def test_only_a_few_of_many_differences_are_shown():
    messages = compare_rows("what", [(number,) for number in range(100)], [])

    assert len(messages) == 4
    assert (
        messages[0]
        == "what: 0 rows where the data set gives 100; 100 missing, 0 that should not be"
    )
