"""How fast a TubeMQ group may read (docs/reference/wire/tubemq.md)."""

from __future__ import annotations

import json

import pytest

from trilogue.broker.errors import InvalidSetting
from trilogue.broker.tubemq.flow_control import (
    EARLY_MS,
    MIB,
    NO_RULES,
    RULES_MAX,
    TEXT_SIZE_MAX,
    EmptyReadRule,
    FlowRules,
    PaceRule,
    ReadMeter,
    VolumeRule,
    merge_rules,
    parse_rules,
)

NOON_MS = 1_700_020_800_000  # 12:00 of a day in UTC+8
MINUTE_MS = 60_000


def rules(kind: int, *each: dict[str, object]) -> str:
    return json.dumps([{"type": kind, "rule": list(each)}])


VOLUME = {"start": "08:00", "end": "18:00", "dltInM": 100, "limitInM": 12, "freqInMs": 1_000}


def test_all_three_types_are_read():
    text = json.dumps(
        [
            {"type": 0, "rule": [VOLUME, {**VOLUME, "start": "00:00", "end": "7:59"}]},
            {"type": 1, "rule": [{"zeroCnt": 2, "freqInMs": 500}, {"zeroCnt": 9, "freqInMs": 0}]},
            {"type": 3, "rule": [{"filterFreqInMs": 3, "minDataFilterFreqInMs": 4}]},
        ]
    )

    found = parse_rules(text)

    assert found.volumes == (
        VolumeRule(0, 7 * 60 + 59, 100 * MIB, 12 * MIB, 1_000),
        VolumeRule(8 * 60, 18 * 60, 100 * MIB, 12 * MIB, 1_000),
    )
    assert found.empties == (EmptyReadRule(9, 0), EmptyReadRule(2, 500))
    assert found.pace == PaceRule(-1, 3, 4)


@pytest.mark.parametrize("text", ["", " ", "\n", "[]"])
def test_nothing_is_no_rule(text):
    assert parse_rules(text) == NO_RULES
    assert FlowRules().wait_ms(ReadMeter(), NOON_MS) == 0


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[" * 100_000,
        " " * TEXT_SIZE_MAX + "[]",
        "{}",
        "[1]",
        '[{"rule": []}]',
        '[{"type": 2, "rule": [{}]}]',
        '[{"type": true, "rule": [{}]}]',
        '[{"type": 0.0, "rule": [{}]}]',
        '[{"type": 0, "rule": []}]',
        '[{"type": 0, "rule": [1]}]',
        rules(0, {**VOLUME, "dltInM": 20}),
        rules(0, {**VOLUME, "limitInM": -1}),
        rules(0, {**VOLUME, "freqInMs": 199}),
        rules(0, {**VOLUME, "freqInMs": 1 << 31}),
        rules(0, {**VOLUME, "freqInMs": "1000"}),
        rules(0, {**VOLUME, "start": "18:00"}),
        rules(0, {**VOLUME, "start": "8"}),
        rules(0, {**VOLUME, "start": "08:60"}),
        rules(0, {**VOLUME, "start": 8}),
        rules(0, {**VOLUME, "end": "24:01"}),
        rules(0, {**VOLUME, "end": "00018:00"}),
        rules(0, {**VOLUME, "end": "1e:00"}),
        rules(0, {key: value for key, value in VOLUME.items() if key != "end"}),
        rules(1, {"zeroCnt": 0, "freqInMs": 1}),
        rules(1, {"zeroCnt": 1, "freqInMs": -1}),
        rules(1, {"zeroCnt": True, "freqInMs": 1}),
        rules(1, *[{"zeroCnt": 1, "freqInMs": 1}] * (RULES_MAX + 1)),
        rules(3, {}),
        rules(3, {"filterFreqInMs": 1}),
        rules(3, {"filterFreqInMs": 2, "minDataFilterFreqInMs": 1}),
        rules(3, {"normFreqInMs": 300_001}),
        rules(3, {"normFreqInMs": 1}, {"normFreqInMs": 1}),
    ],
)
def test_invalid_flow_control_rules_are_refused(text):
    with pytest.raises(InvalidSetting):
        parse_rules(text)


