"""Records of groups in `__consumer_offsets`, recorded beside those of a real Kafka 4.3.1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tools.kafka_answers.group_records import OURS, REAL, Records, read_recorded, walk_trilogue

WITH_PARTITIONS = (  # at another time: Kafka computes a target at most once a second
    *("CONSUMER_CURRENT", "CONSUMER_TARGET", "SHARE_CURRENT", "SHARE_TARGET"),
    *("STREAMS_CURRENT", "STREAMS_TARGET"),
    "SHARE_PARTITIONS",  # a position begins with the first fetch here, with a subscription there
)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_records_are_those_recorded(tmp_path: Path):
    """What has changed on purpose is recorded by `python -m tools.kafka_answers.group_records`."""
    assert walk_trilogue(tmp_path) == read_recorded()[OURS]


def fields(records: Records, key: str) -> set[str]:
    """Return the names of all fields of the values of a key, and those of what is in them."""

    def names(value: Any) -> set[str]:
        if isinstance(value, list):
            return {name for each in value for name in names(each)}
        if isinstance(value, dict):
            return {*value, *names(list(value.values()))}
        return set()

    return names(records.get(key, []))


def test_kafka_writes_the_same_kinds_of_records_with_the_same_fields():
    recorded = read_recorded()
    ours, real = recorded[OURS], recorded[REAL]
    assert real.keys() - ours.keys() == {"CONSUMER_PATTERN patterns ord.*"}
    assert ours.keys() <= real.keys()
    for key in ours:
        if not key.startswith(WITH_PARTITIONS):
            assert fields(ours, key) == fields(real, key), key


@pytest.mark.parametrize("kind", ["CONSUMER_MEMBER", "SHARE_MEMBER", "STREAMS_MEMBER"])
def test_members_are_written_as_kafka_writes_them(kind: str):
    recorded = read_recorded()
    ours, real = (
        {key: rows for key, rows in recorded[server].items() if key.startswith(kind)}
        for server in (OURS, REAL)
    )
    assert ours
    assert ours == real