def test_lagging_consumer_is_limited_per_minute_and_per_five_seconds():
    found = parse_rules(rules(0, VOLUME))
    meter = ReadMeter(lag_bytes=101 * MIB)
    now_ms = NOON_MS
    assert found.wait_ms(meter, now_ms) == 0
    meter.read(MIB, 101 * MIB, now_ms)
    assert found.wait_ms(meter, now_ms) == 1_000, "a twelfth of the minute's"
    now_ms += 5_000
    assert found.wait_ms(meter, now_ms) == 0

    meter.read(11 * MIB, 101 * MIB, now_ms)
    now_ms += 5_000

    assert found.wait_ms(meter, now_ms) == 1_000, "that was the whole minute's"
    assert found.wait_ms(meter, NOON_MS + MINUTE_MS) == 0


@pytest.mark.parametrize(
    ("lag", "at_ms"), [(100 * MIB, NOON_MS), (101 * MIB, NOON_MS + 7 * 3_600_000), (0, NOON_MS)]
)
def test_volume_is_limited_only_with_lag_and_in_its_time_of_day(lag, at_ms):
    found = parse_rules(rules(0, VOLUME))
    meter = ReadMeter(lag_bytes=lag)
    found.wait_ms(meter, at_ms)

    meter.read(100 * MIB, lag, at_ms)

    assert found.wait_ms(meter, at_ms) == 0


def test_a_limit_of_nothing_lets_nothing_through():
    meter = ReadMeter(lag_bytes=101 * MIB)
    found = parse_rules(rules(0, {**VOLUME, "limitInM": 0}))
    assert found.wait_ms(meter, NOON_MS) == 1_000


def test_repeated_empty_reads_wait():
    found = parse_rules(
        rules(1, {"zeroCnt": 2, "freqInMs": 500}, {"zeroCnt": 4, "freqInMs": 2_000})
    )
    meter, waits = ReadMeter(), []
    for _ in range(5):
        waits.append(found.wait_ms(meter, NOON_MS))
        meter.found_nothing(NOON_MS)

    assert waits == [0, 0, 500, 500, 2_000]
    assert found.wait_ms(meter, NOON_MS + 1_500) == 500
    assert found.wait_ms(meter, NOON_MS + 2_000 - EARLY_MS) == 0, "clocks tick"
    meter.read(1, 0, NOON_MS)
    assert found.wait_ms(meter, NOON_MS) == 0


def test_each_read_is_followed_by_its_pause():
    found = parse_rules(
        rules(3, {"normFreqInMs": 100, "filterFreqInMs": 300, "minDataFilterFreqInMs": 700})
    )
    plain, filtered = ReadMeter(), ReadMeter(filtered=True)
    plain.read(1, 0, NOON_MS)
    assert found.wait_ms(plain, NOON_MS) == 100
    filtered.read(1, 0, NOON_MS)
    assert found.wait_ms(filtered, NOON_MS) == 300
    filtered.read(1, 0, NOON_MS, little=True)
    assert found.wait_ms(filtered, NOON_MS) == 700


def test_a_group_goes_by_its_own_rules_and_of_each_type_it_has_none_by_the_default():
    default = FlowRules(empties=(EmptyReadRule(1, 1),), pace=PaceRule(1, 2, 3))
    group = FlowRules(empties=(EmptyReadRule(5, 5),))

    assert merge_rules(default, group) == FlowRules(
        empties=(EmptyReadRule(5, 5),), pace=PaceRule(1, 2, 3)
    )
    assert merge_rules(default, NO_RULES) is default
    assert merge_rules(NO_RULES, NO_RULES) is NO_RULES
